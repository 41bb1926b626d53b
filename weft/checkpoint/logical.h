// States grouped by the logical tensor they are pieces of, and access to their bytes while a
// checkpoint or an export is written.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/base/dtype.h"
#include "weft/checkpoint/box.h"
#include "weft/checkpoint/state_store.h"

namespace weft {

struct LogicalGroup {
  struct Part {
    int state = 0;           // index in the store
    std::vector<Box> boxes;  // what it holds, in the order of its memory; none without elements
  };
  std::string name;  // stored_name
  bool slot = false;
  DType dtype = DType::f32;  // of the stored states
  Shape shape;
  std::vector<Part> parts;

  int64_t elements() const { return num_elements(shape); }
  int64_t bytes() const { return elements() * dtype_size(dtype); }
};

/// What a state holds of its logical tensor, as boxes in the order of its memory, each of which is
/// contiguous there.
std::vector<Box> state_boxes(const PlanState& state);

/// Stored states by logical tensor, sorted by name. Pieces of one tensor have one dtype (BugError).
std::vector<LogicalGroup> group_states(const std::vector<PlanState>& states);
/// The same with the copies that a load fills: those whose source holds another piece. Their
/// group's dtype is that of the source.
std::vector<LogicalGroup> group_loaded_states(const std::vector<PlanState>& states);
/// Throws BugError unless the parts of every group are disjoint and cover its tensor.
void require_cover(const std::vector<LogicalGroup>& groups);

/// Where the bytes of states come from: the live store or a snapshot.
class StateBytes {
 public:
  virtual ~StateBytes() = default;
  /// The content of a state; may use `scratch`, and is valid until scratch changes.
  virtual const void* bytes(int state, std::vector<char>& scratch) = 0;
};

/// Reads from the store at every call.
class LiveBytes : public StateBytes {
 public:
  explicit LiveBytes(StateStore& store) : store_(store) {}
  const void* bytes(int state, std::vector<char>& scratch) override;

 private:
  StateStore& store_;
};

/// A copy of states in host memory.
class Snapshot : public StateBytes {
 public:
  /// Copies the states with these indices; memory of an earlier copy is used again. ResourceError
  /// names the bytes needed. Throws AlarmError naming the tensor when a value is not finite.
  void take(StateStore& store, std::span<const int> states);
  const void* bytes(int state, std::vector<char>& scratch) override;

 private:
  std::unique_ptr<char[]> memory_;
  int64_t capacity_ = 0;
  std::vector<int64_t> offsets_;  // per state; -1 = not in the snapshot
};

/// The packed content of a whole logical tensor, from one rank that holds all of it.
class Assembler {
 public:
  explicit Assembler(StateBytes& source) : source_(source) {}
  /// Valid until the next call.
  const void* assemble(const LogicalGroup& group);

 private:
  StateBytes& source_;
  std::vector<char> scratch_;
  std::vector<char> whole_;
};

/// Throws AlarmError "[checkpoint] tensor …" when a value is not finite.
void require_finite(const std::string& name, const void* data, DType dtype, int64_t count);

}  // namespace weft
