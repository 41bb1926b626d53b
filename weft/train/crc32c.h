// CRC-32C (Castagnoli), the checksum of TFRecord framing.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft {

/// Uses the CPU's instruction where there is one.
uint32_t crc32c(std::string_view data);
/// The same by table, for every CPU.
uint32_t crc32c_table(std::string_view data);

}  // namespace weft
