// Merging of byte pairs by rank, the core of byte-level BPE. Immutable after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

/// Counts elementary operations, so that tests can bound the work without a clock.
struct MergeWork {
  int64_t steps = 0;
};

class MergeTable {
 public:
  /// The pair (left, right) becomes `result`; a lower rank merges first. The last rule of a pair
  /// holds.
  void add(int32_t left, int32_t right, int32_t rank, int32_t result);

  /// Replaces `symbols` by the result of merging the pair of lowest rank, leftmost first, until no
  /// rule applies. O(n log n) operations and O(n) memory for n symbols.
  void merge(std::vector<int32_t>& symbols, MergeWork* work = nullptr) const;

 private:
  struct Rule {
    uint64_t pair = 0;  // left in the high half
    int32_t rank = -1;  // -1: free slot
    int32_t result = 0;
  };
  size_t slot(uint64_t pair) const;
  const Rule* find(int32_t left, int32_t right) const;
  void merge_short(std::vector<int32_t>& symbols, MergeWork* work) const;
  void merge_long(std::vector<int32_t>& symbols, MergeWork* work) const;

  // Open addressing with linear probing; the size is a power of two.
  std::vector<Rule> rules_ = std::vector<Rule>(64);
  size_t num_rules_ = 0;
};

}  // namespace weft
