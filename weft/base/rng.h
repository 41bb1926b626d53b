// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). A stream is named by (seed, name) and indexed by element, so any piece of a
// global tensor can be drawn alone and every layout draws the same tensor. Pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace weft {

using PhiloxBlock = std::array<uint32_t, 4>;

/// The 10-round Philox4x32 bijection of `counter` under `key`.
inline PhiloxBlock philox4x32(PhiloxBlock counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// 64-bit FNV-1a hash, the stable name hash of streams.
uint64_t hash_name(std::string_view name);

/// One named stream of random numbers.
class RngStream {
 public:
  RngStream(uint64_t seed, std::string_view name);
  /// A stream keyed directly by a 64-bit key.
  explicit RngStream(uint64_t key) : key_(key) {}

  uint64_t key() const { return key_; }
  /// 32 random bits of element `index`; `lane` separates independent draws of one element.
  uint32_t bits(uint64_t index, uint32_t lane = 0) const;
  /// Uniform in [0, 1) with 24 random bits.
  double uniform(uint64_t index) const;
  /// Uniform integer in [0, bound), bound > 0, by a 64-bit multiply-shift.
  uint64_t below(uint64_t index, uint64_t bound) const;
  /// Standard normal by Box-Muller in double precision.
  double normal(uint64_t index) const;
  /// out[i] = normal(first + i), several times faster.
  void normals(uint64_t first, int64_t count, double* out) const;

 private:
  uint64_t key_;
};

/// 24-bit threshold T such that "random 24-bit value < T" has probability p, for dropout masks.
inline uint32_t dropout_threshold(double p) { return static_cast<uint32_t>(p * 16777216.0 + 0.5); }

/// Key of the dropout stream of one site and step; masks are drawn by dropout_bits.
uint64_t dropout_key(uint64_t seed, uint64_t step, uint64_t site);

/// 24 random bits of (sample, position, feature) under `key`. Elements of four consecutive
/// features share one Philox block: counter = (feature / 4, position, sample low, sample high).
inline PhiloxBlock dropout_block(uint64_t key, uint64_t sample, uint32_t position,
                                 uint32_t feature_block) {
  return philox4x32(
      {feature_block, position, static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32)},
      {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
}

}  // namespace weft
