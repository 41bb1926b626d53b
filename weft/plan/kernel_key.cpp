#include "weft/plan/kernel_key.h"

#include <functional>
#include <variant>

namespace weft {
namespace {

void mix(size_t& seed, size_t value) {
  seed ^= value + 0x9E3779B97F4A7C15u + (seed << 6) + (seed >> 2);
}

void mix_types(size_t& seed, const std::vector<TensorType>& types) {
  mix(seed, types.size());
  for (const TensorType& type : types) {
    mix(seed, static_cast<size_t>(type.dtype));
    for (int64_t extent : type.shape) mix(seed, static_cast<size_t>(extent));
  }
}

}  // namespace

size_t KernelSpecHash::operator()(const KernelSpec& spec) const {
  size_t seed = static_cast<size_t>(spec.op);
  for (const Attrs::Entry& entry : spec.attrs.entries()) {
    mix(seed, std::hash<std::string>{}(entry.first));
    mix(seed, std::hash<AttrValue>{}(entry.second));
  }
  mix_types(seed, spec.inputs);
  mix_types(seed, spec.outputs);
  return seed;
}

bool KernelSpecEqual::operator()(const KernelSpec& a, const KernelSpec& b) const {
  return a.op == b.op && a.attrs == b.attrs && a.inputs == b.inputs && a.outputs == b.outputs;
}

}  // namespace weft
