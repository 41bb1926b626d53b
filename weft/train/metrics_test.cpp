#include "weft/train/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "weft/base/error.h"
#include "weft/io/test_folder.h"

namespace weft {
namespace {

StepRecord make_step(int64_t step, double loss) {
  StepRecord record;
  record.step = step;
  record.loss = loss;
  return record;
}

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void append_text(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary | std::ios::app) << text;
}

TEST(Metrics, StepRecordHasEveryMemberAndRoundTrips) {
  StepRecord record = make_step(7, 1.5);
  record.grad_norm = 0.25;
  record.skipped = true;
  record.tokens = 4096;
  record.nvme_write_bytes = int64_t{1} << 40;
  const Json json = to_json(record);
  const char* expected[] = {"type",
                            "step",
                            "loss",
                            "grad_norm",
                            "lr",
                            "loss_scale",
                            "skipped",
                            "tokens",
                            "tokens_total",
                            "samples_total",
                            "epoch",
                            "step_ms",
                            "tokens_per_s",
                            "mfu",
                            "compute_ms",
                            "comm_ms",
                            "comm_exposed_ms",
                            "copy_exposed_ms",
                            "io_exposed_ms",
                            "update_ms",
                            "data_ms",
                            "device_peak_bytes",
                            "host_bytes",
                            "nvme_bytes",
                            "nvme_read_bytes",
                            "nvme_write_bytes"};
  std::vector<std::string> names;
  for (const auto& [name, value] : json.as_object()) names.push_back(name);
  EXPECT_EQ(names, std::vector<std::string>(std::begin(expected), std::end(expected)));

  const StepRecord back = step_record(parse_json(json.dump(), "test"));
  EXPECT_EQ(to_json(back).dump(), json.dump());
  EXPECT_EQ(back.nvme_write_bytes, int64_t{1} << 40);
  EXPECT_TRUE(back.skipped);
}

TEST(Metrics, AStepThatWasNotAppliedSaysWhy) {
  EXPECT_FALSE(to_json(make_step(1, 0)).contains("overflow"));
  StepRecord record = make_step(1, 0);
  record.overflow = Overflow{"backward", "model.norm.weight", 3};
  const StepRecord back = step_record(parse_json(to_json(record).dump(), "test"));
  ASSERT_TRUE(back.overflow.has_value());
  EXPECT_EQ(back.overflow->pass, "backward");
  EXPECT_EQ(back.overflow->tensor, "model.norm.weight");
  EXPECT_EQ(back.overflow->rank, 3);
}

TEST(Metrics, ExpertMembersAppearOnlyWithExperts) {
  EXPECT_FALSE(to_json(make_step(1, 0)).contains("expert_tokens"));
  StepRecord record = make_step(1, 0);
  record.has_experts = true;
  record.aux_loss = 0.01;
  record.expert_tokens = {{3, 5}, {4, 4}};
  record.dropped_tokens = 2;
  const StepRecord back = step_record(parse_json(to_json(record).dump(), "test"));
  EXPECT_TRUE(back.has_experts);
  EXPECT_EQ(back.expert_tokens, record.expert_tokens);
  EXPECT_EQ(back.dropped_tokens, 2);
  EXPECT_EQ(back.aux_loss, 0.01);
}

TEST(Metrics, NonFiniteNumbersAreValidJsonStrings) {
  const TestFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  StepRecord record = make_step(1, std::numeric_limits<double>::quiet_NaN());
  record.grad_norm = std::numeric_limits<double>::infinity();
  MetricsWriter(path).write(record);

  const std::string text = read_all(path);
  EXPECT_NE(text.find("\"loss\":\"nan\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"grad_norm\":\"inf\""), std::string::npos) << text;
  EXPECT_EQ(parse_json(text.substr(0, text.size() - 1), "test").at("loss").as_string(), "nan");

  const RunMetrics metrics = read_metrics(path);
  ASSERT_EQ(metrics.steps.size(), 1u);
  EXPECT_TRUE(std::isnan(metrics.steps[0].loss));
  EXPECT_EQ(metrics.steps[0].grad_norm, std::numeric_limits<double>::infinity());
}

TEST(Metrics, B42_ResumeSupersedesTheStepsAfterItsCheckpoint) {
  const TestFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  {
    MetricsWriter writer(path);
    writer.event(EventKind::start, 0, Json::object({{"command", "weft train"}}));
    for (int64_t step = 1; step <= 8; ++step) writer.write(make_step(step, 100.0 + double(step)));
    writer.write(EvalRecord{4, 4.0, 54.6, 10});
    writer.write(EvalRecord{8, 8.0, 2981, 10});
    writer.event(EventKind::checkpoint, 5);
  }
  {
    MetricsWriter writer(path);
    writer.event(EventKind::resume, 5);
    for (int64_t step = 6; step <= 10; ++step) writer.write(make_step(step, 200.0 + double(step)));
  }
  const RunMetrics metrics = read_metrics(path);
  ASSERT_EQ(metrics.steps.size(), 10u);
  for (int64_t step = 1; step <= 10; ++step) {
    const StepRecord& record = metrics.steps[static_cast<size_t>(step - 1)];
    EXPECT_EQ(record.step, step);
    EXPECT_EQ(record.loss, (step <= 5 ? 100.0 : 200.0) + double(step));
  }
  ASSERT_EQ(metrics.evals.size(), 1u);
  EXPECT_EQ(metrics.evals[0].step, 4);
  ASSERT_EQ(metrics.events.size(), 3u);
  EXPECT_EQ(metrics.events[2].kind, EventKind::resume);
  EXPECT_EQ(metrics.events[2].step, 5);
  EXPECT_GT(metrics.events[2].time, 1e9);
  EXPECT_EQ(metrics.events[0].members.at("command").as_string(), "weft train");
}

TEST(Metrics, B42_StepsNotReachedAgainAreGone) {
  const TestFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  MetricsWriter writer(path);
  for (int64_t step = 1; step <= 8; ++step) writer.write(make_step(step, 1));
  writer.event(EventKind::resume, 5);
  writer.write(make_step(6, 2));
  EXPECT_EQ(read_metrics(path).steps.size(), 6u);
  writer.event(EventKind::start, 0);
  writer.write(make_step(1, 3));
  const RunMetrics metrics = read_metrics(path);
  ASSERT_EQ(metrics.steps.size(), 1u);
  EXPECT_EQ(metrics.steps[0].loss, 3);
}

TEST(Metrics, LastRecordOfAStepCountsWithoutAMark) {
  const TestFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  MetricsWriter writer(path);
  writer.write(make_step(1, 1));
  writer.write(make_step(1, 2));
  const RunMetrics metrics = read_metrics(path);
  ASSERT_EQ(metrics.steps.size(), 1u);
  EXPECT_EQ(metrics.steps[0].loss, 2);
}

TEST(Metrics, TornLastLineIsToleratedAndCutBeforeAppending) {
  const TestFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  MetricsWriter(path).write(make_step(1, 1));
  const std::string whole = read_all(path);
  append_text(path, "{\"type\":\"step\",\"step\":2,\"lo");
  const RunMetrics torn = read_metrics(path);
  EXPECT_TRUE(torn.torn);
  EXPECT_EQ(torn.steps.size(), 1u);

  MetricsWriter(path).write(make_step(2, 2));
  EXPECT_EQ(read_all(path), whole + to_json(make_step(2, 2)).dump() + "\n");
  EXPECT_FALSE(read_metrics(path).torn);
}

TEST(Metrics, CompleteLastLineWithoutLineFeedIsKept) {
  const TestFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  append_text(path, to_json(make_step(1, 1)).dump());
  EXPECT_EQ(read_metrics(path).steps.size(), 1u);
  MetricsWriter(path).write(make_step(2, 2));
  EXPECT_EQ(read_metrics(path).steps.size(), 2u);
}

TEST(Metrics, TailOfZerosLongerThanAChunkIsCut) {
  const TestFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  MetricsWriter(path).write(make_step(1, 1));
  append_text(path, std::string(200000, '\0'));
  MetricsWriter(path).write(make_step(2, 2));
  EXPECT_EQ(read_metrics(path).steps.size(), 2u);
}

TEST(Metrics, DamageBeforeTheLastLineNamesItsLine) {
  const TestFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  MetricsWriter(path).write(make_step(1, 1));
  append_text(path, "{\"type\":\"st\n");
  append_text(path, to_json(make_step(2, 2)).dump() + "\n");
  try {
    read_metrics(path);
    FAIL() << "a damaged line was accepted";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("metrics.jsonl:2]"), std::string::npos)
        << error.what();
  }
}

TEST(Metrics, UnknownTypesAndMembersAreIgnored) {
  const TestFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  append_text(path, "{\"type\":\"later\",\"x\":1}\n{\"type\":\"step\",\"step\":3,\"new\":[1]}\n");
  const RunMetrics metrics = read_metrics(path);
  ASSERT_EQ(metrics.steps.size(), 1u);
  EXPECT_EQ(metrics.steps[0].step, 3);
}

TEST(Metrics, ReservedEventMemberIsRefused) {
  EXPECT_THROW(to_json(EventRecord{EventKind::end, 1, 1, Json::object({{"step", 2}})}), BugError);
}

}  // namespace
}  // namespace weft
