// Whole runs on several ranks (threads of this process): the numbers of the job do not depend on
// who computes what.
#include <cmath>

#include "tests/support/hf_fixture.h"
#include "tests/train/run_fixture.h"
#include "weft/base/error.h"

namespace weft::test {
namespace {

struct Layout {
  int64_t data = 1;
  int64_t op = 1;
  int64_t zero = 0;
  bool sequence = false;

  std::string name() const {
    return "data" + std::to_string(data) + "-op" + std::to_string(op) + "-zero" +
           std::to_string(zero) + (sequence ? "-sequence" : "");
  }
  std::vector<std::string> keys() const {
    return {"parallel.data=" + std::to_string(data), "parallel.op=" + std::to_string(op),
            "parallel.zero=" + std::to_string(zero),
            std::string("parallel.sequence=") + (sequence ? "true" : "false")};
  }
};

class Ranks : public RunTest {
 protected:
  /// The fixture's model on `layout`, with a global batch of 6 sequences in micro-batches of
  /// `micro_batch` per rank.
  Config on(const Layout& layout, std::vector<std::string> keys, int64_t micro_batch = 1) const {
    for (const std::string& key : layout.keys()) keys.push_back(key);
    keys.push_back("train.global_batch=6");
    keys.push_back("train.micro_batch=" + std::to_string(micro_batch));
    keys.push_back("train.accumulation=" + std::to_string(6 / (micro_batch * layout.data)));
    return config(keys);
  }

