// Whole runs in half precision: the loss scale, what overflows do and what they leave alone.
#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/support/hf_fixture.h"
#include "tests/train/run_fixture.h"
#include "weft/base/error.h"

namespace weft::test {
namespace {

using Keys = std::vector<std::string>;

Keys operator+(Keys left, const Keys& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

class Precision : public RunTest {
 protected:
  /// Rows of `seq_len` times token t[0], every label t[1], as rows.jsonl.
  void write_rows(int64_t seq_len, const std::vector<std::pair<int, int>>& rows) const {
    std::string text;
    for (const auto& [token, label] : rows) {
      std::string ids, labels;
      for (int64_t i = 0; i < seq_len; ++i) {
        ids += (i > 0 ? "," : "") + std::to_string(token);
        labels += (i > 0 ? "," : "") + std::to_string(label);
      }
      text += "{\"input_ids\":[" + ids + "],\"labels\":[" + labels + "]}\n";
    }
    write_text("rows.jsonl", text);
  }

  /// Trains the bigram model of `columns` on rows.jsonl with SGD, one sequence per micro-batch.
  Config bigram(const BigramColumns& columns, const Keys& keys) const {
    if (!fs::exists(path("model"))) {
      write_bigram_model(path("model"), TinyLlama{.kv_heads = 2}, columns);
    }
    const std::string text = R"([model]
hf = "model"
[data]
train = ["rows.jsonl"]
seq_len = 8
shuffle = false
[train]
steps = 1
micro_batch = 1
[optimizer]
name = "sgd"
lr = 0.01
[schedule]
name = "constant"
[precision]
compute = "fp16"
[device]
threads = 1
[monitor]
tensorboard = false
)";
    return parse_config(text, path("config.toml"), keys);
  }

  static std::vector<double> scales(const RunMetrics& metrics) {
    std::vector<double> values;
    for (const StepRecord& step : metrics.steps) values.push_back(step.loss_scale);
    return values;
  }
  static int64_t skipped(const RunMetrics& metrics) {
    return std::count_if(metrics.steps.begin(), metrics.steps.end(),
                         [](const StepRecord& step) { return step.skipped; });
  }

  /// A tensor of f32 in a checkpoint.
  std::vector<float> stored(const std::string& name, int64_t step,
                            const std::string& tensor) const {
    SafetensorsReader file(posix_files(), checkpoint(name, step) + "/model.safetensors");
    const TensorEntry& entry = file.at(tensor);
    std::vector<float> values(static_cast<size_t>(entry.bytes) / sizeof(float));
    file.read(entry, values.data());
    return values;
  }

  /// What the run stopped with.
  std::string alarm_of(const Config& config, const std::string& name) const {
    try {
      run(config, name);
    } catch (const AlarmError& error) {
      return error.what();
    }
    return "no alarm";
  }
};

TEST_F(Precision, HalfTrainsLikeFp32OnEveryBackend) {
  const RunMetrics single = run(config({"train.steps=12"}), "fp32");
  for (const std::string backend : {"cpu", "ref"}) {
    Config half = config({"train.steps=12", "precision.compute=fp16", "precision.loss_scale=1024"});
    half.device.backend = backend;
    const RunMetrics metrics = run(half, backend);
    for (size_t i = 0; i < metrics.steps.size(); ++i) {
      const StepRecord& step = metrics.steps[i];
      EXPECT_FALSE(step.skipped);
      EXPECT_EQ(step.loss_scale, 1024);
      EXPECT_NEAR(step.loss, single.steps[i].loss, 5e-3 * single.steps[i].loss) << backend << i;
      EXPECT_NEAR(step.grad_norm, single.steps[i].grad_norm, 5e-2 * single.steps[i].grad_norm);
    }
  }
}

TEST_F(Precision, AStaticScaleOfAPowerOfTwoChangesNoBitOfFp32) {
  const RunMetrics plain = run(config(), "plain");
  const RunMetrics scaled = run(config({"precision.loss_scale=4096"}), "scaled");
  for (size_t i = 0; i < plain.steps.size(); ++i) {
    EXPECT_EQ(scaled.steps[i].loss, plain.steps[i].loss);
    EXPECT_EQ(scaled.steps[i].grad_norm, plain.steps[i].grad_norm);
    EXPECT_EQ(scaled.steps[i].loss_scale, 4096);
  }
  expect_same_checkpoint("plain", "scaled", 6);
}

TEST_F(Precision, B54_FiniteGradientsBeyondHalfAreNoOverflow) {
  // The gradient of the last norm is 106 sqrt(8) = 300: far beyond fp16 once scaled by 65536,
  // while those of single tokens are not.
  write_rows(512, {{1, 2}, {1, 2}});
  const BigramColumns columns = {{}, {0.0, 106.0}};
  const Keys keys = {"data.seq_len=512", "train.micro_batch=2"};
  const RunMetrics single = run(bigram(columns, keys + Keys{"precision.compute=fp32"}), "fp32");
  const RunMetrics half = run(bigram(columns, keys + Keys{"precision.loss_scale=65536"}), "fp16");
  const StepRecord& step = half.steps.at(0);
  EXPECT_FALSE(step.skipped);
  EXPECT_NEAR(single.steps.at(0).grad_norm, 300, 10);
  EXPECT_NEAR(step.grad_norm, single.steps[0].grad_norm, 1e-3 * single.steps[0].grad_norm);
  // Clipped to 1: the norm weight moved by about lr.
  EXPECT_NEAR(stored("fp16", 1, "model.norm.weight")[1], 1.0 - 0.01, 1e-3);
}

TEST_F(Precision, B54_TinyGradientsKeepTheirNorm) {
  write_rows(8, {{1, 1}});
  const BigramColumns columns = {{}, {0.0, 7.0}};
  const RunMetrics single = run(bigram(columns, {"precision.compute=fp32"}), "fp32");
  const RunMetrics half = run(bigram(columns, {"precision.loss_scale=65536"}), "fp16");
  EXPECT_GT(single.steps.at(0).grad_norm, 1e-9);
  EXPECT_LT(single.steps.at(0).grad_norm, 1e-6);
  EXPECT_NEAR(half.steps.at(0).grad_norm, single.steps[0].grad_norm,
              1e-2 * single.steps[0].grad_norm);
}

TEST_F(Precision, B55_AnOverflowOfOneRankSkipsOnAll) {
  // Only the second row overflows, and only above a scale of 512: the gradient of its hidden state
  // is 1750 x scale / 14 labels.
  write_rows(8, {{1, 1}, {2, 3}, {1, 1}, {1, 1}, {1, 1}, {2, 3}, {1, 1}, {1, 1}});
  const BigramColumns columns = {{}, {0.0, 3.5}, {0.0, 0.0, 1750.0}};
  const Keys keys = {"train.steps=8", "train.global_batch=2", "precision.dynamic.initial=1024",
                     "precision.dynamic.growth_interval=4"};
  const RunMetrics one = run(bigram(columns, keys), "one");
  const std::vector<double> expected = {1024, 1024, 1024, 512, 512, 512, 512, 1024};
  EXPECT_EQ(scales(one), expected);
  EXPECT_EQ(skipped(one), 2);
  const std::vector<std::pair<std::string, Keys>> layouts = {
      {"data", {"parallel.data=2"}},
      {"zero1", {"parallel.data=2", "parallel.zero=1"}},
      {"zero3", {"parallel.data=2", "parallel.zero=3"}},
      {"op", {"parallel.op=2"}},
      {"both", {"parallel.data=2", "parallel.op=2", "parallel.sequence=true"}},
      {"host", {"parallel.data=2", "offload.optimizer=host", "offload.update_on=host"}},
  };
  for (const auto& [name, layout] : layouts) {
    const RunMetrics metrics = run(bigram(columns, keys + layout), name);
    EXPECT_EQ(scales(metrics), expected) << name;
    for (size_t i = 0; i < metrics.steps.size(); ++i) {
      const StepRecord& step = metrics.steps[i];
      EXPECT_EQ(step.skipped, one.steps[i].skipped) << name << " step " << i + 1;
      EXPECT_NEAR(step.loss, one.steps[i].loss, 5e-3 * one.steps[i].loss) << name;
      ASSERT_EQ(step.overflow.has_value(), step.skipped);
      if (!step.skipped) continue;
      EXPECT_EQ(step.overflow->pass, "backward") << name;
      EXPECT_EQ(step.overflow->tensor, "model.norm.weight") << name;
      // Ranks of data 1 begin behind those of data 0; with op alone both meet it.
      const int64_t rank = name == "op" ? 0 : name == "both" ? 2 : 1;
      EXPECT_EQ(step.overflow->rank, rank) << name;
    }
  }
}

TEST_F(Precision, SkippedStepsLeaveStatesCountersAndScheduleAlone) {
  // Every step but the first and the last two overflows.
  write_rows(8, {{1, 1}, {2, 3}, {2, 3}, {1, 1}, {1, 1}});
  const BigramColumns columns = {{}, {0.0, 3.5}, {0.0, 0.0, 60000.0}};
  const Keys keys = {"train.steps=5",
                     "optimizer.name=adamw",
                     "schedule.warmup_steps=4",
                     "precision.dynamic.initial=1024",
                     "checkpoint.every_steps=1",
                     "checkpoint.keep=9"};
  const RunMetrics metrics = run(bigram(columns, keys), "run");
  EXPECT_EQ(skipped(metrics), 2);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const std::string before = bytes_of(checkpoint("run", 1) + "/" + file);
    EXPECT_TRUE(before == bytes_of(checkpoint("run", 3) + "/" + file)) << file;
    EXPECT_FALSE(before == bytes_of(checkpoint("run", 4) + "/" + file)) << file;
  }
  const std::vector<double> rates = {0.0025, 0.005, 0.005, 0.005, 0.0075};
  for (size_t i = 0; i < 5; ++i) EXPECT_DOUBLE_EQ(metrics.steps[i].lr, rates[i]) << i;
  const Manifest manifest = read_manifest(posix_files(), checkpoint("run", 5));
  EXPECT_EQ(manifest.train.counters.at("updates_applied"), 3);
  EXPECT_EQ(manifest.train.counters.at("skipped_steps"), 2);
  EXPECT_EQ(manifest.train.samples_consumed, 5);
}

TEST_F(Precision, B56_OverflowOfTheForwardPassStopsAndIsBlamed) {
  write_rows(8, {{1, 2}});
  const BigramColumns columns = {{}, {0.0, 1e5}};  // infinite in fp16
  const std::string at_floor = alarm_of(bigram(columns, {"train.steps=100"}), "floor");
  EXPECT_NE(at_floor.find("min_scale"), std::string::npos) << at_floor;
  EXPECT_NE(at_floor.find("forward pass"), std::string::npos) << at_floor;
  EXPECT_NE(at_floor.find("lm_head.weight holds 1 values beyond the range of f16"),
            std::string::npos)
      << at_floor;
  const RunMetrics floor = read_metrics(path("floor") + "/metrics.jsonl");
  EXPECT_EQ(floor.steps.size(), 18u);  // hysteresis 1, 16 halvings of 65536, one at the floor
  EXPECT_EQ(floor.steps.back().loss_scale, 1);
  EXPECT_EQ(floor.steps.back().overflow->pass, "forward");

  const std::string limit =
      alarm_of(bigram(columns, {"train.steps=100", "alarm.max_skips=5"}), "limit");
  EXPECT_NE(limit.find("5 skipped steps in a row"), std::string::npos) << limit;
  EXPECT_NE(limit.find("forward pass"), std::string::npos) << limit;
  EXPECT_EQ(read_metrics(path("limit") + "/metrics.jsonl").steps.size(), 5u);

  const std::string fixed = alarm_of(
      bigram(columns, {"train.steps=100", "alarm.max_skips=3", "precision.loss_scale=8"}), "fixed");
  EXPECT_NE(fixed.find("3 skipped steps in a row"), std::string::npos) << fixed;
}

TEST_F(Precision, B56_OverflowOfTheBackwardPassIsNotBlamedOnTheForward) {
  write_rows(8, {{1, 2}});
  const BigramColumns columns = {{}, {0.0, 60000.0}};
  const std::string text =
      alarm_of(bigram(columns, {"train.steps=100", "precision.dynamic.min_scale=256"}), "run");
  EXPECT_NE(text.find("min_scale"), std::string::npos) << text;
  EXPECT_NE(text.find("not finite in the backward pass, gradient of model.norm.weight, rank 0"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("forward"), std::string::npos) << text;
  const RunMetrics metrics = read_metrics(path("run") + "/metrics.jsonl");
  EXPECT_EQ(metrics.events.back().kind, EventKind::end);
  EXPECT_EQ(metrics.steps.back().loss_scale, 256);
}

TEST_F(Precision, B57_TheScalerIsInTheCheckpoint) {
  // From 2^30 down until gradients fit, and up again every 4 steps.
  const Keys keys = {"precision.compute=fp16", "precision.dynamic.initial=1073741824",
                     "precision.dynamic.backoff_factor=0.03125",
                     "precision.dynamic.growth_interval=2", "precision.dynamic.growth_factor=4"};
  const RunMetrics straight = run(config(keys + Keys{"train.steps=12"}), "straight");
  EXPECT_GT(skipped(straight), 1);
  const std::vector<double> seen = scales(straight);
  EXPECT_NE(std::adjacent_find(seen.begin(), seen.end(), std::less<>()), seen.end()) << "no growth";
  run(config(keys + Keys{"train.steps=2"}), "stops");
  run(config(keys + Keys{"train.steps=3"}), "stops", "");
  run(config(keys + Keys{"train.steps=5"}), "stops", "");
  const RunMetrics resumed = run(config(keys + Keys{"train.steps=12"}), "stops", "");
  EXPECT_EQ(scales(resumed), scales(straight));
  for (size_t i = 0; i < straight.steps.size(); ++i) {
    EXPECT_EQ(resumed.steps[i].skipped, straight.steps[i].skipped) << i;
  }
  expect_same_checkpoint("straight", "stops", 12);
}

TEST_F(Precision, B57_AnOptionStartsTheScalerAgain) {
  const Keys keys = {"precision.compute=fp16", "precision.dynamic.initial=1024",
                     "precision.dynamic.growth_interval=2"};
  run(config(keys + Keys{"train.steps=4"}), "run");
  fs::copy(path("run"), path("reset"), fs::copy_options::recursive);
  EXPECT_EQ(run(config(keys), "run", "").steps.at(4).loss_scale, 4096);
  EXPECT_EQ(
      run(config(keys + Keys{"precision.dynamic.reset=true"}), "reset", "").steps.at(4).loss_scale,
      1024);
}

class Moments : public Precision {
 protected:
  static Keys rounded() { return {"optimizer.moments=bf16", "precision.compute=bf16"}; }

  static int64_t optimizer_bytes(const std::string& run_folder) {
    return read_json_file(run_folder + "/plan.json")
        .at("ranks")
        .as_array()
        .at(0)
        .at("device")
        .at("optimizer")
        .as_int();
  }

  static void expect_same_losses(const RunMetrics& a, const RunMetrics& b,
                                 const std::string& what) {
    ASSERT_EQ(a.steps.size(), b.steps.size()) << what;
    for (size_t i = 0; i < a.steps.size(); ++i) {
      EXPECT_EQ(a.steps[i].loss, b.steps[i].loss) << what << " step " << i + 1;
    }
  }
};

TEST_F(Moments, InHalfTheBytesTrainAlike) {
  const Keys keys = {"train.steps=40"};
  const RunMetrics wide = run(config(keys), "wide");
  const RunMetrics narrow = run(config(keys + Keys{"optimizer.moments=bf16"}), "narrow");
  EXPECT_NE(narrow.steps.back().loss, wide.steps.back().loss);
  EXPECT_NEAR(narrow.steps.back().loss, wide.steps.back().loss, 0.02 * wide.steps.back().loss);
  EXPECT_LT(wide.steps.back().loss, 0.8 * wide.steps.front().loss);
  // Half but for the alignment of the small ones.
  EXPECT_LT(optimizer_bytes(path("narrow")), 0.55 * optimizer_bytes(path("wide")));
}

TEST_F(Moments, AreTheSameBitsInEveryTierAndSlice) {
  const RunMetrics device = run(config(rounded()), "device");
  const std::string nvme = "memory.nvme=[\"" + path("cold") + "\"]";
  fs::create_directories(path("cold"));
  const std::vector<std::pair<std::string, Keys>> tiers = {
      {"host", {"offload.optimizer=host", "offload.update_on=device"}},
      {"host-update", {"offload.optimizer=host", "offload.update_on=host"}},
      {"nvme", {nvme, "offload.optimizer=nvme", "offload.late_update=off"}},
      {"late", {nvme, "offload.optimizer=nvme", "offload.late_update=on"}},
  };
  for (const auto& [name, keys] : tiers) {
    expect_same_losses(run(config(rounded() + keys), name), device, name);
    expect_same_checkpoint("device", name, 6);
  }
  // Without clipping and accumulation every ZeRO stage sums in one order.
  const Keys data =
      rounded() + Keys{"parallel.data=2", "train.grad_clip=0", "train.accumulation=1"};
  const RunMetrics whole = run(config(data), "data");
  for (const std::string zero : {"1", "2", "3"}) {
    expect_same_losses(run(config(data + Keys{"parallel.zero=" + zero}), "zero" + zero), whole,
                       "zero " + zero);
  }
}

TEST_F(Moments, ContinueToTheBit) {
  for (const std::string optimizer : {"adamw", "sgd"}) {
    Keys keys = rounded() + Keys{"optimizer.name=" + optimizer};
    if (optimizer == "sgd") keys.push_back("optimizer.momentum=0.9");
    const RunMetrics straight = run(config(keys), optimizer);
    run(config(keys + Keys{"train.steps=3"}), optimizer + "-halves");
    expect_same_losses(run(config(keys), optimizer + "-halves", ""), straight, optimizer);
    expect_same_checkpoint(optimizer, optimizer + "-halves", 6);
  }
}

TEST_F(Moments, OfACheckpointMayBecomeWiderButNotNarrower) {
  run(config(rounded() + Keys{"train.steps=2"}), "narrow");
  run(config({"precision.compute=bf16", "train.steps=4"}), "narrow", "");
  run(config({"precision.compute=bf16", "train.steps=2"}), "wide");
  EXPECT_THROW(run(config(rounded()), "wide", ""), InputError);
}

TEST_F(Moments, NeedAMomentAndFp32Masters) {
  EXPECT_THROW(config({"optimizer.name=sgd", "optimizer.moments=bf16"}), UsageError);
}

}  // namespace
}  // namespace weft::test
