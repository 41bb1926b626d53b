// Collectives of processes. Every member exchanges pieces directly with every other, in rounds of
// at most one chunk per member, so that the workspace is small, no count is large, a rank that does
// not answer can be named, and each byte is received once.
#include <algorithm>
#include <cstring>

#include "weft/comm/collective_call.h"
#include "weft/comm/combine.h"
#include "weft/comm/mpi/mpi_world.h"
#include "weft/comm/stream.h"

namespace weft {
namespace {

/// One direction of an exchange: a stream per member, and the tensors they lie in.
struct Side {
  std::vector<Stream> streams;
  const std::vector<std::byte*>* tensors = nullptr;
  bool same = false;  // all members get the same
};

class MpiCollective final : public Kernel {
 public:
  MpiCollective(MpiWorld& world, Traffic& traffic, CollectiveCall call)
      : world_(world),
        traffic_(traffic.counter(call.spec.axis)),
        call_(std::move(call)),
        me_(call_.spec.index),
        tag_(world.group_tag(call_.group)),
        requests_(2 * call_.group.size()),
        inputs_(call_.tensors()),
        outputs_(call_.tensors()),
        sources_(call_.group.size()) {
    set_streams();
    set_chunk();
  }

  void run(const KernelArgs& args) override {
    world_.check_fault();
    for (size_t t = 0; t < call_.tensors(); ++t) {
      // Inputs are only read; the type is shared with outputs.
      inputs_[t] = static_cast<std::byte*>(const_cast<void*>(args.inputs[t]));
      outputs_[t] = static_cast<std::byte*>(args.outputs[t]);
    }
    workspace_ = static_cast<std::byte*>(args.workspace);
    switch (call_.spec.kind) {
      case CollectiveKind::all_reduce:
        exchange(parts_, sums_, true);
        exchange(own_sums_, all_sums_, false);
        break;
      case CollectiveKind::reduce_scatter: exchange(parts_, sums_, true); break;
      case CollectiveKind::all_gather:
      case CollectiveKind::all_to_all:
        copy_own();
        exchange(parts_, wholes_, false);
        break;
    }
  }

 private:
  Side side(const std::vector<std::byte*>& tensors) const {
    return {std::vector<Stream>(call_.group.size()), &tensors, false};
  }

  void set_streams() {
    const bool all_reduce = call_.spec.kind == CollectiveKind::all_reduce;
    parts_ = side(inputs_);
    sums_ = side(outputs_);
    own_sums_ = side(outputs_);
    all_sums_ = side(outputs_);
    wholes_ = side(outputs_);
    parts_.same = call_.spec.kind == CollectiveKind::all_gather;
    own_sums_.same = true;
    for (size_t t = 0; t < call_.tensors(); ++t) {
      const CollectiveTensor& tensor = call_.spec.tensors[t];
      const bool exchange = call_.spec.kind == CollectiveKind::all_to_all;
      const Region mine = exchange ? Region{} : piece_region(tensor.view, me_);
      for (int m = 0; m < call_.members(); ++m) {
        const auto at = static_cast<size_t>(m);
        switch (call_.spec.kind) {
          case CollectiveKind::all_reduce:
          case CollectiveKind::reduce_scatter: {
            const Region piece = piece_region(tensor.view, m);
            parts_.streams[at].add(t, piece);
            sums_.streams[at].add(t, all_reduce ? mine : flat_region(0, mine.elements()));
            own_sums_.streams[at].add(t, mine);
            all_sums_.streams[at].add(t, piece);
            break;
          }
          case CollectiveKind::all_gather:
            parts_.streams[at].add(t, flat_region(0, mine.elements()));
            wholes_.streams[at].add(t, piece_region(tensor.view, m));
            break;
          case CollectiveKind::all_to_all:
            parts_.streams[at].add(t, exchange_source(tensor, me_, m));
            wholes_.streams[at].add(t, exchange_target(tensor, m, me_));
            break;
        }
      }
    }
  }

  /// Chunks such that one per member to send and one to receive fit the workspace, and the same on
  /// all members.
  void set_chunk() {
    constexpr int64_t kAlign = 64;
    const int64_t others = std::max(call_.members() - 1, 1);
    const int64_t fair = call_.logical_elements * call_.element_bytes / others / kAlign * kAlign;
    chunk_ = std::clamp(fair, kAlign, kCollectiveChunkBytes) / call_.element_bytes;
  }

  std::byte* send_slot(int member) const { return slot(member < me_ ? member : member - 1); }
  std::byte* receive_slot(int member) const {
    return slot(call_.members() - 1 + (member < me_ ? member : member - 1));
  }
  std::byte* slot(int index) const { return workspace_ + index * chunk_ * call_.element_bytes; }

  std::byte* place(const Side& side, const Stream::Place& place) const {
    return (*side.tensors)[static_cast<size_t>(place.tensor)] + place.offset * call_.element_bytes;
  }

  /// Sends the streams of `from` and receives those of `to`; with `reduce` what comes are the
  /// others' contributions to the sum that belongs into the stream of this member.
  void exchange(const Side& from, const Side& to, bool reduce) {
    const auto mine = static_cast<size_t>(me_);
    int64_t longest = to.streams[mine].elements();
    for (const Stream& stream : from.streams) longest = std::max(longest, stream.elements());
    for (const Stream& stream : to.streams) longest = std::max(longest, stream.elements());
    for (int64_t begin = 0; begin < longest; begin += chunk_) {
      requests_.clear();
      const int64_t bytes = post_receives(to, begin, reduce);
      post_sends(from, begin);
      world_.wait(requests_, call_.name, world_.stall_seconds());
      traffic_.fetch_add(bytes, std::memory_order_relaxed);
      if (reduce) {
        combine_round(from.streams[mine], to, begin);
      } else {
        unpack_round(to, begin);
      }
    }
  }