  /// Losses and norms of every step agree to `tolerance`.
  static void expect_same_course(const RunMetrics& a, const RunMetrics& b, double tolerance,
                                 const std::string& what) {
    ASSERT_EQ(a.steps.size(), b.steps.size()) << what;
    for (size_t i = 0; i < a.steps.size(); ++i) {
      EXPECT_NEAR(a.steps[i].loss, b.steps[i].loss, tolerance * b.steps[i].loss)
          << what << " step " << i + 1;
      EXPECT_NEAR(a.steps[i].grad_norm, b.steps[i].grad_norm, tolerance * b.steps[i].grad_norm)
          << what << " step " << i + 1;
      EXPECT_EQ(a.steps[i].tokens, b.steps[i].tokens);
      EXPECT_EQ(a.steps[i].samples_total, b.steps[i].samples_total);
    }
  }
};

TEST_F(Ranks, B63_LayoutsTrainTheSameModel) {
  const RunMetrics one = run(on({}, {}), "one");
  for (const Layout& layout :
       {Layout{.data = 2}, Layout{.data = 3}, Layout{.op = 2}, Layout{.data = 2, .op = 2},
        Layout{.op = 2, .sequence = true}, Layout{.data = 2, .zero = 1},
        Layout{.data = 2, .zero = 2}, Layout{.data = 3, .zero = 3}}) {
    expect_same_course(run(on(layout, {}), layout.name()), one, 2e-5, layout.name());
  }
}

TEST_F(Ranks, B24_DropoutDoesNotDependOnTheLayout) {
  const std::vector<std::string> keys = {"model.dropout=0.5"};
  const RunMetrics one = run(on({}, keys), "one");
  const RunMetrics none = run(on({}, {}), "none");
  EXPECT_NE(one.steps[0].loss, none.steps[0].loss);
  for (const Layout& layout :
       {Layout{.data = 2}, Layout{.data = 3}, Layout{.op = 2}, Layout{.op = 2, .sequence = true}}) {
    expect_same_course(run(on(layout, keys), layout.name()), one, 2e-5, layout.name());
  }
}

TEST_F(Ranks, B52_OneOrderForAllRanks) {
  // 12 samples in three files: an epoch is two steps.
  for (const char* name : {"a", "b", "c"}) {
    std::string text;
    for (int i = 0; i < 4; ++i) {
      text += "{\"input_ids\":[";
      for (int t = 0; t < 9; ++t) {
        text += (t > 0 ? "," : "") + std::to_string((name[0] * 7 + i * 13 + t * (i + 3)) % 257);
      }
      text += "]}\n";
    }
    write_text(std::string(name) + ".jsonl", text);
  }
  const std::string files = "data.train=[\"" + path("c.jsonl") + "\",\"" + path("a.jsonl") +
                            "\",\"" + path("b.jsonl") + "\"]";
  const std::vector<std::string> keys = {files, "optimizer.lr=0"};
  const RunMetrics one = run(on({}, keys), "one");
  // With fixed weights the two losses of every epoch sum to the same: each sample once.
  const double epoch = one.steps[0].loss + one.steps[1].loss;
  EXPECT_NEAR(one.steps[2].loss + one.steps[3].loss, epoch, 1e-6);
  EXPECT_NEAR(one.steps[4].loss + one.steps[5].loss, epoch, 1e-6);
  EXPECT_NE(one.steps[0].loss, one.steps[2].loss);
  for (const int64_t data : {2, 3}) {
    const Layout layout{.data = data};
    expect_same_course(run(on(layout, keys), layout.name()), one, 1e-6, layout.name());
  }
}

TEST_F(Ranks, B64_EvaluationIgnoresItsBatchAndItsRanks) {
  std::string text;
  for (int row = 0; row < 7; ++row) {
    text += "{\"input_ids\":[";
    for (int t = 0; t <= row + 2; ++t) text += (t > 0 ? "," : "") + std::to_string(row * 9 + t);
    text += "]}\n";
  }
  write_text("valid.jsonl", text);
  const std::string valid = "data.valid=[\"" + path("valid.jsonl") + "\"]";
  double loss = -1;
  for (const int64_t data : {1, 2, 3}) {
    const Layout layout{.data = data};
    const RunMetrics never = run(on(layout, {"train.steps=3"}), layout.name());
    for (const int64_t batch : {1, 2, 3, 7}) {
      const std::string name = layout.name() + "-" + std::to_string(batch);
      const RunMetrics often = run(on(layout, {valid, "train.steps=3", "train.eval_every=1",
                                               "train.eval_batch=" + std::to_string(batch)}),
                                   name);
      ASSERT_EQ(often.evals.size(), 3u);
      if (loss < 0) loss = often.evals[0].loss;
      EXPECT_NEAR(often.evals[0].loss, loss, 1e-6 * loss) << name;
      EXPECT_EQ(often.evals[0].tokens, 2 + 3 + 4 + 5 + 6 + 7 + 8);
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(often.steps[i].loss, never.steps[i].loss) << name;
    }
  }
}

TEST_F(Ranks, B02_MeanOverTheTokensOfAllRanks) {
  const TinyLlama shape;
  write_bigram_model(path("model"), shape, {{}, {0.0, 3.5355339}});
  // One valid label that costs 2.079442, seven that cost 0.000318 each, two rows that do not count.
  const std::string one =
      "{\"input_ids\":[0,1,1,1,1,1,1,1],\"labels\":[-100,1,-100,-100,-100,"
      "-100,-100,-100]}\n";
  const std::string seven = "{\"input_ids\":[1,1,1,1,1,1,1,1],\"labels\":[-100,1,1,1,1,1,1,1]}\n";
  const std::string none = "{\"input_ids\":[2,2],\"labels\":[-100,-100]}\n";
  write_text("two.jsonl", one + seven);
  write_text("four.jsonl", one + none + seven + none);
  const auto step = [&](const std::string& rows, int64_t data, int64_t micro_batch) {
    const std::string name = rows + std::to_string(data) + std::to_string(micro_batch);
    const std::string text = R"([model]
hf = "model"
[data]
seq_len = 8
shuffle = false
[train]
steps = 1
[optimizer]
name = "sgd"
[precision]
compute = "fp32"
[device]
threads = 1
[monitor]
tensorboard = false
)";
    const int64_t batch = rows == "two" ? 2 : 4;
    const RunMetrics metrics = run(parse_config(text, path("config.toml"),
                                                {"data.train=[\"" + path(rows + ".jsonl") + "\"]",
                                                 "train.global_batch=" + std::to_string(batch),
                                                 "train.micro_batch=" + std::to_string(micro_batch),
                                                 "parallel.data=" + std::to_string(data)}),
                                   name);
    return metrics.steps.at(0);
  };
  const StepRecord whole = step("two", 1, 2);
  EXPECT_NEAR(whole.loss, 0.260208, 1e-6);
  EXPECT_GT(whole.grad_norm, 0.1);
  for (const StepRecord& other : {step("two", 1, 1), step("two", 2, 1), step("four", 1, 1),
                                  step("four", 2, 1), step("four", 2, 2), step("four", 4, 1)}) {
    EXPECT_NEAR(other.loss, 0.260208, 1e-6);
    EXPECT_NEAR(other.grad_norm, whole.grad_norm, 1e-6 * whole.grad_norm);
    EXPECT_EQ(other.tokens, 8);
  }
}

TEST_F(Ranks, B44_TheLargestRankIsReportedAndAsPlanned) {
  for (const Layout& layout : {Layout{.data = 2}, Layout{.op = 2}, Layout{.data = 3, .zero = 1}}) {
    const RunMetrics metrics = run(on(layout, {"train.steps=2"}), layout.name());
    const Json plan = read_json_file(path(layout.name()) + "/plan.json");
    const Json::Array& ranks = plan.at("ranks").as_array();
    ASSERT_EQ(static_cast<int64_t>(ranks.size()), layout.data * layout.op);
    int64_t device = 0;
    int64_t host = 0;
    for (const Json& rank : ranks) {
      device = std::max(device, rank.at("device").at("peak_bytes").as_int());
      host = std::max(host, rank.at("host").at("peak_bytes").as_int());
    }
    EXPECT_EQ(metrics.steps[0].device_peak_bytes, device) << layout.name();
    EXPECT_EQ(metrics.steps[0].host_bytes, host) << layout.name();
    EXPECT_GT(metrics.steps[0].comm_ms, 0.0);
  }
}

TEST_F(Ranks, B66_EachThingIsRecordedOnce) {
  const RunMetrics metrics =
      run(on({.data = 3}, {"train.steps=4", "data.valid_fraction=0.1", "train.eval_every=2",
                           "checkpoint.every_steps=2", "monitor.trace_steps=[2]"}),
          "run");
  EXPECT_EQ(metrics.steps.size(), 4u);
  EXPECT_EQ(metrics.evals.size(), 2u);
  EXPECT_EQ(metrics.events.size(), 4u);  // start, two checkpoints, end
  const std::string lines = bytes_of(path("run") + "/metrics.jsonl");
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 4 + 2 + 4);
  const std::string log = bytes_of(path("run") + "/log.txt");
  EXPECT_EQ(log.find("weights drawn"), log.rfind("weights drawn"));
  const Json trace = read_json_file(path("run") + "/trace/step-2.json");
  bool comm = false;
  for (const Json& event : trace.at("traceEvents").as_array()) {
    const Json* args = event.find("args");
    const Json* op = args == nullptr ? nullptr : args->find("op");
    comm = comm || (op != nullptr && op->as_string() == "all_reduce");
  }
  EXPECT_TRUE(comm);
  for (const char* other : {"1", "2"}) {
    EXPECT_TRUE(fs::exists(path("run") + "/trace/step-2.rank-" + other + ".json"));
  }
}

