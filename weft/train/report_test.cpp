#include "weft/train/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <regex>
#include <string>

#include "weft/base/error.h"
#include "weft/io/test_folder.h"
#include "weft/train/metrics.h"
#include "weft/train/report_data.h"

namespace weft {
namespace {

StepRecord make_step(int64_t step, double loss) {
  StepRecord record;
  record.step = step;
  record.loss = loss;
  record.grad_norm = 0.5;
  record.lr = 1e-3;
  record.step_ms = step == 1 ? 500 : 40;
  record.compute_ms = 30;
  record.tokens_per_s = step == 1 ? 100 : 1000;
  record.tokens_total = 64 * step;
  record.device_peak_bytes = 4096;
  return record;
}

void write_text(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

constexpr std::string_view kPlan = R"({"fits":true,"world":1,
"model":{"parameters":1000,"active_parameters":1000,"flops_per_token":6000.0},
"ranks":[{"rank":0,"coords":{"data":0},
"device":{"budget":8192,"peak_bytes":4096,"weights":4000,"gradients":0,"optimizer":0,
"activations":0,"workspace":0,"prefetch":0,"inputs":32,"padding":64},
"host":{"budget":0,"peak_bytes":0},"nvme":{"budget":0,"peak_bytes":0}}]})";

constexpr std::string_view kTrace = R"({"displayTimeUnit":"ms","traceEvents":[
{"ph":"M","pid":0,"tid":0,"name":"thread_name","args":{"name":"phases"}},
{"ph":"M","pid":0,"tid":1,"name":"thread_name","args":{"name":"compute"}},
{"ph":"X","pid":0,"tid":0,"name":"forward 0","cat":"phase","ts":0.0,"dur":30.0},
{"ph":"X","pid":0,"tid":1,"name":"matmul a","cat":"forward","ts":0.0,"dur":10.0,"args":{"op":"matmul"}},
{"ph":"X","pid":0,"tid":1,"name":"rms_norm b","cat":"forward","ts":10.0,"dur":5.0,"args":{"op":"rms_norm"}},
{"ph":"X","pid":0,"tid":1,"name":"matmul c","cat":"forward","ts":15.0,"dur":15.0,"args":{"op":"matmul"}}]})";

void make_run(const TestFolder& folder) {
  MetricsWriter writer(folder.file("metrics.jsonl"));
  writer.event(
      EventKind::start, 0,
      Json::object({{"command", "weft train a.toml"}, {"environment", environment_json()}}));
  for (int64_t step = 1; step <= 5; ++step) writer.write(make_step(step, 5.0 / double(step)));
  writer.write(EvalRecord{5, 1.25, 3.49, 99});
  writer.event(EventKind::end, 5, Json::object({{"outcome", "done"}}));
  write_text(folder.file("plan.json"), kPlan);
  write_text(folder.file("config.toml"), "seed = 1234 # </script><b>\n");
  std::filesystem::create_directories(folder.file("trace"));
  write_text(folder.file("trace/step-2.json"), "{\"traceEvents\":[]}");
  write_text(folder.file("trace/step-10.json"), kTrace);
}

/// The document inside the page.
Json data_of(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const size_t begin = page.find(open) + open.size();
  return parse_json(page.substr(begin, page.find("</script>", begin) - begin), "page");
}

