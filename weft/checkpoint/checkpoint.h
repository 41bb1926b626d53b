// Checkpoints: saving, loading, finding and verifying them. docs/formats/checkpoint.md.
//
// A checkpoint is a folder "step-00000100" of logical tensors: any layout loads any checkpoint. It
// is written aside, synced, and renamed last, so a folder of that name is complete or damaged from
// outside, never half written. All file access goes through a FileSystem.
//
// With a communicator of several ranks, calls are collective: every rank makes the same ones, with
// what it holds of the state, and all ranks throw the same error at the same call: the first cause,
// with its rank. They use Channel::checkpoint, so nothing else may.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/checkpoint/manifest.h"
#include "weft/checkpoint/state_store.h"
#include "weft/comm/communicator.h"
#include "weft/io/file.h"

namespace weft {

/// Everything of a checkpoint but its tensors.
struct CheckpointMeta {
  TrainState train;
  Json config;  // effective configuration (config_json)
  ModelInfo model;
};

/// "step-00000100".
std::string checkpoint_name(int64_t step);

struct WriterOptions {
  int64_t keep = 3;   // newest complete checkpoints kept; <= 0 keeps all
  bool async = true;  // snapshot to host memory, write in the background; every rank or none
  /// Old checkpoints stay until the next save (or retire()): by then a step has shown that the
  /// newest one gives a finite loss. One more than `keep` is on disk meanwhile.
  bool wait_for_proof = false;
  /// Several ranks: bytes a rank writes before it hears of the others.
  int64_t round_bytes = int64_t{256} << 20;
};

/// Saves into one folder of checkpoints. Calls come from one thread; the background thread touches
/// only the snapshot, so training may go on as soon as save() returns. Of several ranks each writes
/// a file of its own; only rank 0 commits, cleans up and removes old checkpoints.
class CheckpointWriter {
 public:
  /// `files` and `communicator` must outlive the writer. Leftovers of dead processes in `root` are
  /// removed. Not collective.
  CheckpointWriter(FileSystem& files, std::string root, WriterOptions options = {},
                   Communicator* communicator = nullptr);
  /// Waits; a failure not yet reported is logged.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Saves the state of step meta.train.step and returns the folder's path. async: needs
  /// snapshot_bytes of host memory and returns when the snapshot is taken; otherwise streams tensor
  /// by tensor and returns when the checkpoint is durable. A failure of an earlier background save
  /// is thrown first, then nothing is saved. Throws AlarmError naming the tensor when a value is
  /// not finite (nothing is committed) and ResourceError when the disk fails: older checkpoints
  /// stay. Old checkpoints are removed only after the new one is durable. Several ranks: `states`
  /// has the same layout at every call of a writer.
  std::string save(StateStore& states, const CheckpointMeta& meta);
  /// Writes "diagnostic-step-…" from whatever the state is; never found by newest_checkpoint.
  /// Always synchronous; returns the path.
  std::string save_diagnostic(StateStore& states, const CheckpointMeta& meta);
  /// Blocks until the background save is durable; throws its failure.
  void wait();
  /// wait(), then removes what wait_for_proof left.
  void retire();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// One entry of a folder of checkpoints.
struct CheckpointEntry {
  std::string path;
  int64_t step = 0;
  bool complete = false;
  std::string problem;  // why it is not complete, naming the file
};

/// All "step-…" folders of `root`, by step. Complete: the manifest is whole, every file it lists is
/// there with its size, and the file headers agree. Checksums are not read (verify_checkpoint).
std::vector<CheckpointEntry> list_checkpoints(FileSystem& files, const std::string& root);

struct NewestCheckpoint {
  std::optional<CheckpointEntry> entry;
  std::vector<CheckpointEntry> skipped;  // newer ones that are not complete
};
NewestCheckpoint newest_checkpoint(FileSystem& files, const std::string& root);

/// A checkpoint folder as it is; a run folder or its checkpoints folder: the newest complete one,
/// with a warning for each one skipped. InputError when there is none.
std::string resolve_checkpoint(FileSystem& files, const std::string& path);

Manifest read_manifest(FileSystem& files, const std::string& folder);

struct LoadOptions {
  bool weights_only = false;  // moments are neither required nor read
};
/// Fills `states` from a checkpoint of any layout, verifying checksums, and refreshes copies. Only
/// pieces that hold something of the states are read. Tensors missing, left over, of another shape,
/// or damaged are InputErrors that name tensor and file. Nothing but the states is changed; after
/// an error their content is undefined. Several ranks: a tensor is left over when no rank has it.
Manifest load_checkpoint(FileSystem& files, StateStore& states, const std::string& folder,
                         const LoadOptions& options = {}, Communicator* communicator = nullptr);

struct VerifyReport {
  int64_t tensors = 0;
  int64_t bytes = 0;
  std::vector<std::string> problems;  // empty = sound
};
/// Reads every byte and recomputes every checksum.
VerifyReport verify_checkpoint(FileSystem& files, const std::string& folder);

}  // namespace weft
