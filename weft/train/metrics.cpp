#include "weft/train/metrics.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <map>
#include <utility>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr EventKind kEvents[] = {EventKind::start, EventKind::resume, EventKind::checkpoint,
                                 EventKind::alarm, EventKind::end};
constexpr int64_t kMaxFile = int64_t{1} << 36;

// The one list of members: writing and reading both walk it.
template <class Record, class Visit>
void each_step_member(Record& r, Visit visit) {
  visit("step", r.step);
  visit("loss", r.loss);
  visit("grad_norm", r.grad_norm);
  visit("lr", r.lr);
  visit("loss_scale", r.loss_scale);
  visit("skipped", r.skipped);
  visit("tokens", r.tokens);
  visit("tokens_total", r.tokens_total);
  visit("samples_total", r.samples_total);
  visit("epoch", r.epoch);
  visit("step_ms", r.step_ms);
  visit("tokens_per_s", r.tokens_per_s);
  visit("mfu", r.mfu);
  visit("compute_ms", r.compute_ms);
  visit("comm_ms", r.comm_ms);
  visit("comm_exposed_ms", r.comm_exposed_ms);
  visit("copy_exposed_ms", r.copy_exposed_ms);
  visit("io_exposed_ms", r.io_exposed_ms);
  visit("update_ms", r.update_ms);
  visit("data_ms", r.data_ms);
  visit("device_peak_bytes", r.device_peak_bytes);
  visit("host_bytes", r.host_bytes);
  visit("nvme_bytes", r.nvme_bytes);
  visit("nvme_read_bytes", r.nvme_read_bytes);
  visit("nvme_write_bytes", r.nvme_write_bytes);
}

template <class Record, class Visit>
void each_eval_member(Record& r, Visit visit) {
  visit("step", r.step);
  visit("loss", r.loss);
  visit("perplexity", r.perplexity);
  visit("tokens", r.tokens);
}

