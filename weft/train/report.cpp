#include "weft/train/report.h"

#include <fmt/core.h>

#include <charconv>
#include <filesystem>

#include "weft/base/error.h"
#include "weft/io/file.h"
#include "weft/train/metrics.h"
#include "weft/train/report_data.h"

namespace weft {

// Embedded at build time.
extern const std::string_view kDygraphsScript;
extern const std::string_view kReportScript;
extern const std::string_view kReportStyle;

namespace {

// Whatever a file of the run holds, the page loads nothing.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:";

std::string html_text(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

/// JSON for a script element: "<" could end it.
std::string script_json(const Json& json) {
  std::string out;
  for (char c : json.dump()) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

/// Without the comment that names a source map, which browsers would try to load.
std::string without_source_map(std::string_view script) {
  const size_t at = script.rfind("//# sourceMappingURL=");
  return std::string(script.substr(0, at));
}

std::string run_name(const std::string& run_dir) {
  const std::string name = std::filesystem::absolute(run_dir).lexically_normal().string();
  return file_name(name);
}

/// A line about an event for people.
std::string event_text(const EventRecord& event) {
  std::string text;
  for (const char* name : {"kind", "message", "outcome", "checkpoint", "path"}) {
    const Json* member = event.members.find(name);
    if (member == nullptr || !member->is_string() || member->as_string().empty()) continue;
    if (!text.empty()) text += ": ";
    text += member->as_string();
  }
  return text;
}

Json events_json(const RunMetrics& metrics) {
  Json json = Json::array();
  for (const EventRecord& event : metrics.events) {
    json.push(Json::object({{"kind", event_name(event.kind)},
                            {"step", event.step},
                            {"time", event.time},
                            {"text", event_text(event)}}));
  }
  return json;
}

Json evals_json(const RunMetrics& metrics) {
  Json json = Json::array();
  for (const EvalRecord& eval : metrics.evals) {
    json.push(Json::array().push(eval.step).push(eval.loss).push(eval.perplexity));
  }
  return json;
}

void add_run_facts(Json& data, const RunMetrics& metrics) {
  data.set("environment", Json::object());
  data.set("command", "");
  data.set("outcome", "");
  for (const EventRecord& event : metrics.events) {
    if (event.kind == EventKind::start || event.kind == EventKind::resume) {
      const Json* environment = event.members.find("environment");
      const Json* command = event.members.find("command");
      if (environment != nullptr && environment->is_object()) data.set("environment", *environment);
      if (command != nullptr && command->is_string()) data.set("command", *command);
      data.set("outcome", "");
    }
    if (event.kind == EventKind::end) {
      const Json* outcome = event.members.find("outcome");
      data.set("outcome", outcome != nullptr && outcome->is_string() ? *outcome : Json("done"));
    }
  }
}

void add_plan(Json& data, FileSystem& files, const std::string& run_dir,
              const RunMetrics& metrics) {
  Json plan = Json::object(), used = Json::object(), ranks = Json::array();
  const std::string path = join_path(run_dir, "plan.json");
  if (files.is_file(path)) {
    const Json document = read_json_file(path);
    const Json& model = document.at("model");
    plan.set("parameters", model.at("parameters"));
    plan.set("flops_per_token", model.at("flops_per_token"));
    plan.set("world", document.at("world"));
    ranks = document.at("ranks");
    const auto& all = ranks.as_array();
    if (!all.empty()) {
      Json summary = data.at("summary");
      summary.set("planned_device_bytes", all[0].at("device").at("peak_bytes"));
      data.set("summary", std::move(summary));
    }
    if (!metrics.steps.empty()) {
      const StepRecord& last = metrics.steps.back();
      used.set("device", last.device_peak_bytes);
      used.set("host", last.host_bytes);
      used.set("nvme", last.nvme_bytes);
    }
  }
  data.set("plan", std::move(plan));
  data.set("memory", Json::object({{"ranks", std::move(ranks)}, {"used", std::move(used)}}));
}

/// The newest trace/step-N.json.
Json newest_timeline(FileSystem& files, const std::string& run_dir) {
  const std::string folder = join_path(run_dir, "trace");
  if (!files.is_folder(folder)) return nullptr;
  constexpr std::string_view kHead = "step-", kTail = ".json";
  int64_t newest = -1;
  std::string newest_name;
  for (const std::string& name : files.list(folder)) {
    if (!name.starts_with(kHead) || !name.ends_with(kTail)) continue;
    int64_t step = -1;
    const char* end = name.data() + name.size() - kTail.size();
    const auto [stop, failed] = std::from_chars(name.data() + kHead.size(), end, step);
    if (failed != std::errc() || stop != end || step <= newest) continue;
    newest = step;
    newest_name = name;
  }
  if (newest < 0) return nullptr;
  return timeline_json(read_json_file(join_path(folder, newest_name)), newest, newest_name);
}

Json report_data(const std::string& run_dir) {
  FileSystem& files = posix_files();
  const RunMetrics metrics = read_metrics(join_path(run_dir, "metrics.jsonl"));
  Json data = Json::object({{"title", run_name(run_dir)}});
  add_run_facts(data, metrics);
  data.set("summary", run_summary_json(metrics));
  data.set("series", series_json(metrics.steps));
  data.set("evals", evals_json(metrics));
  data.set("events", events_json(metrics));
  data.set("parts", step_parts_json(metrics));
  data.set("experts", expert_load_json(metrics.steps));
  add_plan(data, files, run_dir, metrics);
  data.set("timeline", newest_timeline(files, run_dir));
  const std::string config = join_path(run_dir, "config.toml");
  data.set("config", files.is_file(config) ? files.read_text(config) : std::string());
  return data;
}

}  // namespace

std::string report_html(const std::string& run_dir) {
  const Json data = report_data(run_dir);
  std::string page = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  page += fmt::format("<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n", kPolicy);
  page += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  page += fmt::format("<title>{} – weft</title>\n", html_text(data.at("title").as_string()));
  page += "<link rel=\"icon\" href=\"data:,\">\n<style>\n";
  page += kReportStyle;
  page +=
      "</style>\n</head>\n<body>\n<main></main>\n<script type=\"application/json\" id=\"data\">";
  page += script_json(data);
  page += "</script>\n<script>\n";
  page += without_source_map(kDygraphsScript);
  page += "\n</script>\n<script>\n";
  page += kReportScript;
  page += "</script>\n</body>\n</html>\n";
  return page;
}

void write_report(const std::string& run_dir) {
  FileSystem& files = posix_files();
  const std::string path = join_path(run_dir, "report.html");
  files.write_text(path + ".tmp", report_html(run_dir));
  files.rename(path + ".tmp", path);
}

}  // namespace weft
