#include "weft/train/trace_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <vector>

#include "weft/base/error.h"
#include "weft/io/file.h"
#include "weft/plan/timeline.h"

namespace weft {
namespace {

constexpr int kPhasesThread = 0;  // lanes follow: 1 + lane

int thread_of(Lane lane) { return 1 + static_cast<int>(lane); }

/// Whole nanoseconds, so that an end equals the next begin after rounding.
double microseconds(double value) { return std::round(value * 1e3) / 1e3; }

std::string step_name(const PlanStep& step) {
  const std::string op(op_def(step.op).name);
  return step.scope.empty() ? op : fmt::format("{} {}", op, step.scope);
}

std::string phase_text(Phase phase, int32_t micro) {
  if (phase == Phase::forward || phase == Phase::backward) {
    return fmt::format("{} {}", phase_name(phase), micro);
  }
  return std::string(phase_name(phase));
}

class TraceBuilder {
 public:
  TraceBuilder(const Plan& plan, const PlanProgram& program) : plan_(plan), program_(program) {}

  /// Adds the steps as a process of their own.
  void add_process(int64_t id, std::string name, std::span<const TraceEvent> events) {
    process_ = id;
    std::vector<TraceEvent> sorted(events.begin(), events.end());
    std::stable_sort(sorted.begin(), sorted.end(), [](const TraceEvent& a, const TraceEvent& b) {
      return a.begin_us < b.begin_us;
    });
    index(sorted);
    add_metadata(std::move(name), sorted);
    add_phases(sorted);
    for (const TraceEvent& event : sorted) add_step(event);
    for (const TraceEvent& event : sorted) add_waits(event);
  }

  Json take() {
    Json json = Json::object({{"displayTimeUnit", "ms"}});
    json.set("otherData", Json::object({{"program", program_.name},
                                        {"rank", plan_.rank},
                                        {"world", plan_.world},
                                        {"backend", plan_.backend}}));
    json.set("traceEvents", std::move(out_));
    return json;
  }

 private:
  const PlanStep& step_of(const TraceEvent& event) const {
    if (event.step < 0 || event.step >= static_cast<int32_t>(program_.steps.size())) {
      throw BugError("trace", fmt::format("got step {} of program {}, expected 0 to {}", event.step,
                                          program_.name, program_.steps.size() - 1));
    }
    return program_.steps[static_cast<size_t>(event.step)];
  }

  void index(const std::vector<TraceEvent>& events) {
    by_step_.assign(program_.steps.size(), std::nullopt);
    std::vector<double> lane_end(kNumLanes, 0);
    for (const TraceEvent& event : events) {
      step_of(event);
      double& end = lane_end[static_cast<size_t>(event.lane)];
      if (event.end_us < event.begin_us || microseconds(event.begin_us) < end) {
        throw BugError("trace", fmt::format("step {} overlaps the one before it on lane {}",
                                            event.step, lane_name(event.lane)));
      }
      end = microseconds(event.end_us);
      by_step_[static_cast<size_t>(event.step)] = event;
    }
  }

  Json base(const char* kind, int thread) const {
    return Json::object({{"ph", kind}, {"pid", process_}, {"tid", thread}});
  }

  void add_name(const char* what, int thread, std::string text) {
    Json json = base("M", thread);
    json.set("name", what);
    json.set("args", Json::object({{"name", std::move(text)}}));
    out_.push(std::move(json));
  }

  void add_metadata(std::string name, const std::vector<TraceEvent>& events) {
    add_name("process_name", 0, std::move(name));
    std::set<int> threads = {kPhasesThread};
    for (const TraceEvent& event : events) threads.insert(thread_of(event.lane));
    for (int thread : threads) {
      add_name("thread_name", thread,
               thread == kPhasesThread ? "phases"
                                       : std::string(lane_name(static_cast<Lane>(thread - 1))));
      Json order = base("M", thread);
      order.set("name", "thread_sort_index");
      order.set("args", Json::object({{"sort_index", thread}}));
      out_.push(std::move(order));
    }
  }

