// The numbers of report.html as one JSON document, which the script of the page draws.
#pragma once

#include <string>

#include "weft/base/json.h"
#include "weft/train/metrics.h"

namespace weft {

/// Points a curve may have; longer runs are drawn as buckets of equally many steps.
inline constexpr int64_t kMaxPoints = 4000;
/// Events a timeline may have; the shortest ones beyond are left out.
inline constexpr int64_t kMaxTimelineEvents = 20000;

/// {"bucket": k, "columns": {"step": […], "loss": […], …}}. With k > 1 the entries of all columns
/// but "step" (the last step of the bucket) are [least, mean, greatest] over the finite values.
/// mfu, loss_scale, aux_loss and dropped_tokens are left out when they say nothing.
Json series_json(const std::vector<StepRecord>& steps);

/// Totals, last values and means. Means leave out skipped steps and the first step after each
/// start or resume (docs/metrics.md).
Json run_summary_json(const RunMetrics& metrics);

/// [[what, mean ms], …] of a step, over the steps that count in means.
Json step_parts_json(const RunMetrics& metrics);

/// {"steps": n, "layers": [[load of expert 0, …], …]} over the last n <= 50 steps: a load is the
/// share of the layer's assignments times the number of experts, 1 when all are even. Null without
/// experts.
Json expert_load_json(const std::vector<StepRecord>& steps);

/// A Chrome trace of trace_file.h reduced to {"step", "file", "rank", "names", "phases", "lanes":
/// [{"name", "events": [[begin us, us, name, phase], …]}], "by_op": [[op, us, count], …],
/// "left_out"}: the lowest rank when there are several.
Json timeline_json(const Json& trace, int64_t step, const std::string& file);

}  // namespace weft
