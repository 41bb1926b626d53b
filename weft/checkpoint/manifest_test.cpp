#include "weft/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include "weft/base/error.h"

namespace weft {
namespace {

Manifest sample() {
  Manifest manifest;
  manifest.train.step = 100;
  manifest.train.samples_consumed = 1600;
  manifest.train.counters["skipped"] = 0.1;
  manifest.train.scaler = Json::object({{"scale", 1e22}});
  manifest.config = Json::object({{"seed", 18446744073709551615u}, {"path", "a\xff"}});
  manifest.model.hf_config = Json::object({{"eps", 1e-5}});
  manifest.model.dtype = "bf16";
  manifest.model.tensor_dtypes["a"] = "f32";
  manifest.model.source = "/models/x";
  manifest.files = {{"model.safetensors", 4096}};
  const std::string sum = checksum_hex("x", 1);
  manifest.tensors = {
      {"a", DType::f32, {2, 3}, {{"model.safetensors", "a", 64, 24, {{0, 0}, {2, 3}}, sum}}},
      {"b",
       DType::bf16,
       {4, 6},
       {{"model.safetensors", "b.0", 88, 24, {{0, 0}, {4, 3}}, sum},
        {"model.safetensors", "b.1", 112, 24, {{0, 3}, {4, 3}}, sum}}},
      {"c", DType::f32, {}, {{"model.safetensors", "c", 136, 4, {{}, {}}, sum}}},
  };
  return manifest;
}

void expect_refusal(std::string text, const std::string& from, const std::string& to,
                    const std::string& part) {
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  try {
    parse_manifest(text, "dir/manifest.json");
    FAIL() << "accepted with " << to;
  } catch (const InputError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("dir/manifest.json"), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST(Checksum, KnownValueAndStreaming) {
  // XXH3-128 of nothing, from the reference implementation.
  EXPECT_EQ(checksum_hex("", 0), "99aa06d3014798d86001c324468d497f");
  std::string data(100'000, 'x');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * i >> 4);
  Checksum sum;
  sum.add(data.data(), 1);
  sum.add(data.data() + 1, 70'000);
  sum.add(data.data() + 70'001, 29'999);
  EXPECT_EQ(sum.hex(), checksum_hex(data.data(), 100'000));
}

TEST(Manifest, RoundTrip) {
  const Manifest from = sample();
  const std::string text = manifest_text(from);
  const Manifest to = parse_manifest(text, "m");
  EXPECT_TRUE(to.intact);
  EXPECT_EQ(to.train.step, 100);
  EXPECT_EQ(to.train.samples_consumed, 1600);
  EXPECT_EQ(to.train.counters.at("skipped"), 0.1);
  EXPECT_EQ(to.train.scaler.at("scale").as_double(), 1e22);
  EXPECT_EQ(to.model.tensor_dtypes.at("a"), "f32");
  EXPECT_EQ(to.model.source, "/models/x");
  EXPECT_EQ(to.model.hf_config.at("eps").as_double(), 1e-5);
  ASSERT_EQ(to.tensors.size(), 3u);
  EXPECT_EQ(to.find("b")->pieces[1].box.begin, (Shape{0, 3}));
  EXPECT_EQ(to.find("b")->pieces[1].offset, 112);
  EXPECT_EQ(to.find("c")->shape, Shape{});
  EXPECT_EQ(to.find("d"), nullptr);
  EXPECT_EQ(manifest_text(to), text);
}

TEST(Manifest, StepIsATopLevelMember) {
  const Json json = parse_json(manifest_text(sample()), "m");
  EXPECT_EQ(json.at("format_version").as_int(), 1);
  EXPECT_EQ(json.at("step").as_int(), 100);
}

TEST(Manifest, B06_EveryChangedByteIsNoticed) {
  const std::string text = manifest_text(sample());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ' || text[i] == '\n') continue;
    std::string changed = text;
    changed[i] = changed[i] == '7' ? '8' : '7';
    try {
      EXPECT_FALSE(parse_manifest(changed, "m").intact) << "byte " << i;
    } catch (const InputError&) {
    }
  }
}

TEST(Manifest, B06_EveryCutIsRefused) {
  const std::string text = manifest_text(sample());
  const size_t end = text.rfind('}');
  for (size_t length = 0; length <= end; ++length) {
    EXPECT_THROW(parse_manifest(text.substr(0, length), "m"), InputError) << length;
  }
}

TEST(Manifest, FaultsAreNamed) {
  const std::string text = manifest_text(sample());
  expect_refusal(text, "\"format_version\": 1", "\"format_version\": 2", "version 2, expected 1");
  expect_refusal(text, "\"weft-checkpoint\"", "\"other\"", "\"format\"");
  expect_refusal(text, "\"step\": 100", "\"step\": 101", "\"step\"");
  expect_refusal(text, "\"epoch\": 0", "\"epoch\": -1", "\"epoch\"");
  expect_refusal(text, "\"name\": \"c\"", "\"name\": \"a\"", "\"a\" is listed twice");
  expect_refusal(text, "\"tensor\": \"b.1\"", "\"tensor\": 3", "tensor \"b\"");
  expect_refusal(text, "\"offset\": 112", "\"offset\": 4090", "outside the 4096 bytes");
  expect_refusal(text, "\"offset\": 112", "\"offset\": 9223372036854775807", "outside");
  expect_refusal(text, "\"bytes\": 4096", "\"bytes\": 130", "outside the 130 bytes");
  expect_refusal(text, "\"dtype\": \"f32\"", "\"dtype\": \"f99\"", "unknown dtype \"f99\"");
  expect_refusal(text, "\"dtype\": \"f32\"", "\"dtype\": \"f64\"", "tensor \"a\" has 24 bytes");
  expect_refusal(text, "\"file\": \"model.safetensors\"", "\"file\": \"../model.safetensors\"",
                 "same folder");
  expect_refusal(text, "\"file\": \"model.safetensors\"", "\"file\": \"x\"", "does not list");
  expect_refusal(text, "\"checksum\"", "\"sum\"", "checksum");
}

TEST(Manifest, PiecesMustCoverTheTensor) {
  Manifest manifest = sample();
  manifest.tensors[1].pieces[1].box.begin = {0, 2};
  EXPECT_THROW(parse_manifest(manifest_text(manifest), "m"), InputError);
  manifest.tensors[1].pieces.pop_back();
  EXPECT_THROW(parse_manifest(manifest_text(manifest), "m"), InputError);
  manifest = sample();
  manifest.tensors[1].pieces[1].box.begin = {0, 4};
  EXPECT_THROW(parse_manifest(manifest_text(manifest), "m"), InputError);
  manifest = sample();
  manifest.tensors[0].shape = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_THROW(parse_manifest(manifest_text(manifest), "m"), InputError);
}

}  // namespace
}  // namespace weft
