#include "weft/checkpoint/finite.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace weft {
namespace {

constexpr int64_t kBlock = 4096;

/// An element is not finite when all bits of its exponent are set. Whole blocks are judged with
/// one running flag, which compilers vectorise; only a block at fault is searched.
template <class Bits>
int64_t search(const void* data, int64_t count, Bits exponent) {
  const auto* bytes = static_cast<const char*>(data);
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t size = std::min(kBlock, count - begin);
    Bits block[kBlock];
    std::memcpy(block, bytes + begin * static_cast<int64_t>(sizeof(Bits)),
                static_cast<size_t>(size) * sizeof(Bits));
    Bits bad = 0;
    for (int64_t i = 0; i < size; ++i) {
      bad = static_cast<Bits>(bad | static_cast<Bits>((block[i] & exponent) == exponent));
    }
    if (bad == 0) continue;
    for (int64_t i = 0; i < size; ++i) {
      if ((block[i] & exponent) == exponent) return begin + i;
    }
  }
  return -1;
}

}  // namespace

int64_t find_nonfinite(const void* data, DType dtype, int64_t count) {
  switch (dtype) {
    case DType::f64: return search<uint64_t>(data, count, 0x7ff0000000000000u);
    case DType::f32: return search<uint32_t>(data, count, 0x7f800000u);
    case DType::bf16: return search<uint16_t>(data, count, uint16_t{0x7f80});
    case DType::f16: return search<uint16_t>(data, count, uint16_t{0x7c00});
    default: return -1;
  }
}

std::string nonfinite_text(const void* data, DType dtype, int64_t index) {
  const double value = load_element(data, dtype, index);
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

}  // namespace weft
