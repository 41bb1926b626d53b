// Whole training runs of tiny models in a fresh folder.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "weft/base/dtype.h"
#include "weft/base/log.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/config/config.h"
#include "weft/io/safetensors.h"
#include "weft/train/metrics.h"
#include "weft/train/trainer.h"

namespace weft::test {

namespace fs = std::filesystem;

class RunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::error);
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        fs::temp_directory_path() / ("weft-run-" + std::to_string(::getpid()) + "-" + info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    write_text("corpus.txt", sample_text());
  }
  void TearDown() override {
    set_log_file("");
    set_log_level(LogLevel::info);
    fs::remove_all(folder_);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  void write_text(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }

  /// 6 KB of text with some structure to learn.
  static std::string sample_text() {
    std::string text;
    for (int i = 0; text.size() < 6000; ++i) {
      text += "line " + std::to_string(i * 37 % 101) + " of a tale that is told again.\n";
    }
    return text;
  }

  /// A small llama on the cpu backend; `extra` lines are appended to the tables they name.
  static std::string base_config() {
    return R"(seed = 7
[model]
family = "llama"
hidden_size = 16
intermediate_size = 40
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
[data]
train = ["corpus.txt"]
seq_len = 16
[train]
steps = 6
micro_batch = 2
accumulation = 2
[optimizer]
lr = 1e-2
[schedule]
name = "constant"
[precision]
compute = "fp32"
[device]
threads = 1
[monitor]
tensorboard = false
)";
  }

  Config config(const std::vector<std::string>& overrides = {}) const {
    return parse_config(base_config(), path("config.toml"), overrides);
  }

  /// Trains into `run`; returns the metrics.
  RunMetrics run(const Config& config, const std::string& run_name,
                 std::optional<std::string> resume = {}) const {
    train(config, {.out = path(run_name), .resume = std::move(resume), .command = "test"});
    return read_metrics(path(run_name) + "/metrics.jsonl");
  }

  std::string checkpoint(const std::string& run_name, int64_t step) const {
    return path(run_name) + "/checkpoints/" + checkpoint_name(step);
  }

  static std::string bytes_of(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  /// Tensors of the two runs' checkpoints at `step` are equal to the bit.
  void expect_same_checkpoint(const std::string& a, const std::string& b, int64_t step) const {
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      const std::string left = bytes_of(checkpoint(a, step) + "/" + file);
      EXPECT_FALSE(left.empty()) << a << " step " << step << " has no " << file;
      EXPECT_TRUE(left == bytes_of(checkpoint(b, step) + "/" + file))
          << file << " differs between " << a << " and " << b << " at step " << step;
    }
  }

  fs::path folder_;
};

}  // namespace weft::test
