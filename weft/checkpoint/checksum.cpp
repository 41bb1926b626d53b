#define XXH_INLINE_ALL
#include <fmt/core.h>
#include <xxhash.h>

#include <new>

#include "weft/checkpoint/manifest.h"

namespace weft {
namespace {

std::string hex_text(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

Checksum::Checksum() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_));
}

Checksum::~Checksum() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }

void Checksum::add(const void* data, int64_t bytes) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), data, static_cast<size_t>(bytes));
}

std::string Checksum::hex() const {
  return hex_text(XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_)));
}

std::string checksum_hex(const void* data, int64_t bytes) {
  return hex_text(XXH3_128bits(data, static_cast<size_t>(bytes)));
}

}  // namespace weft
