#include "weft/io/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <functional>

#include "weft/base/error.h"
#include "weft/io/test_folder.h"

namespace weft {
namespace {

constexpr const char* kGood = R"({"attn.0":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]}})";

/// A file image with this header and `bytes` bytes of data.
std::string image(const std::string& header, size_t bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i));
  return file + header + std::string(bytes, '\1');
}

class Safetensors : public ::testing::Test {
 protected:
  std::string put(const std::string& content) {
    const std::string path = folder_.file("m.safetensors");
    posix_files().write_text(path, content);
    return path;
  }
  /// The error of opening a file of this content; it must name the file.
  std::string refusal(const std::string& content) {
    const std::string path = put(content);
    try {
      SafetensorsReader reader(posix_files(), path);
    } catch (const InputError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(path), std::string::npos) << text;
      return text;
    }
    ADD_FAILURE() << "accepted: " << content.substr(0, 200);
    return "";
  }
  void expect_refusal(const std::string& content, const std::string& part) {
    const std::string text = refusal(content);
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  void expect_good(const std::string& content) {
    SafetensorsReader reader(posix_files(), put(content));
    EXPECT_EQ(reader.at("attn.0").bytes, 24);
  }

  TestFolder folder_;
};

TEST_F(Safetensors, GoldenBytesOfTheReferenceReader) {
  const float values[6] = {0, 1, 2, 3, 4, 5};
  std::string header = kGood;
  header.resize(64, ' ');
  std::string file = image(header, 24);
  std::memcpy(file.data() + 72, values, 24);
  SafetensorsReader reader(posix_files(), put(file));
  const TensorEntry& entry = reader.at("attn.0");
  EXPECT_EQ(entry.dtype, DType::f32);
  EXPECT_EQ(entry.shape, (Shape{1, 2, 3}));
  EXPECT_EQ(entry.offset, 72);
  float back[6];
  reader.read(entry, back);
  EXPECT_EQ(std::memcmp(back, values, 24), 0);
  reader.read(entry, 8, back, 4);
  EXPECT_EQ(back[0], 2.0f);
}

TEST_F(Safetensors, B20_CutAndPaddedFilesAreRefused) {
  const std::string good = image(kGood, 24);
  expect_good(good);
  expect_refusal(good.substr(0, good.size() - 1), "cut short");
  expect_refusal(good.substr(0, 40), "cut short");
  expect_refusal(good + "x", "1 spare bytes");
  expect_refusal("", "got 0 bytes");
  expect_refusal(good.substr(0, 7), "got 7 bytes");
  expect_refusal(good.substr(0, 8), "cut short");
}

TEST_F(Safetensors, B20_AbsurdHeaderLengthsAreRefusedBeforeAllocation) {
  struct rusage before {};
  getrusage(RUSAGE_SELF, &before);
  std::string file = image(kGood, 24);
  file[7] = '\x80';  // 2^63 + 64
  expect_refusal(file, "at most 100000000");
  file = image(kGood, 24);
  std::memset(file.data(), 0xff, 8);
  expect_refusal(file, "at most 100000000");
  file = image(kGood, 24);
  std::memcpy(file.data(), "\x00\xe1\xf5\x05\0\0\0\0", 8);  // exactly the limit
  expect_refusal(file, "cut short");
  expect_refusal(std::string(8, '\0'), "does not begin with '{'");
  struct rusage after {};
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 * 1024) << "KiB";
}

TEST_F(Safetensors, B20_OverlapsGapsAndWrongSizes) {
  const auto two = [](const char* a, const char* b, size_t bytes) {
    return image(std::string(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":)") + a +
                     R"(},"b":{"dtype":"F32","shape":[2],"data_offsets":)" + b + "}}",
                 bytes);
  };
  SafetensorsReader ok(posix_files(), put(two("[8,16]", "[0,8]", 16)));
  EXPECT_EQ(ok.tensors()[0].name, "b");
  expect_refusal(two("[0,8]", "[4,12]", 12), "overlap");
  expect_refusal(two("[0,8]", "[0,8]", 8), "overlap");
  expect_refusal(two("[0,8]", "[12,20]", 20), "gap");
  expect_refusal(two("[4,12]", "[12,20]", 20), "gap");
  expect_refusal(two("[0,8]", "[8,12]", 12), "\"b\" has 4 bytes, expected 8");
  expect_refusal(two("[8,0]", "[8,16]", 16), "\"a\" lies at bytes 8 to 0");
  expect_refusal(two("[0,8]", "[8,-1]", 16), "\"b\" has no data_offsets");
  expect_refusal(two("[0,8]", "[8,16.0]", 16), "\"b\" has no data_offsets");
  expect_refusal(two("[0,8]", "[8]", 16), "\"b\" has no data_offsets");
  expect_refusal(two("[0,8]", "[8,18446744073709551615]", 16), "\"b\" has no data_offsets");
}

