#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "weft/base/check.h"
#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/checkpoint/agree.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/logical.h"
#include "weft/checkpoint/ranks.h"
#include "weft/checkpoint/write.h"
#include "weft/io/atomic_folder.h"

namespace weft {
namespace {

/// Removes complete checkpoints beyond the newest `keep`; the one just written always stays and
/// counts. A checkpoint leaves its name in one step, so a kill in the middle leaves no torso.
void remove_old(FileSystem& files, const std::string& root, int64_t keep,
                const std::string& written) {
  if (keep <= 0) return;
  std::vector<CheckpointEntry> entries = list_checkpoints(files, root);
  std::reverse(entries.begin(), entries.end());
  int64_t kept = 1;
  for (const CheckpointEntry& entry : entries) {
    if (!entry.complete || file_name(entry.path) == written || kept++ < keep) continue;
    AtomicFolder grave(files, entry.path);
    files.remove_all(grave.path());
    files.rename(entry.path, grave.path());
  }
}

}  // namespace

std::string checkpoint_name(int64_t step) { return fmt::format("step-{:08}", step); }

struct CheckpointWriter::Impl {
  Impl(FileSystem& file_system, std::string folder, WriterOptions writer_options,
       Communicator* the_communicator)
      : files(file_system), root(std::move(folder)), options(writer_options) {
    if (the_communicator == nullptr || the_communicator->world() == 1) return;
    communicator = the_communicator;
    ranks.emplace(files, *communicator, options.round_bytes);
  }

  bool first_rank() const { return communicator == nullptr || communicator->rank() == 0; }

  /// Groups of a store that is whole; several ranks settle who writes what instead.
  std::vector<LogicalGroup> settle(const std::vector<PlanState>& states) {
    if (ranks) {
      ranks->agree_on_layout(states, options.async);
      options.async = ranks->async();
      return {};
    }
    std::vector<LogicalGroup> groups = group_states(states);
    require_cover(groups);
    return groups;
  }

  void take_snapshot(StateStore& states, const std::vector<LogicalGroup>& groups) {
    std::vector<int> wanted;
    if (ranks) {
      wanted = ranks->states_to_write();
    } else {
      for (const LogicalGroup& group : groups) {
        for (const LogicalGroup::Part& part : group.parts) wanted.push_back(part.state);
      }
      std::sort(wanted.begin(), wanted.end());
    }
    agree(communicator, failure_of([&] { snapshot.take(states, wanted); }));
  }

  void write_and_commit(const std::string& name, const std::vector<LogicalGroup>& groups,
                        StateBytes& source, const CheckpointMeta& meta, bool finite) {
    if (ranks) {
      ranks->write_and_commit(root, name, source, meta, finite);
      return;
    }
    int64_t bytes = 0;
    for (const LogicalGroup& group : groups) bytes += group.bytes();
    files.make_folders(root);
    require_space(files, root, bytes);
    AtomicFolder aside(files, join_path(root, name));
    write_checkpoint(files, aside.path(), groups, source, meta, finite);
    aside.commit();
  }

  void save_now(const std::string& name, const std::vector<LogicalGroup>& groups,
                StateBytes& source, const CheckpointMeta& meta) {
    write_and_commit(name, groups, source, meta, true);
    if (!options.wait_for_proof) retire(name);
    newest = name;
  }

  /// Removes what `written`, the newest checkpoint, makes superfluous.
  void retire(const std::string& written) {
    if (written.empty() || !first_rank()) return;
    try {
      remove_old(files, root, options.keep, written);
    } catch (const Error& error) {
      log_warning("checkpoint {} is saved, but an old one could not be removed: {}", written,
                  error.what());
    }
  }

  void join() {
    if (thread.joinable()) thread.join();
  }
  void rethrow() {
    join();
    if (failure) std::rethrow_exception(std::exchange(failure, nullptr));
  }

  FileSystem& files;
  std::string root;
  WriterOptions options;
  Communicator* communicator = nullptr;  // nullptr: this is the only rank
  std::optional<RankSaver> ranks;        // with a communicator
  Snapshot snapshot;
  std::string newest;  // last one this writer made; written by the thread, read after join
  std::thread thread;
  std::exception_ptr failure;  // written by the thread, read after join
};

CheckpointWriter::CheckpointWriter(FileSystem& files, std::string root, WriterOptions options,
                                   Communicator* communicator)
    : impl_(std::make_unique<Impl>(files, std::move(root), options, communicator)) {
  if (!impl_->first_rank()) return;
  for (const std::string& name : remove_leftovers(files, impl_->root)) {
    log_info("{}: removed the unfinished {} of a process that is gone", impl_->root, name);
  }
}

CheckpointWriter::~CheckpointWriter() {
  impl_->join();
  if (!impl_->failure) return;
  try {
    std::rethrow_exception(impl_->failure);
  } catch (const std::exception& error) {
    log_error("the last checkpoint was not saved: {}", error.what());
  }
}

std::string CheckpointWriter::save(StateStore& states, const CheckpointMeta& meta) {
  impl_->rethrow();
  if (impl_->options.wait_for_proof) impl_->retire(impl_->newest);
  const std::string name = checkpoint_name(meta.train.step);
  std::vector<LogicalGroup> groups = impl_->settle(states.states());
  if (!impl_->options.async) {
    LiveBytes live(states);
    impl_->save_now(name, groups, live, meta);
  } else {
    impl_->take_snapshot(states, groups);
    impl_->thread = std::thread([impl = impl_.get(), name, groups = std::move(groups), meta] {
      try {
        impl->save_now(name, groups, impl->snapshot, meta);
      } catch (...) {
        impl->failure = std::current_exception();
      }
    });
  }
  return join_path(impl_->root, name);
}

std::string CheckpointWriter::save_diagnostic(StateStore& states, const CheckpointMeta& meta) {
  impl_->join();
  const std::string name = "diagnostic-" + checkpoint_name(meta.train.step);
  LiveBytes live(states);
  const std::vector<LogicalGroup> groups = impl_->settle(states.states());
  impl_->write_and_commit(name, groups, live, meta, false);
  return join_path(impl_->root, name);
}

void CheckpointWriter::retire() {
  wait();
  impl_->retire(impl_->newest);
}

void CheckpointWriter::wait() { impl_->rethrow(); }

}  // namespace weft
