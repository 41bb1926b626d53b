// The verbs inspect and export from the command line.
#include <gtest/gtest.h>

#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/fake_store.h"
#include "weft/cli/cli_parse.h"
#include "weft/io/hf_folder.h"
#include "weft/io/test_folder.h"

namespace weft {
namespace {

class Inspect : public ::testing::Test {
 protected:
  /// Exit code; stdout is kept in out_.
  int run(const std::vector<std::string>& words) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = run_weft(words);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return code;
  }
  Json json() const { return parse_json(out_, "stdout"); }
  std::string save(int64_t step) {
    FakeStore store = make_fake();
    CheckpointWriter writer(posix_files(), folder_.file("run/checkpoints"), {.async = false});
    return writer.save(store, make_meta(step));
  }

  TestFolder folder_;
  std::string out_;
  std::string err_;
};

TEST_F(Inspect, CheckpointAndRun) {
  const std::string path = save(7);
  ASSERT_EQ(run({"inspect", path, "--json"}), 0) << err_;
  EXPECT_EQ(json().at("kind").as_string(), "checkpoint");
  EXPECT_EQ(json().at("step").as_int(), 7);
  EXPECT_EQ(json().at("parameters").as_int(), 24 + 48 + 16 + 4);
  EXPECT_EQ(json().at("tensors").as_array().size(), 12u);
  save(8);
  ASSERT_EQ(run({"inspect", folder_.file("run"), "--verify", "--json"}), 0) << err_;
  EXPECT_EQ(json().at("checkpoints").as_array().size(), 2u);
  EXPECT_TRUE(json().at("problems").as_array().empty());
}

TEST_F(Inspect, B06_VerifyNamesTheDamagedFileAndExitsWith3) {
  const std::string path = save(7);
  const std::string file = path + "/optimizer.safetensors";
  std::string content = posix_files().read_text(file);
  content.back() ^= 1;
  posix_files().write_text(file, content);
  EXPECT_EQ(run({"inspect", path}), 0);
  EXPECT_EQ(run({"inspect", path, "--verify"}), 3);
  EXPECT_NE(out_.find(file), std::string::npos) << out_;
  posix_files().remove(path + "/manifest.json");
  EXPECT_EQ(run({"inspect", folder_.file("run"), "--verify", "--json"}), 3);
  EXPECT_FALSE(json().at("checkpoints").as_array()[0].at("complete").as_bool());
}

TEST_F(Inspect, DataSets) {
  posix_files().write_text(folder_.file("a.txt"), "abz");
  ASSERT_EQ(run({"inspect", folder_.file("a.txt"), "--json"}), 0) << err_;
  EXPECT_EQ(json().at("documents").as_int(), 1);
  EXPECT_EQ(json().at("tokens").as_int(), 4);
  EXPECT_EQ(json().at("max_id").as_int(), 256);
  EXPECT_EQ(json().at("dtype").as_string(), "u16");
  ASSERT_EQ(run({"inspect", folder_.file("a.txt"), "--document", "0", "--json"}), 0) << err_;
  ASSERT_GE(json().at("ids").as_array().size(), 3u);
  EXPECT_EQ(json().at("ids").as_array()[2].as_int(), 'z');
  EXPECT_EQ(run({"inspect", folder_.file("a.txt"), "--document", "1"}), 2);
  EXPECT_EQ(run({"inspect", folder_.file("none")}), 3);
  EXPECT_NE(err_.find("none"), std::string::npos);
}

TEST_F(Inspect, ExportThenInspectTheFolder) {
  save(7);
  const std::string out = folder_.file("hf/");
  ASSERT_EQ(run({"export", folder_.file("run"), "--out", out, "--dtype", "fp32", "--json"}), 0)
      << err_;
  EXPECT_EQ(json().at("dtype").as_string(), "f32");
  EXPECT_EQ(json().at("tensors").as_int(), 4);
  ASSERT_EQ(run({"inspect", out, "--verify", "--json"}), 0) << err_;
  EXPECT_EQ(json().at("kind").as_string(), "huggingface");
  EXPECT_EQ(json().at("model_type").as_string(), "gpt2");
  ASSERT_EQ(run({"inspect", out + "model.safetensors", "--json"}), 0) << err_;
  EXPECT_EQ(json().at("metadata").at("format").as_string(), "pt");
  EXPECT_EQ(run({"export", folder_.file("run"), "--out", out}), 2);
  EXPECT_EQ(run({"export", folder_.file("run"), "--out", folder_.file("b"), "--dtype", "i32"}), 2);
  EXPECT_EQ(run({"export", folder_.file("nothing"), "--out", folder_.file("b")}), 3);
}

TEST_F(Inspect, B37_VerifyFindsValuesThatAreNotFinite) {
  const std::string path = folder_.file("x.safetensors");
  SafetensorsWriter writer(posix_files(), path, {{"w", DType::bf16, {3}}});
  const uint16_t values[3] = {0x3f80, 0x7fc0, 0};
  writer.write("w", values);
  writer.finish();
  EXPECT_EQ(run({"inspect", path}), 0);
  EXPECT_EQ(run({"inspect", path, "--verify"}), 3);
  EXPECT_NE(out_.find("\"w\" holds nan at element 1"), std::string::npos) << out_;
}

}  // namespace
}  // namespace weft
