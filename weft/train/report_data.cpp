#include "weft/train/report_data.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <set>

namespace weft {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Column {
  const char* name;
  double (*value)(const StepRecord&);
  bool always;  // also when it is the same at every step
};

constexpr Column kColumns[] = {
    {"loss", [](const StepRecord& r) { return r.loss; }, true},
    {"grad_norm", [](const StepRecord& r) { return r.grad_norm; }, true},
    {"lr", [](const StepRecord& r) { return r.lr; }, true},
    {"tokens_per_s", [](const StepRecord& r) { return r.tokens_per_s; }, true},
    {"mfu", [](const StepRecord& r) { return r.mfu; }, false},
    {"loss_scale", [](const StepRecord& r) { return r.loss_scale; }, false},
    {"aux_loss", [](const StepRecord& r) { return r.aux_loss; }, false},
    {"dropped_tokens", [](const StepRecord& r) { return static_cast<double>(r.dropped_tokens); },
     false},
};

struct Part {
  const char* name;
  double StepRecord::*value;
};

constexpr Part kParts[] = {
    {"compute lane", &StepRecord::compute_ms},
    {"update", &StepRecord::update_ms},
    {"reading data", &StepRecord::data_ms},
    {"waiting for communication", &StepRecord::comm_exposed_ms},
    {"waiting for host copies", &StepRecord::copy_exposed_ms},
    {"waiting for NVMe", &StepRecord::io_exposed_ms},
};

/// Six digits are more than a curve shows and keep the page small.
double rounded(double value) {
  if (!std::isfinite(value)) return value;
  return std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr);
}

bool says_something(const std::vector<StepRecord>& steps, const Column& column) {
  if (column.always || steps.empty()) return column.always;
  const double first = column.value(steps.front());
  return std::any_of(steps.begin(), steps.end(), [&](const StepRecord& r) {
    const double value = column.value(r);
    return value != first && !(std::isnan(value) && std::isnan(first));
  });
}

Json bucket_json(const std::vector<StepRecord>& steps, size_t begin, size_t end,
                 const Column& column) {
  double least = kNan, greatest = kNan, sum = 0;
  int64_t count = 0;
  for (size_t i = begin; i < end; ++i) {
    const double value = column.value(steps[i]);
    if (!std::isfinite(value)) continue;
    least = std::fmin(least, value);
    greatest = std::fmax(greatest, value);
    sum += value;
    ++count;
  }
  const double mean = count == 0 ? kNan : sum / static_cast<double>(count);
  return Json::array().push(rounded(least)).push(rounded(mean)).push(rounded(greatest));
}

/// Steps that count in means.
std::vector<const StepRecord*> steady_steps(const RunMetrics& metrics) {
  std::set<int64_t> warm_up;
  for (const EventRecord& event : metrics.events) {
    if (event.kind == EventKind::start || event.kind == EventKind::resume) {
      warm_up.insert(event.step + 1);
    }
  }
  std::vector<const StepRecord*> steady;
  for (const StepRecord& record : metrics.steps) {
    if (!record.skipped && !warm_up.contains(record.step)) steady.push_back(&record);
  }
  if (steady.empty() && !metrics.steps.empty()) steady.push_back(&metrics.steps.back());
  return steady;
}

double mean_of(const std::vector<const StepRecord*>& steps, double StepRecord::*value) {
  double sum = 0;
  for (const StepRecord* record : steps) sum += record->*value;
  return steps.empty() ? 0 : sum / static_cast<double>(steps.size());
}

void add_totals(Json& json, const RunMetrics& metrics) {
  int64_t skipped = 0;
  double total_ms = 0;
  for (const StepRecord& record : metrics.steps) {
    skipped += record.skipped ? 1 : 0;
    total_ms += record.step_ms;
  }
  const StepRecord& last = metrics.steps.back();
  const std::vector<const StepRecord*> steady = steady_steps(metrics);
  json.set("last_step", last.step);
  json.set("skipped", skipped);
  json.set("first_loss", metrics.steps.front().loss);
  json.set("last_loss", last.loss);
  json.set("tokens_total", last.tokens_total);
  json.set("epoch", last.epoch);
  json.set("train_s", total_ms * 1e-3);
  json.set("step_ms", mean_of(steady, &StepRecord::step_ms));
  json.set("tokens_per_s", mean_of(steady, &StepRecord::tokens_per_s));
  json.set("mfu", mean_of(steady, &StepRecord::mfu));
  json.set("device_peak_bytes", last.device_peak_bytes);
  json.set("host_bytes", last.host_bytes);
  json.set("nvme_bytes", last.nvme_bytes);
}

