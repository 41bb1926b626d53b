#include "weft/base/rng.h"

namespace weft {
namespace {

__extension__ using Wide = unsigned __int128;

/// SplitMix64 finaliser: mixes key material well.
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

PhiloxBlock block_of(uint64_t key, uint64_t index, uint32_t lane) {
  return philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), lane, 0},
                    {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
}

}  // namespace

uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  }
  return hash;
}

RngStream::RngStream(uint64_t seed, std::string_view name)
    : key_(mix(seed ^ mix(hash_name(name)))) {}

uint32_t RngStream::bits(uint64_t index, uint32_t lane) const {
  return block_of(key_, index, lane)[0];
}

double RngStream::uniform(uint64_t index) const { return (bits(index) >> 8) * 0x1p-24; }

uint64_t RngStream::below(uint64_t index, uint64_t bound) const {
  const PhiloxBlock block = block_of(key_, index, 0);
  const uint64_t word = (uint64_t{block[0]} << 32) | block[1];
  return static_cast<uint64_t>((static_cast<Wide>(word) * bound) >> 64);
}

uint64_t dropout_key(uint64_t seed, uint64_t step, uint64_t site) {
  return mix(mix(mix(seed) ^ step) ^ site);
}

}  // namespace weft
