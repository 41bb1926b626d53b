// Builds the logical forward graph of a model. A family is one page (gpt2.cpp, llama.cpp with
// moe.cpp) written for one device; sharding, gradients and tiers come later and never look back
// here.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "weft/ir/graph.h"
#include "weft/model/model_spec.h"

namespace weft {

/// Adds one state per parameter in model_parameters order: matrices in compute precision, with an
/// fp32 master beside them when that differs; vectors and wide matrices in parameter precision
/// (f32, or f64 for f64). Masters only exist in graphs that train; with `all_masters` every
/// parameter has one, so that it may be placed apart from the weight.
class ModelStates {
 public:
  ModelStates(Graph& graph, const ModelSpec& spec, DType compute, bool train,
              bool all_masters = false);

  struct Entry {
    ParamSpec spec;
    ValueId weight = kNoValue;  // what kernels read
    ValueId master = kNoValue;  // kNoValue: the weight itself is updated
  };

  const std::vector<Entry>& entries() const { return entries_; }
  /// Value of parameter `name`; BugError when there is none.
  ValueId weight(const std::string& name) const;
  bool has(const std::string& name) const { return index_.contains(name); }

 private:
  std::vector<Entry> entries_;
  std::map<std::string, size_t> index_;
};

/// Inputs of one micro-batch.
struct MicroInputs {
  ValueId tokens = kNoValue;     // [B,S] i32
  ValueId positions = kNoValue;  // [B,S] i32
  ValueId segments = kNoValue;   // [B,S] i32, optional: documents that must not see each other
  ValueId step = kNoValue;       // [1] i64, with dropout
  ValueId samples = kNoValue;    // [B] i64, with dropout
  ValueId lengths = kNoValue;    // [B] i32, with experts: tokens of a sequence, padding follows
  ValueId aux_scale = kNoValue;  // [1], with experts in training: cotangent of the router's losses
};

struct ForwardContext {
  Graph& graph;
  const ModelSpec& spec;
  const ModelStates& states;
  MicroInputs inputs;
  DType compute = DType::f32;
  uint64_t seed = 0;      // dropout
  bool dropout = false;   // false in evaluation
  int64_t next_site = 0;  // dropout sites are numbered in graph order
  int64_t loss_ways = 1;  // ranks over which the logits of a micro-batch are spread
  std::map<int64_t, ValueId> router_stats = {};  // out: per layer with experts, [B,E+4]
};

/// Embeddings, blocks and final norm: [B,S,H].
ValueId build_hidden(ForwardContext& context);
/// Name of the parameter that projects to the vocabulary, [V,H]; the embedding when tied.
std::string head_parameter(const ModelSpec& spec);

/// Sum of token losses of one micro-batch, evaluation form.
ValueId build_eval_loss(ForwardContext& context, ValueId labels);
/// Same, computing its gradients on the way: `scale` [1] is the cotangent of the loss.
ValueId build_train_loss(ForwardContext& context, ValueId labels, ValueId scale);
/// Logits [B,1,V] of one position per sequence (`last` [B] i32), or [B,S,V] when kNoValue.
ValueId build_logits(ForwardContext& context, ValueId last);

}  // namespace weft