void add_evals(Json& json, const std::vector<EvalRecord>& evals) {
  const auto best =
      std::min_element(evals.begin(), evals.end(), [](const EvalRecord& a, const EvalRecord& b) {
        return a.loss < b.loss || (std::isnan(b.loss) && !std::isnan(a.loss));
      });
  json.set("eval_step", evals.back().step);
  json.set("eval_loss", evals.back().loss);
  json.set("eval_perplexity", evals.back().perplexity);
  json.set("best_eval_step", best->step);
  json.set("best_eval_loss", best->loss);
}

/// Small numbers for texts, in the order of their first use.
class Names {
 public:
  int64_t index(const std::string& text) {
    const auto [found, added] = index_.try_emplace(text, static_cast<int64_t>(names_.size()));
    if (added) names_.push_back(text);
    return found->second;
  }
  Json json() const { return Json(names_); }

 private:
  std::map<std::string, int64_t> index_;
  std::vector<std::string> names_;
};

struct Span {
  double begin = 0, length = 0;
  int64_t name = 0, phase = 0;
};

class TimelineReader {
 public:
  explicit TimelineReader(const Json::Array& events) {
    std::set<int64_t> processes;
    for (const Json& event : events) processes.insert(event.at("pid").as_int());
    if (processes.empty()) return;
    // The rank, and behind it the rank as it was planned.
    rank_ = *processes.begin();
    const int64_t planned = processes.size() > 1 ? *std::next(processes.begin()) : -1;
    for (const Json& event : events) {
      const int64_t process = event.at("pid").as_int();
      if (process == rank_) add(event);
      if (process == planned) add_planned(event);
    }
  }

  Json build(int64_t step, const std::string& file) {
    const double least = shortest_kept();
    int64_t left_out = 0;
    Json lanes = Json::array();
    for (const auto& [thread, spans] : spans_) {
      Json events = Json::array();
      for (const Span& span : spans) {
        if (span.length < least) {
          ++left_out;
          continue;
        }
        events.push(Json::array()
                        .push(rounded(span.begin))
                        .push(rounded(span.length))
                        .push(span.name)
                        .push(span.phase));
      }
      lanes.push(Json::object({{"name", lane_names_[thread]}, {"events", std::move(events)}}));
    }
    return Json::object({{"step", step},
                         {"file", file},
                         {"rank", rank_},
                         {"names", names_.json()},
                         {"phases", phases_.json()},
                         {"lanes", std::move(lanes)},
                         {"by_op", by_op()},
                         {"by_lane", by_lane()},
                         {"left_out", left_out}});
  }

 private:
  void add(const Json& event) {
    const std::string& kind = event.at("ph").as_string();
    const int64_t thread = event.at("tid").as_int();
    const std::string& name = event.at("name").as_string();
    if (kind == "M" && name == "thread_name") {
      lane_names_[thread] = event.at("args").at("name").as_string();
    }
    if (kind != "X") return;
    const Json* args = event.find("args");
    const Json* op = args == nullptr ? nullptr : args->find("op");
    // A phase is named "forward 3": its color is that of "forward".
    const std::string phase =
        op == nullptr ? name.substr(0, name.find(' ')) : event.at("cat").as_string();
    const double length = event.at("dur").as_double();
    spans_[thread].push_back(
        {event.at("ts").as_double(), length, names_.index(name), phases_.index(phase)});
    if (op != nullptr) {
      auto& [total, count] = ops_[op->as_string()];
      total += length;
      ++count;
    }
  }

  void add_planned(const Json& event) {
    const Json* args = event.find("args");
    if (event.at("ph").as_string() != "X" || args == nullptr || !args->contains("op")) return;
    planned_[event.at("tid").as_int()] += event.at("dur").as_double();
  }

  /// Lane, microseconds it worked, microseconds planned (null when the trace has no plan).
  Json by_lane() const {
    Json json = Json::array();
    for (const auto& [thread, spans] : spans_) {
      if (lane_names_.at(thread) == "phases") continue;
      double busy = 0;
      for (const Span& span : spans) busy += span.length;
      const auto planned = planned_.find(thread);
      json.push(
          Json::array()
              .push(lane_names_.at(thread))
              .push(rounded(busy))
              .push(planned == planned_.end() ? Json(nullptr) : Json(rounded(planned->second))));
    }
    return json;
  }

