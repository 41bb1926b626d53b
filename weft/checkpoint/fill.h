// Filling states with pieces of a logical tensor that arrive in chunks.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "weft/checkpoint/logical.h"

namespace weft {

/// Collects what the states of one group hold of their tensor, then writes them. Memory: those
/// states, and a chunk.
class TensorFill {
 public:
  /// Values come as `from`. A state of another dtype than the group's, a copy, gets what its source
  /// would give: converted by way of the group's dtype.
  TensorFill(StateStore& store, const LogicalGroup& group, DType from);

  /// Does a state hold any of these elements?
  bool needs(const Box& box) const;
  bool needs(const Box& box, int64_t begin, int64_t count) const;
  /// Takes elements [begin, begin + count) of the flattening of `box`.
  void add(const Box& box, int64_t begin, int64_t count, const void* data);
  /// Writes the states. BugError unless every element of them came exactly once.
  void write();

 private:
  struct Target {
    const LogicalGroup::Part* part;
    DType dtype;
    std::vector<char> data;
    int64_t missing = 0;  // elements
  };
  /// `data` in another dtype; valid until the next add.
  const void* converted(const void* data, int64_t count, DType to);

  StateStore& store_;
  const LogicalGroup& group_;
  DType from_;
  std::vector<Target> targets_;
  std::map<DType, std::vector<char>> chunks_;  // the current chunk, by dtype
};

}  // namespace weft
