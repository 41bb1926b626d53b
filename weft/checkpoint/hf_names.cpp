#include "weft/checkpoint/hf_names.h"

#include <fmt/core.h>

#include <string_view>

#include "weft/base/check.h"

namespace weft {
namespace {

constexpr std::string_view kMlp = ".mlp.";
constexpr std::string_view kMixtral = ".block_sparse_moe.";

/// Names of the matrices of one expert behind "experts.N.".
struct ExpertNames {
  std::string_view module;
  const char *gate, *up, *down;
};
constexpr ExpertNames kUsual{kMlp, "gate_proj", "up_proj", "down_proj"};
constexpr ExpertNames kOfMixtral{kMixtral, "w1", "w3", "w2"};

std::vector<HfPart> whole(const std::string& name, const Shape& shape) {
  return {{name, shape, {Shape(shape.size(), 0), shape}}};
}

/// "model.layers.0" of "model.layers.0.mlp.<tail>"; "" for other names.
std::string layer_with(const std::string& name, std::string_view tail) {
  const std::string end = std::string(kMlp) + std::string(tail);
  return name.ends_with(end) ? name.substr(0, name.size() - end.size()) : "";
}

/// Rows [begin, begin + rows) of every expert.
void add_experts(std::vector<HfPart>& parts, const std::string& prefix, const char* matrix,
                 const Shape& shape, int64_t begin, int64_t rows, int64_t expert) {
  parts.push_back({fmt::format("{}{}.{}.weight", prefix, expert, matrix),
                   {rows, shape[2]},
                   {{expert, begin, 0}, {1, rows, shape[2]}}});
}

std::vector<HfPart> per_expert(const std::string& layer, bool down, const Shape& shape,
                               const ExpertNames& names) {
  WEFT_CHECK(shape.size() == 3, "hf_names", "experts of {} are {}", layer, shape_text(shape));
  const std::string prefix = layer + std::string(names.module) + "experts.";
  const int64_t half = down ? shape[1] : shape[1] / 2;
  std::vector<HfPart> parts;
  for (int64_t expert = 0; expert < shape[0]; ++expert) {
    add_experts(parts, prefix, down ? names.down : names.gate, shape, 0, half, expert);
    if (!down) add_experts(parts, prefix, names.up, shape, half, half, expert);
  }
  return parts;
}

}  // namespace

std::vector<std::vector<HfPart>> hf_spellings(const std::string& name, const Shape& shape) {
  for (const char* tail : {"experts.gate_up_proj", "experts.down_proj"}) {
    const std::string layer = layer_with(name, tail);
    if (layer.empty()) continue;
    const bool down = std::string_view(tail) == "experts.down_proj";
    return {per_expert(layer, down, shape, kUsual), per_expert(layer, down, shape, kOfMixtral),
            whole(name, shape)};
  }
  const std::string layer = layer_with(name, "gate.weight");
  if (layer.empty()) return {whole(name, shape)};
  return {whole(name, shape), whole(layer + std::string(kMixtral) + "gate.weight", shape)};
}

std::vector<HfPart> hf_parts(const std::string& name, const Shape& shape,
                             const std::string& model_type) {
  const auto spellings = hf_spellings(name, shape);
  return spellings[model_type == "mixtral" && spellings.size() > 1 ? 1 : 0];
}

}  // namespace weft