TEST(Report, HoldsEverySeriesAndFact) {
  const TestFolder folder;
  make_run(folder);
  write_report(folder.path());
  std::ifstream file(folder.file("report.html"));
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  const Json data = data_of(page);
  const Json& columns = data.at("series").at("columns");
  for (const char* name : {"step", "loss", "grad_norm", "lr", "tokens_per_s"}) {
    ASSERT_TRUE(columns.contains(name)) << name;
    EXPECT_EQ(columns.at(name).as_array().size(), 5u) << name;
  }
  EXPECT_FALSE(columns.contains("loss_scale"));  // the same at every step
  EXPECT_EQ(columns.at("loss").as_array()[3].as_double(), 1.25);
  EXPECT_EQ(data.at("evals").as_array()[0].as_array()[1].as_double(), 1.25);
  EXPECT_EQ(data.at("outcome").as_string(), "done");
  EXPECT_EQ(data.at("command").as_string(), "weft train a.toml");
  EXPECT_EQ(data.at("environment").at("weft").as_string(), WEFT_VERSION);
  EXPECT_EQ(data.at("config").as_string(), "seed = 1234 # </script><b>\n");
  EXPECT_EQ(data.at("memory").at("ranks").as_array()[0].at("device").at("weights").as_int(), 4000);
  EXPECT_EQ(data.at("memory").at("used").at("device").as_int(), 4096);
  EXPECT_EQ(data.at("timeline").at("step").as_int(), 10);
}