  void add_span(int thread, std::string name, std::string_view category, double begin, double end,
                Json args) {
    Json json = base("X", thread);
    const double from = microseconds(begin);
    json.set("name", std::move(name));
    json.set("cat", category);
    json.set("ts", from);
    json.set("dur", microseconds(microseconds(end) - from));
    if (!args.is_null()) json.set("args", std::move(args));
    out_.push(std::move(json));
  }

  /// Runs of steps of one phase and micro-batch on the compute lane.
  void add_phases(const std::vector<TraceEvent>& events) {
    std::string name;
    double begin = 0, end = 0;
    const auto flush = [&] {
      if (!name.empty()) add_span(kPhasesThread, name, "phase", begin, end, nullptr);
    };
    for (const TraceEvent& event : events) {
      if (event.lane != Lane::compute) continue;
      const PlanStep& step = step_of(event);
      std::string text = phase_text(step.phase, step.micro);
      if (text != name) {
        flush();
        name = std::move(text);
        begin = event.begin_us;
      }
      end = event.end_us;
    }
    flush();
  }

  void add_step(const TraceEvent& event) {
    const PlanStep& step = step_of(event);
    add_span(thread_of(event.lane), step_name(step), phase_name(step.phase), event.begin_us,
             event.end_us,
             Json::object({{"step", event.step},
                           {"op", op_def(step.op).name},
                           {"scope", step.scope},
                           {"micro", step.micro},
                           {"flops", step.cost.flops},
                           {"bytes", step.cost.bytes}}));
  }

  /// Arrows from the end of a step to the begin of the one on another lane that waited for it.
  void add_waits(const TraceEvent& event) {
    for (int32_t wait : step_of(event).waits) {
      const std::optional<TraceEvent>& from = by_step_.at(static_cast<size_t>(wait));
      if (!from) continue;
      for (const bool start : {true, false}) {
        Json json = base(start ? "s" : "f", thread_of(start ? from->lane : event.lane));
        json.set("name", "wait");
        json.set("cat", "wait");
        json.set("id", num_arrows_);
        json.set("ts", microseconds(start ? from->end_us : event.begin_us));
        if (!start) json.set("bp", "e");
        out_.push(std::move(json));
      }
      ++num_arrows_;
    }
  }

  const Plan& plan_;
  const PlanProgram& program_;
  int64_t process_ = 0;
  std::vector<std::optional<TraceEvent>> by_step_;
  int64_t num_arrows_ = 0;
  Json out_ = Json::array();
};

std::vector<TraceEvent> planned_events(const PlanProgram& program, const MachineSpec& machine) {
  const std::vector<StepSpan> spans = predict_timeline(program, machine);
  std::vector<TraceEvent> events;
  for (size_t i = 0; i < spans.size(); ++i) {
    events.push_back(
        {static_cast<int32_t>(i), program.steps[i].lane, spans[i].begin * 1e6, spans[i].end * 1e6});
  }
  return events;
}

}  // namespace

Json trace_json(const Trace& trace, const MachineSpec& machine) {
  const Plan& plan = trace.plan;
  const PlanProgram& program = plan.program(trace.program);
  TraceBuilder builder(plan, program);
  builder.add_process(plan.rank, fmt::format("rank {}", plan.rank), trace.events);
  builder.add_process(int64_t{plan.world} + plan.rank, fmt::format("rank {}, planned", plan.rank),
                      planned_events(program, machine));
  return builder.take();
}

void write_trace(const std::string& folder, int64_t step, const Trace& trace,
                 const MachineSpec& machine) {
  FileSystem& files = posix_files();
  files.make_folders(folder);
  const int32_t rank = trace.plan.rank;
  const std::string name = rank == 0 ? fmt::format("step-{}.json", step)
                                     : fmt::format("step-{}.rank-{}.json", step, rank);
  files.write_text(join_path(folder, name), trace_json(trace, machine).dump() + "\n");
}

}  // namespace weft
