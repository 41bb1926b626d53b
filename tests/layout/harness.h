// A few optimizer steps of a tiny model on data x op ranks that are threads: straight from compile,
// Session and run_ranks, without trainer and files. The same global batch whatever the layout.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/support/golden.h"
#include "weft/config/config.h"
#include "weft/model/model_spec.h"
#include "weft/plan/plan.h"

namespace weft::test {

/// How a job is cut. Everything else is part of the job.
struct Layout {
  int64_t data = 1;
  int64_t op = 1;
  bool sequence = false;
  int64_t zero = 0;
  int64_t accumulation = 1;
  int64_t expert = 1;  // inside data

  int64_t world() const { return data * op; }
};
/// "d2o2s_z3_a2", "d4e2o1_z0_a1": digits, letters and underscores.
std::string layout_name(const Layout& layout);

/// The rows of one optimizer step, [rows, seq_len] i32; labels are shifted already.
struct Batch {
  HostTensor tokens;
  HostTensor labels;
  std::vector<int64_t> samples;       // one per row, keys of dropout
  std::vector<int32_t> lengths = {};  // one per row, tokens that are no padding; empty: all
};

struct LayoutJob {
  ModelSpec spec;
  std::string backend = "cpu";
  std::string compute = "fp32";
  std::string optimizer = "sgd";
  double lr = 0.1;
  double momentum = 0.0;
  double weight_decay = 0.0;
  double clip = 0.0;
  uint64_t seed = 7;
  std::vector<Batch> batches;        // one per step, all of one shape
  const Tensors* initial = nullptr;  // by Hugging Face name, instead of drawn weights
  std::vector<ShardStrategy> shard = {};
  RecomputeConfig recompute = {};
  std::string microbatch_order = "auto";
  bool may_skip = false;  // a step that is not applied is no failure of the harness
  bool evaluate = false;  // programs "eval" and "logits" too, run after the last step
  std::function<void(Config&)> tune = {};  // what else the configuration says, of tiers above all
};

/// Batches of seeded tokens whose rows have very different numbers of valid labels.
std::vector<Batch> uneven_batches(int64_t steps, int64_t rows, int64_t seq_len, int64_t vocab);

/// A state as one logical tensor, in its own dtype, put together from the pieces of all ranks.
struct LayoutResult {
  std::vector<double> losses;  // per step: mean over the valid labels of the global batch
  std::vector<double> norms;
  double eval_loss = 0;                           // mean over the first batch, without dropout
  std::vector<std::vector<double>> router_stats;  // of layers with experts, of the last step
  std::vector<double> row_logits;  // of the first row of the first batch, [seq_len, vocab]
  Tensors initial;          // what is trained (masters where there are some), before the first step
  Tensors trained;          // and after the last
  Tensors copies;           // weights that are copies of masters
  Tensors slots;            // "<tensor>@<slot>"
  std::vector<Plan> plans;  // per rank
  std::vector<std::map<std::string, int64_t>> received;  // per rank and axis, bytes of all steps
  /// What must never happen: replicas that differ, elements that no rank holds, ranks that see
  /// another loss or norm, traffic or memory that is not the planned one. Empty for a correct run.
  std::vector<std::string> faults;
};

Config layout_config(const LayoutJob& job, const Layout& layout);
/// Runs every batch of the job as one step; `steps` >= 0 stops earlier.
LayoutResult run_layout(const LayoutJob& job, const Layout& layout, int64_t steps = -1);
/// The plans of all ranks alone.
std::vector<Plan> plan_layout(const LayoutJob& job, const Layout& layout);

}  // namespace weft::test
