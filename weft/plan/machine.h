// Facts of one machine that predicted times rest on. Plain data, copyable. A default stands in
// until the machine has been measured.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "weft/base/dtype.h"

namespace weft {

struct MachineSpec {
  std::string name = "default-cpu";
  std::array<double, 9> peak_flops{};  // per second and rank, indexed by DType; 0 = that of f32
  double memory_bandwidth = 10e9;      // bytes per second and rank
  double step_overhead = 1e-6;         // seconds spent to start one kernel
  double comm_bandwidth = 4e9;         // bytes per second that a rank receives in a collective
  double comm_latency = 20e-6;         // seconds to meet for one collective
  double copy_bandwidth = 5e9;         // bytes per second between device and host, each way
  double nvme_read_bandwidth = 0.8e9;  // bytes per second and rank
  double nvme_write_bandwidth = 0.5e9;

  /// Peak of matmul-like work on `dtype` operands; falls back to f32.
  double flops(DType dtype) const;
};

/// A cautious guess for a current x86 server core, times `threads`.
MachineSpec default_cpu_machine(int threads);

}  // namespace weft