TEST_F(Safetensors, B20_ShapesAndDtypes) {
  const auto one = [](const std::string& dtype, const std::string& shape, size_t bytes) {
    return image(R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":[0,)" +
                     std::to_string(bytes) + "]}}",
                 bytes);
  };
  expect_refusal(one("F99", "[2]", 8), "\"w\" has dtype \"F99\"");
  expect_refusal(one("f32", "[2]", 8), "\"w\" has dtype \"f32\"");
  expect_refusal(one("F32", "[-2]", 8), "\"w\" has extent -2");
  expect_refusal(one("F32", "[-1,-2]", 8), "\"w\" has extent -1");
  expect_refusal(one("F32", "[2.0]", 8), "\"w\" has extent 2.0");
  expect_refusal(one("F32", "[4294967296,4294967296]", 8), "overflows");
  expect_refusal(one("F32", "[4611686018427387904]", 8), "overflows");
  expect_refusal(one("F32", "3", 8), "\"w\" has no shape");
  expect_refusal(one("F4", "[3]", 1), "whole bytes");
  // Scalars, empty tensors, and dtypes that weft does not compute with are legal in a file.
  EXPECT_EQ(SafetensorsReader(posix_files(), put(one("F32", "[]", 4))).at("w").bytes, 4);
  EXPECT_EQ(SafetensorsReader(posix_files(), put(one("F32", "[0,4294967296,4294967296]", 0)))
                .at("w")
                .bytes,
            0);
  const SafetensorsReader bools(posix_files(), put(one("BOOL", "[3]", 3)));
  EXPECT_EQ(bools.at("w").dtype, DType::none);
  EXPECT_EQ(bools.at("w").dtype_name, "BOOL");
  EXPECT_EQ(SafetensorsReader(posix_files(), put(one("F4", "[4]", 2))).at("w").bytes, 2);
}

TEST_F(Safetensors, B20_NamesAndJson) {
  expect_refusal(image(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                       R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                       8),
                 "\"a\"");
  expect_refusal(image("{\"\xff\":{}}", 0), "JSON");
  expect_refusal(image("{\"a\":", 0), "JSON");
  expect_refusal(image("[]", 0), "does not begin with '{'");
  expect_refusal(image("{} x", 0), "JSON");
  expect_refusal(image(R"({"a":3})", 0), "\"a\" is no object");
  expect_refusal(image(R"({"a":{}})", 0), "\"a\" has no dtype");
  expect_good(image(std::string(kGood) + "        ", 24));
}

TEST_F(Safetensors, B20_MetadataMissingEmptyOrNull) {
  const std::string rest = std::string(kGood).substr(1);
  expect_good(image(R"({"__metadata__":{},)" + rest, 24));
  expect_good(image(R"({"__metadata__":null,)" + rest, 24));
  expect_good(image(R"({"__metadata__":{"format":"pt"},)" + rest, 24));
  expect_refusal(image(R"({"__metadata__":{"format":1},)" + rest, 24), "\"format\"");
  expect_refusal(image(R"({"__metadata__":[],)" + rest, 24), "__metadata__");
}

TEST_F(Safetensors, MissingTensorIsNamed) {
  SafetensorsReader reader(posix_files(), put(image(kGood, 24)));
  EXPECT_EQ(reader.find("x"), nullptr);
  try {
    reader.at("x");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("\"x\" is missing"), std::string::npos);
  }
}

TEST_F(Safetensors, WriterMatchesTheReferenceLayout) {
  const std::string path = folder_.file("w.safetensors");
  SafetensorsWriter writer(posix_files(), path,
                           {{"b", DType::bf16, {2}},
                            {"a", DType::f32, {1, 2}},
                            {"z", DType::i64, {}},
                            {"c\"\n", DType::f32, {0, 3}}});
  const float a[2] = {1.5f, -2.0f};
  const BF16 b[2] = {to_bf16(1.0f), to_bf16(2.0f)};
  const int64_t z = 7;
  writer.write("b", b);
  writer.write(writer.at("a"), 4, a + 1, 4);
  writer.write(writer.at("a"), 0, a, 4);
  writer.write("z", &z);
  EXPECT_THROW(writer.write("z", &z), BugError);
  writer.finish();
  const std::string text = posix_files().read_text(path);
  // Byte for byte what the reference library writes for these tensors.
  std::string header = R"({"__metadata__":{"format":"pt"},)"
                       R"("z":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                       R"("a":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]},)"
                       R"("c\"\n":{"dtype":"F32","shape":[0,3],"data_offsets":[16,16]},)"
                       R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[16,20]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string expected = image(header, 20);
  char* data = expected.data() + 8 + header.size();
  std::memcpy(data, &z, 8);
  std::memcpy(data + 8, a, 8);
  std::memcpy(data + 16, b, 4);
  EXPECT_EQ(text, expected);
  SafetensorsReader reader(posix_files(), path);
  EXPECT_EQ(reader.metadata().at("format"), "pt");
  EXPECT_EQ(reader.tensors().size(), 4u);
}

TEST_F(Safetensors, WriterRefusesUnwrittenTensors) {
  SafetensorsWriter writer(posix_files(), folder_.file("w"), {{"a", DType::f32, {2}}});
  const float half = 1.0f;
  writer.write(writer.at("a"), 0, &half, 4);
  EXPECT_THROW(writer.finish(), BugError);
}

}  // namespace
}  // namespace weft