TEST_F(Ranks, ARunContinuesUnderAnotherLayout) {
  const RunMetrics straight = run(on({}, {}), "straight");
  run(on({.data = 2, .zero = 1}, {"train.steps=2"}), "run");
  run(on({.op = 2}, {"train.steps=4"}), "run", "");
  const RunMetrics last = run(on({.data = 3}, {}), "run", "");
  expect_same_course(last, straight, 2e-5, "three layouts");
}

TEST_F(Ranks, ErrorsThatAllRanksMeetKeepTheirKind) {
  write_text("rows.jsonl", "{\"input_ids\":[1,2,3,4]}\n{\"input_ids\":[5,6,900]}\n");
  const std::string rows = "data.train=[\"" + path("rows.jsonl") + "\"]";
  EXPECT_THROW(run(on({.data = 2}, {rows}, 3), "rows"), InputError);
  EXPECT_THROW(run(on({.data = 2}, {}), "empty", ""), InputError);
  EXPECT_THROW(run(on({.data = 2}, {"memory.device=\"32KB\""}), "small"), ResourceError);
  run(on({.data = 2}, {"train.steps=1"}), "run");
  EXPECT_THROW(run(on({.data = 2}, {}), "run"), UsageError);
  EXPECT_THROW(run(on({.data = 2}, {"seed=8"}), "run", ""), UsageError);
}

TEST_F(Ranks, B37_AnAlarmStopsAllRanksAndTheRunCanGoOn) {
  const Layout layout{.data = 2, .op = 2};
  run(on(layout, {"train.steps=2"}, 3), "run");
  EXPECT_THROW(
      run(on(layout, {"train.steps=40", "optimizer.lr=1e30", "train.grad_clip=0"}, 3), "run", ""),
      AlarmError);
  for (const auto& entry : fs::directory_iterator(path("run") + "/checkpoints")) {
    const std::string name = entry.path().filename();
    EXPECT_TRUE(name.starts_with("step-") || name.starts_with("diagnostic-")) << name;
  }
  const RunMetrics again = run(on(layout, {"train.steps=4"}, 3), "run", "");
  EXPECT_EQ(again.steps.back().step, 4);
  EXPECT_TRUE(std::isfinite(again.steps.back().loss));
}

/// An alarm command that sends SIGTERM to the process of the run, once.
std::string sends_signal(const std::string& flag) {
  return "alarm.command=\"test -e " + flag + " || { touch " + flag + "; kill -TERM $PPID; }\"";
}

TEST_F(Ranks, B74_AllRanksStopAfterTheSameStepAndContinueFromIt) {
  for (const Layout& layout : {Layout{}, Layout{.data = 2}, Layout{.data = 2, .op = 2}}) {
    const std::string name = layout.name();
    const RunMetrics straight = run(on(layout, {}), name + "-straight");
    EXPECT_THROW(
        run(on(layout, {"alarm.grad_norm=1e-9", sends_signal(path(name + "-flag"))}), name),
        Interrupted);
    const RunMetrics stopped = read_metrics(path(name) + "/metrics.jsonl");
    // The command runs while step 1 is judged: one rank stops at once, several vote in step 2.
    const int64_t step = layout.data * layout.op == 1 ? 1 : 2;
    ASSERT_EQ(stopped.steps.back().step, step) << name;
    int saves = 0;
    for (const EventRecord& event : stopped.events) {
      saves += event.kind == EventKind::checkpoint ? 1 : 0;
    }
    EXPECT_EQ(saves, 1);
    EXPECT_TRUE(fs::exists(checkpoint(name, step)));
    const RunMetrics resumed = run(on(layout, {}), name, "");
    ASSERT_EQ(resumed.steps.size(), straight.steps.size());
    for (size_t i = 0; i < straight.steps.size(); ++i) {
      EXPECT_EQ(resumed.steps[i].loss, straight.steps[i].loss) << name << " step " << i + 1;
      EXPECT_EQ(resumed.steps[i].grad_norm, straight.steps[i].grad_norm);
    }
  }
}

}  // namespace
}  // namespace weft::test