  /// Length of the shortest event that still has room.
  double shortest_kept() const {
    std::vector<double> lengths;
    for (const auto& [thread, spans] : spans_) {
      for (const Span& span : spans) lengths.push_back(span.length);
    }
    if (static_cast<int64_t>(lengths.size()) <= kMaxTimelineEvents) return 0;
    const auto nth = lengths.begin() + (kMaxTimelineEvents - 1);
    std::nth_element(lengths.begin(), nth, lengths.end(), std::greater<>());
    return *nth;
  }

  Json by_op() const {
    std::vector<std::pair<double, std::string>> order;
    for (const auto& [op, use] : ops_) order.emplace_back(-use.first, op);
    std::sort(order.begin(), order.end());
    Json json = Json::array();
    for (const auto& [time, op] : order) {
      json.push(Json::array().push(op).push(rounded(-time)).push(ops_.at(op).second));
    }
    return json;
  }

  int64_t rank_ = 0;
  Names names_, phases_;
  std::map<int64_t, std::string> lane_names_;
  std::map<int64_t, std::vector<Span>> spans_;
  std::map<int64_t, double> planned_;  // by lane
  std::map<std::string, std::pair<double, int64_t>> ops_;
};

}  // namespace

Json series_json(const std::vector<StepRecord>& steps) {
  const size_t bucket =
      std::max<size_t>(1, (steps.size() + kMaxPoints - 1) / static_cast<size_t>(kMaxPoints));
  Json columns = Json::object();
  Json last_steps = Json::array();
  for (size_t i = 0; i < steps.size(); i += bucket) {
    last_steps.push(steps[std::min(i + bucket, steps.size()) - 1].step);
  }
  columns.set("step", std::move(last_steps));
  for (const Column& column : kColumns) {
    if (!says_something(steps, column)) continue;
    Json values = Json::array();
    for (size_t i = 0; i < steps.size(); i += bucket) {
      values.push(bucket == 1 ? Json(rounded(column.value(steps[i])))
                              : bucket_json(steps, i, std::min(i + bucket, steps.size()), column));
    }
    columns.set(column.name, std::move(values));
  }
  return Json::object({{"bucket", static_cast<int64_t>(bucket)}, {"columns", std::move(columns)}});
}

Json run_summary_json(const RunMetrics& metrics) {
  Json json = Json::object();
  int64_t resumes = 0;
  for (const EventRecord& event : metrics.events) {
    if (event.kind == EventKind::start) json.set("started", event.time);
    if (event.kind == EventKind::resume) ++resumes;
  }
  json.set("resumes", resumes);
  if (!metrics.steps.empty()) add_totals(json, metrics);
  if (!metrics.evals.empty()) add_evals(json, metrics.evals);
  return json;
}

Json step_parts_json(const RunMetrics& metrics) {
  const std::vector<const StepRecord*> steady = steady_steps(metrics);
  Json json = Json::array();
  for (const Part& part : kParts) {
    json.push(Json::array().push(part.name).push(rounded(mean_of(steady, part.value))));
  }
  return json;
}

Json expert_load_json(const std::vector<StepRecord>& steps) {
  constexpr size_t kLast = 50;
  if (steps.empty() || !steps.back().has_experts) return {};
  const size_t count = std::min(kLast, steps.size());
  std::vector<std::vector<double>> loads;
  for (size_t i = steps.size() - count; i < steps.size(); ++i) {
    const auto& tokens = steps[i].expert_tokens;
    loads.resize(std::max(loads.size(), tokens.size()));
    for (size_t layer = 0; layer < tokens.size(); ++layer) {
      loads[layer].resize(std::max(loads[layer].size(), tokens[layer].size()));
      for (size_t e = 0; e < tokens[layer].size(); ++e) {
        loads[layer][e] += static_cast<double>(tokens[layer][e]);
      }
    }
  }
  Json layers = Json::array();
  for (const std::vector<double>& load : loads) {
    double sum = 0;
    for (const double tokens : load) sum += tokens;
    Json row = Json::array();
    for (const double tokens : load) {
      row.push(sum > 0 ? rounded(tokens / sum * static_cast<double>(load.size())) : 0.0);
    }
    layers.push(std::move(row));
  }
  return Json::object({{"steps", static_cast<int64_t>(count)}, {"layers", std::move(layers)}});
}

Json timeline_json(const Json& trace, int64_t step, const std::string& file) {
  return TimelineReader(trace.at("traceEvents").as_array()).build(step, file);
}

}  // namespace weft