TEST(Report, LoadsNothingFromOutside) {
  const TestFolder folder;
  make_run(folder);
  const std::string page = report_html(folder.path());
  EXPECT_NE(page.find("Content-Security-Policy\" content=\"default-src 'none'"), std::string::npos);
  EXPECT_NE(page.find("Dygraph"), std::string::npos);
  EXPECT_EQ(page.find("sourceMappingURL"), std::string::npos);
  for (const char* loads :
       {"<script src", "<iframe", "<img", "@import", "url(", "import(", "fetch("}) {
    EXPECT_EQ(page.find(loads), std::string::npos) << loads;
  }
  const std::regex reference(R"((src|href)\s*=\s*["']?\s*(https?:)?//)", std::regex::icase);
  EXPECT_FALSE(std::regex_search(page, reference));
  // The only link of the page is the empty icon.
  EXPECT_EQ(page.find("<link rel=\"icon\" href=\"data:,\">"), page.find("<link"));
  EXPECT_EQ(page.find("<link"), page.rfind("<link"));
}

TEST(Report, TextOfTheRunCannotLeaveItsElement) {
  const TestFolder folder;
  make_run(folder);
  const std::string page = report_html(folder.path());
  EXPECT_EQ(page.find("</script><b>"), std::string::npos);
}

TEST(Report, RunWithMetricsOnlyStillGivesAPage) {
  const TestFolder folder;
  MetricsWriter(folder.file("metrics.jsonl"))
      .write(make_step(1, std::numeric_limits<double>::quiet_NaN()));
  const Json data = data_of(report_html(folder.path()));
  EXPECT_EQ(data.at("series").at("columns").at("loss").as_array()[0].as_string(), "nan");
  EXPECT_TRUE(data.at("timeline").is_null());
  EXPECT_TRUE(data.at("memory").at("ranks").as_array().empty());
}

TEST(Report, WithoutMetricsIsAnInputError) {
  const TestFolder folder;
  EXPECT_THROW(report_html(folder.path()), InputError);
}

TEST(ReportData, MeansLeaveOutWarmUpAndSkippedSteps) {
  RunMetrics metrics;
  metrics.events = {{EventKind::start, 0, 1, nullptr}, {EventKind::resume, 3, 2, nullptr}};
  for (int64_t step = 1; step <= 6; ++step) metrics.steps.push_back(make_step(step, 1));
  metrics.steps[3].step_ms = 700;  // first after the resume
  metrics.steps[4].step_ms = 10;
  metrics.steps[4].skipped = true;
  metrics.evals = {{2, 1.5, 4, 9}, {4, 1.25, 3, 9}, {6, 1.75, 5, 9}};
  const Json json = run_summary_json(metrics);
  EXPECT_EQ(json.at("step_ms").as_double(), 40);
  EXPECT_EQ(json.at("tokens_per_s").as_double(), 1000);
  EXPECT_EQ(json.at("skipped").as_int(), 1);
  EXPECT_EQ(json.at("resumes").as_int(), 1);
  EXPECT_EQ(json.at("best_eval_step").as_int(), 4);
  EXPECT_EQ(json.at("eval_loss").as_double(), 1.75);
  EXPECT_EQ(step_parts_json(metrics).as_array()[0].as_array()[1].as_double(), 30);
}

TEST(ReportData, LoadsOfExpertsAreSharesOfAnEvenOne) {
  RunMetrics metrics;
  for (int64_t step = 1; step <= 60; ++step) {
    StepRecord record = make_step(step, 1.0);
    record.has_experts = true;
    record.expert_tokens = {{3, 1, 0, 0}, {1, 1, 1, 1}};
    if (step == 1) record.expert_tokens = {{0, 0, 0, 100}, {100, 0, 0, 0}};  // long ago
    metrics.steps.push_back(record);
  }
  const Json load = expert_load_json(metrics.steps);
  EXPECT_EQ(load.at("steps").as_int(), 50);
  EXPECT_EQ(load.at("layers").dump(), "[[3.0,1.0,0.0,0.0],[1.0,1.0,1.0,1.0]]");
  EXPECT_TRUE(expert_load_json({make_step(1, 1.0)}).is_null());
}

TEST(ReportData, LongRunsBecomeBucketsWithTheirExtremes) {
  std::vector<StepRecord> steps;
  for (int64_t step = 1; step <= 2 * kMaxPoints + 1; ++step) steps.push_back(make_step(step, 1));
  steps[1].loss = 7;  // a spike of one step survives
  steps[5].loss = std::numeric_limits<double>::infinity();
  const Json json = series_json(steps);
  EXPECT_EQ(json.at("bucket").as_int(), 3);
  const auto& x = json.at("columns").at("step").as_array();
  const auto& loss = json.at("columns").at("loss").as_array();
  ASSERT_EQ(x.size(), 2667u);
  EXPECT_EQ(x[0].as_int(), 3);
  EXPECT_EQ(x.back().as_int(), 2 * kMaxPoints + 1);
  EXPECT_EQ(loss[0].dump(), "[1.0,3.0,7.0]");
  EXPECT_EQ(loss[1].dump(), "[1.0,1.0,1.0]");
}

TEST(ReportData, TimelineKeepsLanesAndSumsOperators) {
  const Json json = timeline_json(parse_json(kTrace, "trace"), 10, "step-10.json");
  EXPECT_EQ(json.at("by_op").dump(), R"([["matmul",25.0,2],["rms_norm",5.0,1]])");
  const auto& lanes = json.at("lanes").as_array();
  ASSERT_EQ(lanes.size(), 2u);
  EXPECT_EQ(lanes[0].at("name").as_string(), "phases");
  EXPECT_EQ(lanes[1].at("name").as_string(), "compute");
  EXPECT_EQ(lanes[1].at("events").as_array()[2].dump(), "[15.0,15.0,3,0]");
  EXPECT_EQ(json.at("names").as_array()[3].as_string(), "matmul c");
  EXPECT_EQ(json.at("phases").as_array()[0].as_string(), "forward");
  EXPECT_EQ(json.at("left_out").as_int(), 0);
  EXPECT_EQ(json.at("by_lane").dump(), R"([["compute",30.0,null]])");
}

TEST(ReportData, LanesStandBesideTheirPlan) {
  Json trace = parse_json(kTrace, "trace");
  Json events = trace.at("traceEvents");
  for (const double length : {4.0, 3.0}) {
    Json planned = events.as_array()[3];
    planned.set("pid", 1).set("dur", length);
    events.push(std::move(planned));
  }
  trace.set("traceEvents", std::move(events));
  const Json json = timeline_json(trace, 10, "step-10.json");
  EXPECT_EQ(json.at("by_lane").dump(), R"([["compute",30.0,7.0]])");
  EXPECT_EQ(json.at("lanes").as_array().size(), 2u);
}

}  // namespace
}  // namespace weft
