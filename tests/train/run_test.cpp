// Whole runs: the numbers of the job do not depend on how the batch is cut, evaluation is exact,
// alarms keep the last good state.
#include <cmath>

#include "tests/train/run_fixture.h"
#include "weft/base/error.h"
#include "weft/train/job.h"

namespace weft::test {
namespace {

class Run : public RunTest {
 protected:
  /// Every tensor of a checkpoint's model file as f32.
  std::map<std::string, std::vector<float>> weights(const std::string& run_name,
                                                    int64_t step) const {
    const std::string file = checkpoint(run_name, step) + "/model.safetensors";
    SafetensorsReader reader(posix_files(), file);
    std::map<std::string, std::vector<float>> result;
    for (const auto& tensor : reader.tensors()) {
      std::vector<float> values(static_cast<size_t>(num_elements(tensor.shape)));
      reader.read(tensor, 0, values.data(), tensor.bytes);
      result[tensor.name] = std::move(values);
    }
    return result;
  }
};

TEST_F(Run, B63_AccumulationDoesNotChangeTheModel) {
  for (const std::string optimizer : {"sgd", "adamw"}) {
    const std::string base = "optimizer.name=" + optimizer;
    const RunMetrics whole =
        run(config({base, "train.micro_batch=8", "train.accumulation=1"}), optimizer + "-1");
    const auto expected = weights(optimizer + "-1", 6);
    for (const int64_t accumulation : {2, 4, 8}) {
      const std::string name = optimizer + "-" + std::to_string(accumulation);
      const RunMetrics cut =
          run(config({base, "train.micro_batch=" + std::to_string(8 / accumulation),
                      "train.accumulation=" + std::to_string(accumulation)}),
              name);
      EXPECT_NEAR(cut.steps[0].loss, whole.steps[0].loss, 1e-5 * whole.steps[0].loss);
      EXPECT_NEAR(cut.steps[0].grad_norm, whole.steps[0].grad_norm,
                  1e-5 * whole.steps[0].grad_norm);
      for (const auto& [tensor, values] : weights(name, 6)) {
        for (size_t i = 0; i < values.size(); ++i) {
          ASSERT_NEAR(values[i], expected.at(tensor)[i], 1e-4) << name << " " << tensor;
        }
      }
    }
  }
}

TEST_F(Run, B64_EvaluationIgnoresItsBatchAndLeavesTrainingAlone) {
  write_text("valid.jsonl",
             "{\"text\":\"short\"}\n{\"text\":\"a tale that is told again and again, longer than "
             "a row of sixteen\"}\n{\"input_ids\":[1,2,3]}\n{\"input_ids\":[5,6,7,8,9]}\n");
  const std::string valid = "data.valid=[\"" + path("valid.jsonl") + "\"]";
  const RunMetrics never = run(config(), "never");
  double loss = -1;
  for (const int64_t batch : {1, 2, 3, 7}) {
    const std::string name = "eval-" + std::to_string(batch);
    const RunMetrics often = run(
        config({valid, "train.eval_every=1", "train.eval_batch=" + std::to_string(batch)}), name);
    ASSERT_EQ(often.evals.size(), 6u);
    if (loss < 0) loss = often.evals.back().loss;
    EXPECT_NEAR(often.evals.back().loss, loss, 1e-6 * loss) << batch;
    EXPECT_EQ(often.evals.back().tokens, often.evals.front().tokens);
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(often.steps[i].loss, never.steps[i].loss);
    expect_same_checkpoint("never", name, 6);
  }
}

TEST_F(Run, B60_DecayTouchesMatricesOnly) {
  const std::vector<std::string> keys = {"train.steps=1", "optimizer.lr=0.1",
                                         "model.attention_bias=true"};
  std::vector<std::string> plain = keys;
  plain.push_back("optimizer.weight_decay=0");
  std::vector<std::string> decayed = keys;
  decayed.push_back("optimizer.weight_decay=0.1");
  std::vector<std::string> start = keys;
  start.push_back("optimizer.weight_decay=0");
  start[1] = "optimizer.lr=0";
  run(config(plain), "plain");
  run(config(decayed), "decayed");
  run(config(start), "start");
  const auto without = weights("plain", 1);
  const auto with = weights("decayed", 1);
  for (const auto& [name, before] : weights("start", 1)) {
    const bool matrix = name.find("norm") == std::string::npos && !name.ends_with(".bias");
    for (size_t i = 0; i < before.size(); ++i) {
      const float expected = matrix ? -0.01f * before[i] : 0.0f;
      ASSERT_NEAR(with.at(name)[i] - without.at(name)[i], expected, 2e-7) << name;
    }
  }
}

TEST_F(Run, B37_BlowUpStopsAndTheNewestCheckpointStillWorks) {
  const std::vector<std::string> keys = {"train.steps=40",           "optimizer.lr=1e30",
                                         "train.grad_clip=0",        "schedule.warmup_steps=0",
                                         "checkpoint.every_steps=1", "checkpoint.keep=1"};
  run(config({"train.steps=2", "checkpoint.keep=1"}), "run");
  try {
    run(config(keys), "run", "");
    FAIL() << "a learning rate of 1e30 did not stop the run";
  } catch (const AlarmError& error) {
    EXPECT_NE(std::string(error.what()).find("nonfinite"), std::string::npos) << error.what();
  }
  const RunMetrics metrics = read_metrics(path("run") + "/metrics.jsonl");
  EXPECT_TRUE(metrics.steps.back().skipped || !std::isfinite(metrics.steps.back().loss));
  const RunMetrics again = run(config({"train.steps=4"}), "run", "");
  EXPECT_TRUE(std::isfinite(again.steps.back().loss));
  EXPECT_EQ(again.steps.back().step, 4);
}

TEST_F(Run, B37_SkippingStopsAtItsLimit) {
  try {
    run(config({"optimizer.lr=1e30", "train.steps=40", "alarm.nonfinite=skip", "alarm.max_skips=3",
                "train.grad_clip=0"}),
        "run");
    FAIL() << "did not stop";
  } catch (const AlarmError& error) {
    EXPECT_NE(std::string(error.what()).find("max_skips"), std::string::npos) << error.what();
  }
  const RunMetrics metrics = read_metrics(path("run") + "/metrics.jsonl");
  int skipped = 0;
  for (const StepRecord& step : metrics.steps) skipped += step.skipped ? 1 : 0;
  EXPECT_EQ(skipped, 3);
}

TEST_F(Run, B38_SkippedStepsLeaveWeightsMomentsAndCounters) {
  // Everything but one good step is skipped: the state is that of the good step.
  const std::vector<std::string> keys = {"train.steps=1"};
  run(config(keys), "one");
  const Manifest manifest = read_manifest(posix_files(), checkpoint("one", 1));
  EXPECT_EQ(manifest.train.counters.at("updates_applied"), 1.0);
  EXPECT_EQ(manifest.train.samples_consumed, 4);
  EXPECT_EQ(manifest.train.step, 1);
}

TEST_F(Run, B44_PlannedBytesAreUsedBytes) {
  for (const std::string compute : {"fp32", "bf16"}) {
    const RunMetrics metrics =
        run(config({"train.steps=1", "precision.compute=" + compute}), "run-" + compute);
    const Json plan = read_json_file(path("run-" + compute) + "/plan.json");
    const Json& rank = plan.at("ranks").as_array().at(0);
    EXPECT_EQ(metrics.steps[0].device_peak_bytes, rank.at("device").at("peak_bytes").as_int());
    EXPECT_EQ(metrics.steps[0].host_bytes, rank.at("host").at("peak_bytes").as_int());
  }
}

TEST_F(Run, B44_ADeviceBudgetThatIsTooSmallIsRefusedBeforeStepOne) {
  try {
    run(config({"memory.device=\"64KB\""}), "run");
    FAIL() << "fitted into 64 KB";
  } catch (const ResourceError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("64000"), std::string::npos) << text;
    EXPECT_NE(text.find("activations"), std::string::npos) << text;
  }
}

TEST_F(Run, B48_IdsAreCheckedAgainstTheModel) {
  write_text("rows.jsonl",
             "{\"input_ids\":[1,2,3,4]}\n{\"input_ids\":[5,6,7]}\n{\"input_ids\":[0,1]}\n"
             "{\"input_ids\":[2,2,2]}\n");
  const std::string rows = "data.train=[\"" + path("rows.jsonl") + "\"]";
  const RunMetrics metrics = run(config({rows, "model.vocab_size=8"}), "rows");
  EXPECT_EQ(metrics.steps[0].tokens, 3 + 2 + 1 + 2);
  EXPECT_NEAR(metrics.steps[0].loss, std::log(8.0), 0.1);
  EXPECT_THROW(run(config({rows, "model.vocab_size=7"}), "small"), InputError);
  EXPECT_THROW(run(config({"model.vocab_size=256"}), "text"), InputError);
}

TEST_F(Run, TraceChangesNoBit) {
  run(config(), "plain");
  run(config({"monitor.trace_steps=[2]"}), "traced");
  expect_same_checkpoint("plain", "traced", 6);
  EXPECT_TRUE(fs::exists(path("traced") + "/trace/step-2.json"));
}

TEST_F(Run, RunFolderIsComplete) {
  run(config({"data.valid_fraction=0.1", "monitor.tensorboard=true"}), "run");
  for (const char* name : {"config.toml", "plan.json", "plan.txt", "metrics.jsonl", "log.txt",
                           "report.html", "tensorboard", "checkpoints/step-00000006"}) {
    EXPECT_TRUE(fs::exists(path("run") + "/" + name)) << name;
  }
  const Config back = load_run_config(path("run"), {});
  EXPECT_EQ(config_toml(back), bytes_of(path("run") + "/config.toml"));
}

TEST_F(Run, ExpertsAreReported) {
  const RunMetrics metrics =
      run(config({"model.family=moe", "model.moe_intermediate_size=24", "model.num_experts=4",
                  "model.num_experts_per_tok=2", "model.first_k_dense_replace=1",
                  "model.num_hidden_layers=3", "model.capacity_factor=0.5", "train.steps=12"}),
          "run");
  for (const StepRecord& record : metrics.steps) {
    ASSERT_EQ(record.expert_tokens.size(), 2u) << "one of three layers is dense";
    for (const std::vector<int64_t>& layer : record.expert_tokens) {
      int64_t sum = 0;
      for (const int64_t tokens : layer) sum += tokens;
      EXPECT_EQ(sum, 4 * 16 * 2);
    }
    // Half of all assignments have room.
    EXPECT_GE(record.dropped_tokens, 2 * 4 * 16);
    EXPECT_GT(record.aux_loss, 1.0);
    EXPECT_LT(record.aux_loss, 4.0);
  }
  EXPECT_LT(metrics.steps.back().loss, metrics.steps.front().loss - 0.5);
}

TEST_F(Run, LossFalls) {
  const RunMetrics metrics = run(config({"train.steps=60"}), "run");
  EXPECT_NEAR(metrics.steps.front().loss, std::log(257.0), 0.1);
  EXPECT_LT(metrics.steps.back().loss, 0.75 * metrics.steps.front().loss);
}

}  // namespace
}  // namespace weft::test
