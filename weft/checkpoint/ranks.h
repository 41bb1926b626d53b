// Saving on several ranks: who writes which piece, the file of one rank, and the manifest over all
// of them. docs/formats/checkpoint.md.
#pragma once

#include <string>
#include <vector>

#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/logical.h"
#include "weft/comm/communicator.h"
#include "weft/io/atomic_folder.h"

namespace weft {

/// What one state of a rank holds of a logical tensor.
struct HeldPiece {
  std::string tensor;  // stored_name
  DType dtype = DType::f32;
  Shape shape;             // of the whole tensor
  std::vector<Box> boxes;  // in the order of its memory; none when the state is empty
  int state = -1;          // index in the store; unknown of other ranks

  int64_t bytes() const;
};

/// One entry per stored state.
std::vector<HeldPiece> held_pieces(const std::vector<PlanState>& states);
std::string held_text(const std::vector<HeldPiece>& pieces);
std::vector<HeldPiece> parse_held(std::string_view text);

/// Which of its pieces each rank writes: every distinct piece is written once, by one of those that
/// hold it, so that the bytes are spread evenly. BugError when the pieces of a tensor overlap
/// without being equal, leave gaps, or disagree on its dtype or shape.
std::vector<std::vector<int>> assign_writers(const std::vector<std::vector<HeldPiece>>& held);

/// "rank-00002.safetensors".
std::string rank_file_name(int rank);
/// "lm_head.weight[0:4, 8:16]"; the plain name when the box is the whole tensor.
std::string piece_name(const std::string& tensor, const Shape& shape, const Box& box);

/// Saves of one rank among several. Every call but the constructor is collective on
/// Channel::checkpoint: all ranks make the same calls, and all throw the same error.
class RankSaver {
 public:
  RankSaver(FileSystem& files, Communicator& communicator, int64_t round_bytes)
      : files_(files), communicator_(communicator), round_bytes_(round_bytes) {}

  /// Settles, at the first call, who writes what, and whether saves run in the background: only
  /// when every rank has `async`. Later calls must come with the same states.
  void agree_on_layout(const std::vector<PlanState>& states, bool async);
  bool async() const { return async_; }
  /// States this rank writes, in the order of the store.
  const std::vector<int>& states_to_write() const { return states_to_write_; }
  /// Rank 0 makes the folder aside, every rank writes its file, rank 0 commits. The ranks hear of
  /// each other every round_bytes, so that they stop early when one fails, and so that none takes
  /// another that only writes more for one that stalls.
  void write_and_commit(const std::string& root, const std::string& name, StateBytes& source,
                        const CheckpointMeta& meta, bool finite);

 private:
  std::string begin(const std::string& root, const std::string& name);
  Manifest join(const std::vector<std::string>& reports, const CheckpointMeta& meta) const;

  FileSystem& files_;
  Communicator& communicator_;
  int64_t round_bytes_;
  bool async_ = false;
  std::string layout_;           // held_text of this rank, once agreed
  std::vector<HeldPiece> mine_;  // what this rank writes
  std::vector<int> states_to_write_;
  std::vector<std::vector<HeldPiece>> all_;  // rank 0: what each rank writes
  std::vector<LogicalTensor> tensors_;       // rank 0: without pieces, sorted by name
  std::unique_ptr<AtomicFolder> aside_;      // rank 0, during a save
};

}  // namespace weft
