// Loops of the sums, as function pointers for the CPU this process runs on; every CPU gives the
// same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft {

struct CombineIsa {
  using Sum = void (*)(std::span<const std::byte* const> sources, std::byte* out, int64_t count);
  Sum f64, f32, bf16, f16, i64, i32;
};

const CombineIsa& combine_isa();

}  // namespace weft
