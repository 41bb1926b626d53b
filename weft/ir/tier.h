// The three tiers of memory, by distance from the device.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft {

enum class Tier : uint8_t { device, host, nvme };
inline constexpr int kNumTiers = 3;

/// "device", "host", "nvme".
std::string_view tier_name(Tier tier);

}  // namespace weft
