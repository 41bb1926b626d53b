#include "weft/compile/default_shards.h"

#include <fmt/core.h>

#include <algorithm>

#include "weft/base/error.h"

namespace weft {
namespace {

ShardEntry entry_of(std::string pattern, std::vector<std::string> weight, int64_t block = 1) {
  ShardEntry entry;
  entry.pattern = std::move(pattern);
  entry.operands["weight"] = std::move(weight);
  entry.block = block;
  return entry;
}

/// Weight dims are (in, out); a table is (rows, features).
const std::vector<std::string> kColumn = {"", "op"};
const std::vector<std::string> kRow = {"op", ""};

std::vector<ShardEntry> gpt2_entries(const ModelSpec& spec) {
  const int64_t head = spec.head_dim;
  return {entry_of("transformer.wte", kRow),
          entry_of("transformer.h.*.attn.c_attn", kColumn, head),
          entry_of("transformer.h.*.attn.c_proj", kRow, head),
          entry_of("transformer.h.*.mlp.c_fc", kColumn),
          entry_of("transformer.h.*.mlp.c_proj", kRow),
          entry_of("lm_head", kColumn)};
}

std::vector<ShardEntry> llama_entries(const ModelSpec& spec) {
  // The query heads of one key/value head stay with it.
  const int64_t group = spec.num_heads / spec.num_kv_heads * spec.head_dim;
  return {entry_of("model.embed_tokens", kRow),
          entry_of("model.layers.*.self_attn.q_proj", kColumn, group),
          entry_of("model.layers.*.self_attn.k_proj", kColumn, spec.head_dim),
          entry_of("model.layers.*.self_attn.v_proj", kColumn, spec.head_dim),
          entry_of("model.layers.*.self_attn.o_proj", kRow, group),
          entry_of("model.layers.*.mlp.gate_proj", kColumn),
          entry_of("model.layers.*.mlp.up_proj", kColumn),
          entry_of("model.layers.*.mlp.down_proj", kRow),
          entry_of("lm_head", kColumn)};
}

/// Weights of experts are (experts, in, out): the experts over their own axis, inside an expert as
/// in a dense MLP. Shared experts are one.
std::vector<ShardEntry> moe_entries(const ModelSpec& spec) {
  std::vector<ShardEntry> entries;
  const bool all_sparse = count_sparse_layers(spec) == spec.num_layers;
  for (ShardEntry& entry : llama_entries(spec)) {
    const bool dense = entry.pattern.starts_with("model.layers.*.mlp.");
    if (!dense || !all_sparse) entries.push_back(std::move(entry));
  }
  const std::string mlp = "model.layers.*.mlp.";
  for (const char* name : {"gate_proj", "up_proj"}) {
    entries.push_back(entry_of(mlp + "experts." + name, {"expert", "", "op"}));
    if (spec.moe.shared > 0) entries.push_back(entry_of(mlp + "shared_experts." + name, kColumn));
  }
  entries.push_back(entry_of(mlp + "experts.down_proj", {"expert", "op", ""}));
  if (spec.moe.shared > 0) entries.push_back(entry_of(mlp + "shared_experts.down_proj", kRow));
  return entries;
}

/// A user who places q, k, v and o takes over the heads.
bool heads_are_given(const std::vector<ShardEntry>& given, const ModelSpec& spec) {
  const std::string module = spec.family == Family::gpt2 ? "transformer.h.0.attn.c_attn"
                                                         : "model.layers.0.self_attn.k_proj";
  return std::any_of(given.begin(), given.end(), [&](const ShardEntry& entry) {
    return matches_module(entry.pattern, module);
  });
}

void check_heads(const Config& config, const ModelSpec& spec) {
  const int64_t op = config.parallel.op;
  if (op <= spec.num_kv_heads) return;
  throw UsageError(
      "parallel.op",
      fmt::format("got parallel.op = {} for {} key/value heads ({} query heads), expected at most "
                  "{}; try parallel.op = {} and a larger parallel.data, or give "
                  "[parallel.shard] entries that keep the attention projections whole",
                  op, spec.num_kv_heads, spec.num_heads, spec.num_kv_heads, spec.num_kv_heads));
}

/// Blocks belong to the model, not to the user's choice of axes.
void take_blocks(std::vector<ShardEntry>& given, const ModelSpec& spec) {
  const std::vector<ShardEntry> defaults = default_entries(spec);
  for (ShardEntry& entry : given) {
    for (const ShardEntry& known : defaults) {
      if (matches_module(entry.pattern, known.pattern)) entry.block = known.block;
    }
  }
}

void check_patterns(const std::vector<ShardEntry>& given, const ModelSpec& spec) {
  for (const ShardEntry& entry : given) {
    if (!entry.operands.contains("weight")) continue;
    bool used = false;
    for (const ParamSpec& parameter : model_parameters(spec)) {
      const std::string module = parameter.name.substr(0, parameter.name.rfind('.'));
      used = used || matches_module(entry.pattern, module);
    }
    used = used || (spec.tied && matches_module(entry.pattern, "lm_head"));
    if (used) continue;
    throw UsageError("parallel.shard",
                     fmt::format("got pattern \"{}\", which matches no module with weights, "
                                 "expected one such as \"{}\"",
                                 entry.pattern, default_entries(spec)[1].pattern));
  }
}

void require_all(const std::vector<ShardEntry>& given, const ModelSpec& spec) {
  std::string missing;
  for (const ShardEntry& entry : default_entries(spec)) {
    const bool found = std::any_of(given.begin(), given.end(), [&](const ShardEntry& g) {
      return g.pattern == entry.pattern || matches_module(g.pattern, entry.pattern);
    });
    if (!found) missing += (missing.empty() ? "" : ", ") + entry.pattern;
  }
  if (missing.empty()) return;
  throw UsageError(
      "parallel.strategy",
      fmt::format("got parallel.strategy = \"manual\" without entries for {}, expected "
                  "one for every module with a matrix; try strategy = \"semi\"",
                  missing));
}

}  // namespace

Mesh make_mesh(const ParallelConfig& parallel) {
  // Axis expert lies inside data: the ranks that share the experts of one copy of the model.
  return Mesh({{"data", parallel.data / parallel.expert},
               {"expert", parallel.expert},
               {"op", parallel.op}});
}

std::vector<ShardEntry> default_entries(const ModelSpec& spec) {
  switch (spec.family) {
    case Family::gpt2: return gpt2_entries(spec);
    case Family::llama: return llama_entries(spec);
    case Family::moe: return moe_entries(spec);
  }
  throw BugError("compile", "unknown family");
}

std::vector<ShardEntry> shard_entries(const Config& config, const ModelSpec& spec,
                                      const Mesh& mesh) {
  std::vector<ShardEntry> entries = parse_entries(config.parallel.shard, mesh);
  check_patterns(entries, spec);
  take_blocks(entries, spec);
  if (config.parallel.strategy == "manual") {
    require_all(entries, spec);
    return entries;
  }
  if (!heads_are_given(entries, spec)) check_heads(config, spec);
  for (ShardEntry& entry : default_entries(spec)) entries.push_back(std::move(entry));
  return entries;
}

}  // namespace weft
