#include "weft/io/hf_folder.h"

#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/io/test_folder.h"

namespace weft {
namespace {

class HfFolder : public ::testing::Test {
 protected:
  /// Four tensors of 8 bytes, tensor i filled with the value i.
  void write(int64_t shard_bytes) {
    HfWriter writer(posix_files(), folder_.path(),
                    {{"d", DType::f32, {2}},
                     {"b", DType::f32, {2}},
                     {"a", DType::f32, {2}},
                     {"c", DType::f32, {2}}},
                    shard_bytes);
    for (const std::string& name : writer.order()) {
      const auto value = static_cast<float>(name[0] - 'a');
      const float values[2] = {value, value};
      writer.write(name, values);
    }
    writer.finish();
  }
  void put(const std::string& name, const std::string& text) {
    posix_files().write_text(folder_.file(name), text);
  }
  std::string refusal() {
    try {
      HfTensors tensors(posix_files(), folder_.path());
    } catch (const InputError& error) {
      return error.what();
    }
    ADD_FAILURE() << "accepted";
    return "";
  }
  void expect_refusal(const std::string& part) {
    const std::string text = refusal();
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }

  TestFolder folder_;
};

TEST_F(HfFolder, OneFileHasNoIndex) {
  write(32);
  EXPECT_EQ(posix_files().list(folder_.path()), std::vector<std::string>{"model.safetensors"});
  HfTensors tensors(posix_files(), folder_.path());
  ASSERT_EQ(tensors.tensors().size(), 4u);
  float values[2];
  tensors.read(*tensors.find("d"), 0, values, 8);
  EXPECT_EQ(values[1], 3.0f);
  EXPECT_EQ(tensors.find("e"), nullptr);
}

TEST_F(HfFolder, ShardsFillGreedilyInTheGivenOrder) {
  write(20);
  EXPECT_EQ(posix_files().list(folder_.path()),
            (std::vector<std::string>{"model-00001-of-00002.safetensors",
                                      "model-00002-of-00002.safetensors",
                                      "model.safetensors.index.json"}));
  const Json index = read_json_file(folder_.file("model.safetensors.index.json"));
  EXPECT_EQ(index.at("metadata").at("total_size").as_int(), 32);
  EXPECT_EQ(index.at("weight_map").at("d").as_string(), "model-00001-of-00002.safetensors");
  EXPECT_EQ(index.at("weight_map").at("b").as_string(), "model-00001-of-00002.safetensors");
  EXPECT_EQ(index.at("weight_map").at("a").as_string(), "model-00002-of-00002.safetensors");
  HfTensors tensors(posix_files(), folder_.path());
  ASSERT_EQ(tensors.tensors().size(), 4u);
  for (const char* name : {"a", "b", "c", "d"}) {
    float values[2];
    const HfTensors::Item* item = tensors.find(name);
    ASSERT_NE(item, nullptr);
    tensors.read(*item, 0, values, 8);
    EXPECT_EQ(values[0], static_cast<float>(name[0] - 'a'));
  }
}

TEST_F(HfFolder, AnOversizedTensorGetsItsOwnShard) {
  write(1);
  EXPECT_EQ(posix_files().list(folder_.path()).size(), 5u);
  EXPECT_EQ(HfTensors(posix_files(), folder_.path()).tensors().size(), 4u);
}

TEST_F(HfFolder, TheWeightMapDecidesNotTheFileNames) {
  write(20);
  posix_files().rename(folder_.file("model-00001-of-00002.safetensors"), folder_.file("x.st"));
  std::string index = posix_files().read_text(folder_.file("model.safetensors.index.json"));
  const std::string old = "model-00001-of-00002.safetensors";
  for (size_t at; (at = index.find(old)) != std::string::npos;)
    index.replace(at, old.size(), "x.st");
  put("model.safetensors.index.json", index);
  EXPECT_EQ(HfTensors(posix_files(), folder_.path()).tensors().size(), 4u);
}

TEST_F(HfFolder, B20_IndexMustStayInsideTheFolder) {
  for (const char* name :
       {"../x.safetensors", "/etc/passwd", "..", "a/b", "", "a\\\\b", "a\\u0000b"}) {
    put("model.safetensors.index.json", R"({"weight_map":{"w":")" + std::string(name) + R"("}})");
    expect_refusal("expected a file of the same folder");
  }
}

TEST_F(HfFolder, B20_MissingPiecesAreNamed) {
  expect_refusal("model.safetensors.index.json");
  write(20);
  const std::string shard = folder_.file("model-00002-of-00002.safetensors");
  const std::string content = posix_files().read_text(shard);
  posix_files().remove(shard);
  expect_refusal(shard);
  put("model-00002-of-00002.safetensors", content.substr(0, content.size() - 1));
  expect_refusal(shard);
  put("model-00002-of-00002.safetensors", content);
  std::string index = posix_files().read_text(folder_.file("model.safetensors.index.json"));
  index.replace(index.find("\"d\""), 3, "\"q\"");
  put("model.safetensors.index.json", index);
  expect_refusal("tensor \"q\" is missing");
  put("model.safetensors.index.json", "{}");
  expect_refusal("weight_map");
  put("model.safetensors.index.json", R"({"weight_map":{"w":3}})");
  expect_refusal("\"w\"");
}

}  // namespace
}  // namespace weft