void read_value(const Json& json, int64_t& value) { value = json.as_int(); }
void read_value(const Json& json, bool& value) { value = json.as_bool(); }
void read_value(const Json& json, double& value) {
  if (!json.is_string()) {
    value = json.as_double();
    return;
  }
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const std::string& text = json.as_string();
  if (text == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (text == "inf" || text == "-inf") {
    value = text == "inf" ? kInf : -kInf;
  } else {
    throw InputError("metrics", fmt::format("got \"{}\", expected a number or one of \"nan\", "
                                            "\"inf\", \"-inf\"",
                                            text));
  }
}

auto reader(const Json& json) {
  return [&json](const char* name, auto& value) {
    if (const Json* member = json.find(name)) read_value(*member, value);
  };
}

auto writer(Json& json) {
  return [&json](const char* name, const auto& value) { json.set(name, value); };
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool is_json_object(std::string_view text) {
  try {
    return parse_json(text, "metrics").is_object();
  } catch (const InputError&) {
    return false;
  }
}

/// Offset of the text after the last line feed.
int64_t last_line_start(File& file, int64_t size) {
  constexpr int64_t kChunk = 1 << 16;
  std::string chunk;
  for (int64_t end = size; end > 0; end -= static_cast<int64_t>(chunk.size())) {
    chunk.resize(static_cast<size_t>(std::min(kChunk, end)));
    const int64_t begin = end - static_cast<int64_t>(chunk.size());
    file.read_at(begin, chunk.data(), static_cast<int64_t>(chunk.size()));
    const size_t found = chunk.rfind('\n');
    if (found != std::string::npos) return begin + static_cast<int64_t>(found) + 1;
  }
  return 0;
}

File open_for_append(const std::string& path, FileSystem& files) {
  return files.open(path, files.is_file(path) ? OpenMode::update : OpenMode::create);
}

/// Collects records while applying the rule of superseded ones.
class Collector {
 public:
  void add(const Json& json) {
    const std::string& type = json.at("type").as_string();
    if (type == "step") {
      StepRecord record = step_record(json);
      steps_[record.step] = std::move(record);
    } else if (type == "eval") {
      const EvalRecord record = eval_record(json);
      evals_[record.step] = record;
    } else {
      for (EventKind kind : kEvents) {
        if (type == event_name(kind)) add_event(kind, json);
      }
    }
  }

  RunMetrics take() {
    RunMetrics metrics;
    for (auto& [step, record] : steps_) metrics.steps.push_back(std::move(record));
    for (auto& [step, record] : evals_) metrics.evals.push_back(record);
    metrics.events = std::move(events_);
    return metrics;
  }

 private:
  void add_event(EventKind kind, const Json& json) {
    EventRecord event{kind, 0, 0, Json::object()};
    for (const auto& [name, value] : json.as_object()) {
      if (name == "step") {
        event.step = value.as_int();
      } else if (name == "time") {
        event.time = value.as_double();
      } else if (name != "type") {
        event.members.set(name, value);
      }
    }
    if (kind == EventKind::start) event.step = 0;
    if (kind == EventKind::start || kind == EventKind::resume) {
      steps_.erase(steps_.upper_bound(event.step), steps_.end());
      evals_.erase(evals_.upper_bound(event.step), evals_.end());
      if (kind == EventKind::start) evals_.clear();
    }
    events_.push_back(std::move(event));
  }

  std::map<int64_t, StepRecord> steps_;
  std::map<int64_t, EvalRecord> evals_;
  std::vector<EventRecord> events_;
};

}  // namespace

std::string_view event_name(EventKind kind) {
  switch (kind) {
    case EventKind::start: return "start";
    case EventKind::resume: return "resume";
    case EventKind::checkpoint: return "checkpoint";
    case EventKind::alarm: return "alarm";
    case EventKind::end: return "end";
  }
  throw BugError("metrics", fmt::format("unknown event kind {}", static_cast<int>(kind)));
}

Json to_json(const StepRecord& record) {
  Json json = Json::object({{"type", "step"}});
  each_step_member(record, writer(json));
  if (const auto& overflow = record.overflow) {
    json.set("overflow", Json::object({{"pass", overflow->pass},
                                       {"tensor", overflow->tensor},
                                       {"rank", overflow->rank}}));
  }
  if (record.has_experts) {
    Json layers = Json::array();
    for (const auto& layer : record.expert_tokens) layers.push(Json(layer));
    json.set("aux_loss", record.aux_loss);
    json.set("expert_tokens", std::move(layers));
    json.set("dropped_tokens", record.dropped_tokens);
  }
  return json;
}

Json to_json(const EvalRecord& record) {
  Json json = Json::object({{"type", "eval"}});
  each_eval_member(record, writer(json));
  return json;
}

Json to_json(const EventRecord& record) {
  Json json = Json::object(
      {{"type", event_name(record.kind)}, {"step", record.step}, {"time", record.time}});
  if (!record.members.is_null()) {
    for (const auto& [name, value] : record.members.as_object()) {
      if (json.contains(name)) {
        throw BugError("metrics", fmt::format("event member \"{}\" is reserved", name));
      }
      json.set(name, value);
    }
  }
  return json;
}

StepRecord step_record(const Json& json) {
  StepRecord record;
  each_step_member(record, reader(json));
  if (const Json* overflow = json.find("overflow")) {
    record.overflow = Overflow{overflow->at("pass").as_string(), overflow->at("tensor").as_string(),
                               overflow->at("rank").as_int()};
  }
  if (const Json* layers = json.find("expert_tokens")) {
    record.has_experts = true;
    reader(json)("aux_loss", record.aux_loss);
    reader(json)("dropped_tokens", record.dropped_tokens);
    for (const Json& layer : layers->as_array()) {
      auto& counts = record.expert_tokens.emplace_back();
      for (const Json& count : layer.as_array()) counts.push_back(count.as_int());
    }
  }
  return record;
}

EvalRecord eval_record(const Json& json) {
  EvalRecord record;
  each_eval_member(record, reader(json));
  return record;
}

MetricsWriter::MetricsWriter(std::string path, FileSystem& files)
    : file_(open_for_append(path, files)) {
  const int64_t size = file_.size();
  const int64_t start = last_line_start(file_, size);
  end_ = size;
  if (start == size) return;
  std::string tail(static_cast<size_t>(size - start), '\0');
  file_.read_at(start, tail.data(), size - start);
  if (is_json_object(tail)) {
    file_.write_at(size, "\n", 1);
    end_ = size + 1;
    return;
  }
  std::error_code failed;
  std::filesystem::resize_file(path, static_cast<uintmax_t>(start), failed);
  if (failed) {
    throw ResourceError(path, fmt::format("got \"{}\" when cutting off a torn last line, expected "
                                          "a writable file; try checking its permissions",
                                          failed.message()));
  }
  end_ = start;
}

void MetricsWriter::write(const StepRecord& record) { append(to_json(record)); }
void MetricsWriter::write(const EvalRecord& record) { append(to_json(record)); }
void MetricsWriter::write(EventRecord record) {
  if (record.time == 0) record.time = unix_seconds();
  append(to_json(record));
}
void MetricsWriter::event(EventKind kind, int64_t step, Json members) {
  write(EventRecord{kind, step, 0, std::move(members)});
}
void MetricsWriter::sync() { file_.sync(); }

void MetricsWriter::append(const Json& json) {
  const std::string line = json.dump() + '\n';
  file_.write_at(end_, line.data(), static_cast<int64_t>(line.size()));
  end_ += static_cast<int64_t>(line.size());
}

RunMetrics read_metrics(const std::string& path) {
  const std::string text = posix_files().read_text(path, kMaxFile);
  Collector collector;
  bool torn = false;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find('\n', begin);
    const bool last = end == std::string::npos;
    if (last) end = text.size();
    const std::string_view line(text.data() + begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.empty()) continue;
    if (last && !is_json_object(line)) {
      torn = true;
      break;
    }
    const std::string where = fmt::format("{}:{}", path, number);
    try {
      collector.add(parse_json(line, where));
    } catch (const InputError& error) {
      throw InputError(where, fmt::format("got a damaged record ({}), expected one JSON object a "
                                          "line; try removing that line",
                                          error.what()));
    }
  }
  RunMetrics metrics = collector.take();
  metrics.torn = torn;
  return metrics;
}

}  // namespace weft
