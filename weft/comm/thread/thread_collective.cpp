// Collectives of threads: each member reads what it needs straight from the memory of the others.
#include <cstring>

#include "weft/base/check.h"
#include "weft/comm/collective_call.h"
#include "weft/comm/combine.h"
#include "weft/comm/region.h"
#include "weft/comm/thread/thread_world.h"

namespace weft {
namespace {

const std::byte* bytes_of(const void* data) { return static_cast<const std::byte*>(data); }
std::byte* bytes_of(void* data) { return static_cast<std::byte*>(data); }

class ThreadCollective final : public Kernel {
 public:
  ThreadCollective(ThreadWorld& world, Traffic& traffic, CollectiveCall call)
      : world_(world),
        group_(world.group(call.group)),
        traffic_(traffic.counter(call.spec.axis)),
        call_(std::move(call)),
        me_(call_.spec.index),
        sources_(static_cast<size_t>(call_.members())) {}

  void run(const KernelArgs& args) override {
    group_.calls[static_cast<size_t>(me_)] = {&args, &call_.signature};
    group_.meeting.meet(me_, call_.name);
    received_ = 0;
    try {
      check_signatures();
      switch (call_.spec.kind) {
        case CollectiveKind::all_reduce: reduce(args); break;
        case CollectiveKind::reduce_scatter: reduce(args); break;
        case CollectiveKind::all_gather: gather(args); break;
        case CollectiveKind::all_to_all: exchange(args); break;
      }
      if (call_.spec.kind == CollectiveKind::all_reduce) {
        group_.meeting.meet(me_, call_.name);
        gather_sums(args);
      }
    } catch (const PeerError&) {
      throw;  // of meet(): has left already
    } catch (...) {
      world_.abort(group_.meeting.members()[static_cast<size_t>(me_)],
                   error_data(std::current_exception()).text);
      group_.meeting.leave_after_failure(me_);
      throw;
    }
    traffic_.fetch_add(received_, std::memory_order_relaxed);
    group_.meeting.meet(me_, call_.name, Meeting::Then::go);  // the others have read
  }

 private:
  const KernelArgs& args_of(int member) const {
    return *group_.calls[static_cast<size_t>(member)].args;
  }

  void check_signatures() const {
    for (int i = 0; i < call_.members(); ++i) {
      const std::string& other = *group_.calls[static_cast<size_t>(i)].signature;
      WEFT_CHECK(other == call_.signature, "comm", "got {} on rank {} and {} on rank {}",
                 call_.signature, call_.group[static_cast<size_t>(me_)], other,
                 call_.group[static_cast<size_t>(i)]);
    }
  }

  /// The others, beginning with the next one: not all read from the same member at once.
  template <class Fn>
  void for_others(Fn&& fn) {
    for (int i = 1; i < call_.members(); ++i) fn((me_ + i) % call_.members());
  }

  void copy(const Region& from, const void* source, const Region& to, void* target, int member) {
    if (source == target && from.offset == to.offset && from.contiguous()) return;
    copy_region(from, bytes_of(source), to, bytes_of(target), call_.element_bytes);
    if (member != me_) received_ += from.elements() * call_.element_bytes;
  }

  /// Sums the own piece of all members' inputs.
  void reduce(const KernelArgs& args) {
    const bool whole_output = call_.spec.kind == CollectiveKind::all_reduce;
    for (size_t t = 0; t < call_.tensors(); ++t) {
      const Region piece = piece_region(call_.spec.tensors[t].view, me_);
      const int64_t elements = piece.elements();
      std::byte* out = bytes_of(args.outputs[t]);
      if (whole_output && elements > 0) out += piece.offset * call_.element_bytes;
      RegionCursor cursor(piece);
      for (int64_t done = 0; done < elements;) {
        const int64_t count = cursor.left();
        for (int m = 0; m < call_.members(); ++m) {
          sources_[static_cast<size_t>(m)] =
              bytes_of(args_of(m).inputs[t]) + cursor.offset() * call_.element_bytes;
        }
        combine(call_.spec.dtype, call_.spec.reduction, sources_, out + done * call_.element_bytes,
                count);
        received_ += count * call_.element_bytes * (call_.members() - 1);
        cursor.advance(count);
        done += count;
      }
    }
  }

  /// all_reduce: the sums of the others.
  void gather_sums(const KernelArgs& args) {
    for (size_t t = 0; t < call_.tensors(); ++t) {
      for_others([&](int m) {
        const Region piece = piece_region(call_.spec.tensors[t].view, m);
        copy(piece, args_of(m).outputs[t], piece, args.outputs[t], m);
      });
    }
  }

  void gather(const KernelArgs& args) {
    for (size_t t = 0; t < call_.tensors(); ++t) {
      const auto take = [&](int m) {
        const Region piece = piece_region(call_.spec.tensors[t].view, m);
        copy(flat_region(0, piece.elements()), args_of(m).inputs[t], piece, args.outputs[t], m);
      };
      take(me_);
      for_others(take);
    }
  }

  void exchange(const KernelArgs& args) {
    for (size_t t = 0; t < call_.tensors(); ++t) {
      const CollectiveTensor& tensor = call_.spec.tensors[t];
      const auto take = [&](int m) {
        copy(exchange_source(tensor, m, me_), args_of(m).inputs[t], exchange_target(tensor, m, me_),
             args.outputs[t], m);
      };
      take(me_);
      for_others(take);
    }
  }

  ThreadWorld& world_;
  ThreadGroup& group_;
  std::atomic<int64_t>& traffic_;
  const CollectiveCall call_;
  const int me_;
  std::vector<const std::byte*> sources_;  // of one run of elements, per member
  int64_t received_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_thread_collective(ThreadWorld& world, Traffic& traffic,
                                               const KernelSpec& spec,
                                               std::span<const int32_t> group, int rank) {
  return std::make_unique<ThreadCollective>(world, traffic,
                                            collective_call(spec, group, rank, world.size()));
}

}  // namespace weft
