#include "weft/plan/machine.h"

#include <algorithm>

namespace weft {

double MachineSpec::flops(DType dtype) const {
  const double peak = peak_flops[static_cast<size_t>(dtype)];
  return peak > 0 ? peak : peak_flops[static_cast<size_t>(DType::f32)];
}

MachineSpec default_cpu_machine(int threads) {
  const double cores = std::max(1, threads);
  MachineSpec machine;
  machine.peak_flops[static_cast<size_t>(DType::f64)] = 40e9 * cores;
  machine.peak_flops[static_cast<size_t>(DType::f32)] = 80e9 * cores;
  machine.peak_flops[static_cast<size_t>(DType::bf16)] = 160e9 * cores;
  machine.memory_bandwidth = 8e9 * cores;
  return machine;
}

}  // namespace weft
