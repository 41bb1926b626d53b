// How fast a folder is as a cold tier.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

/// Rates in bytes per second.
struct ColdRate {
  int64_t block_bytes = 0;
  int queue_depth = 0;
  double read = 0;   // nothing else under way
  double write = 0;  // nothing else under way
  double mixed_read = 0;
  double mixed_write = 0;
  double total() const { return read + write + mixed_read + mixed_write; }
};

struct ColdProbe {
  ColdRate best;                // fastest in total; of those within 3 % the one of fewest bytes
  std::vector<ColdRate> rates;  // in the order measured
  std::string engine;
  std::vector<std::string> notes;  // ColdStore::notes()
};

/// Transfers in a file of up to `bytes` (less when the folder has less room) for about `seconds`,
/// which is cut to 2 to 30; below 5 only three pairs of block and depth are tried. Uses about
/// 4 * 16 MiB of memory. The errors are those of ColdStore::open and of transfers.
ColdProbe probe_cold_folder(const std::string& folder, double seconds,
                            int64_t bytes = int64_t{512} << 20);

}  // namespace weft