  int64_t round_end(const Stream& stream, int64_t begin) const {
    return std::min(stream.elements(), begin + chunk_);
  }

  /// The others, beginning with the next one: not all send to the same member at once.
  template <class Fn>
  void for_others(Fn&& fn) const {
    for (int i = 1; i < call_.members(); ++i) fn((me_ + i) % call_.members());
  }

  /// Returns the bytes that will come.
  int64_t post_receives(const Side& to, int64_t begin, bool reduce) {
    int64_t received = 0;
    for_others([&](int m) {
      const Stream& stream = to.streams[static_cast<size_t>(m)];
      const int64_t end = round_end(stream, begin);
      if (begin >= end) return;
      const Stream::Place direct = reduce ? Stream::Place{} : stream.place(begin, end);
      const int64_t bytes = (end - begin) * call_.element_bytes;
      world_.receive(requests_, direct.tensor >= 0 ? place(to, direct) : receive_slot(m), bytes,
                     call_.group[static_cast<size_t>(m)], tag_, world_.collectives());
      received += bytes;
    });
    return received;
  }

  void post_sends(const Side& from, int64_t begin) {
    std::byte* data = nullptr;
    for_others([&](int m) {
      const Stream& stream = from.streams[static_cast<size_t>(m)];
      const int64_t end = round_end(stream, begin);
      if (begin >= end) return;
      const Stream::Place direct = stream.place(begin, end);
      if (direct.tensor >= 0) {
        data = place(from, direct);
      } else if (data == nullptr || !from.same) {
        data = send_slot(m);
        stream.for_runs(begin, end, [&](size_t t, int64_t offset, int64_t at, int64_t count) {
          std::memcpy(data + (at - begin) * call_.element_bytes,
                      (*from.tensors)[t] + offset * call_.element_bytes,
                      static_cast<size_t>(count * call_.element_bytes));
        });
      }
      world_.send(requests_, data, (end - begin) * call_.element_bytes,
                  call_.group[static_cast<size_t>(m)], tag_, world_.collectives());
    });
  }

  void unpack_round(const Side& to, int64_t begin) const {
    for_others([&](int m) {
      const Stream& stream = to.streams[static_cast<size_t>(m)];
      const int64_t end = round_end(stream, begin);
      if (begin >= end || stream.place(begin, end).tensor >= 0) return;
      const std::byte* data = receive_slot(m);
      stream.for_runs(begin, end, [&](size_t t, int64_t offset, int64_t at, int64_t count) {
        std::memcpy((*to.tensors)[t] + offset * call_.element_bytes,
                    data + (at - begin) * call_.element_bytes,
                    static_cast<size_t>(count * call_.element_bytes));
      });
    });
  }

  /// Combines the round's contributions of all members, this one's read from its input.
  void combine_round(const Stream& own, const Side& to, int64_t begin) {
    const Stream& target = to.streams[static_cast<size_t>(me_)];
    own.for_runs(begin, round_end(own, begin),
                 [&](size_t t, int64_t offset, int64_t at, int64_t count) {
                   for (int m = 0; m < call_.members(); ++m) {
                     sources_[static_cast<size_t>(m)] =
                         m == me_ ? inputs_[t] + offset * call_.element_bytes
                                  : receive_slot(m) + (at - begin) * call_.element_bytes;
                   }
                   // Sums lie together in each tensor, so a run of the input is one of the output.
                   combine(call_.spec.dtype, call_.spec.reduction, sources_,
                           place(to, target.place(at, at + count)), count);
                 });
  }

  void copy_own() {
    for (size_t t = 0; t < call_.tensors(); ++t) {
      const CollectiveTensor& tensor = call_.spec.tensors[t];
      if (call_.spec.kind == CollectiveKind::all_to_all) {
        copy_region(exchange_source(tensor, me_, me_), inputs_[t],
                    exchange_target(tensor, me_, me_), outputs_[t], call_.element_bytes);
      } else {
        const Region piece = piece_region(tensor.view, me_);
        copy_region(flat_region(0, piece.elements()), inputs_[t], piece, outputs_[t],
                    call_.element_bytes);
      }
    }
  }

  MpiWorld& world_;
  std::atomic<int64_t>& traffic_;
  const CollectiveCall call_;
  const int me_;
  const int tag_;
  MpiRequests requests_;
  std::vector<std::byte*> inputs_;
  std::vector<std::byte*> outputs_;
  std::vector<const std::byte*> sources_;  // of one run of elements, per member
  std::byte* workspace_ = nullptr;
  int64_t chunk_ = 0;  // elements

  Side parts_;     // what goes out
  Side sums_;      // reductions: this member's piece of the output, once per contribution
  Side own_sums_;  // all_reduce: this member's sums, on their way to the others
  Side all_sums_;  // all_reduce: the sums of all
  Side wholes_;    // all_gather, all_to_all: what comes in
};

}  // namespace

std::unique_ptr<Kernel> make_mpi_collective(MpiWorld& world, Traffic& traffic,
                                            const KernelSpec& spec,
                                            std::span<const int32_t> group) {
  return std::make_unique<MpiCollective>(world, traffic,
                                         collective_call(spec, group, world.rank(), world.size()));
}

}  // namespace weft
