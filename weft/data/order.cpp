#include "weft/data/order.h"

#include <bit>

#include "weft/base/check.h"

namespace weft {
namespace {

constexpr uint32_t kRounds = 8;

}  // namespace

Permutation::Permutation(const RngStream& stream, int64_t size)
    : stream_(stream), size_(static_cast<uint64_t>(size)) {
  WEFT_CHECK(size >= 1, "Permutation", "got size {}", size);
  // Two halves of equal width whose square covers the size, at most four times over.
  half_bits_ = (static_cast<uint32_t>(std::bit_width(size_ - 1)) + 1) / 2;
  if (half_bits_ == 0) half_bits_ = 1;
}

int64_t Permutation::at(int64_t index) const {
  WEFT_CHECK(index >= 0 && static_cast<uint64_t>(index) < size_, "Permutation::at",
             "got index {} of {}", index, size_);
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> half_bits_;
    uint64_t right = value & mask;
    for (uint32_t round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ (stream_.bits(right, round) & mask);
      left = right;
      right = mixed;
    }
    value = (left << half_bits_) | right;
  } while (value >= size_);
  return static_cast<int64_t>(value);
}

}  // namespace weft
