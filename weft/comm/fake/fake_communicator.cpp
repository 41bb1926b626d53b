// A communicator without other ranks.
#include <algorithm>
#include <cstring>

#include "weft/base/check.h"
#include "weft/comm/collective_call.h"
#include "weft/comm/fault.h"
#include "weft/comm/launch.h"
#include "weft/comm/region.h"

namespace weft {
namespace {

class FakeCollective final : public Kernel {
 public:
  FakeCollective(const Fault& fault, CollectiveCall call) : fault_(fault), call_(std::move(call)) {}

  void run(const KernelArgs& args) override {
    if (fault_.raised()) fault_.throw_peer_error();
    for (size_t t = 0; t < call_.tensors(); ++t) {
      const auto* in = static_cast<const std::byte*>(args.inputs[t]);
      auto* out = static_cast<std::byte*>(args.outputs[t]);
      const CollectiveTensor& tensor = call_.spec.tensors[t];
      const int me = call_.spec.index;
      const int64_t size = call_.element_bytes;
      switch (call_.spec.kind) {
        case CollectiveKind::all_reduce:
          if (in != out && tensor.view.elements() > 0) {
            std::memcpy(out, in, static_cast<size_t>(tensor.view.elements() * size));
          }
          break;
        case CollectiveKind::reduce_scatter: {
          const Region piece = piece_region(tensor.view, me);
          copy_region(piece, in, flat_region(0, piece.elements()), out, size);
          break;
        }
        case CollectiveKind::all_gather: {
          const Region mine = flat_region(0, tensor.view.piece_elements(me));
          for (int m = 0; m < call_.members(); ++m) {
            fill(mine, in, piece_region(tensor.view, m), out);
          }
          break;
        }
        case CollectiveKind::all_to_all:
          for (int m = 0; m < call_.members(); ++m) {
            fill(exchange_source(tensor, me, me), in, exchange_target(tensor, m, me), out);
          }
          break;
      }
    }
  }

 private:
  /// Fills `to` with the elements of `from`, repeated or cut to fit; zeros when there are none.
  void fill(const Region& from, const std::byte* source, const Region& to, std::byte* target) {
    const int64_t size = call_.element_bytes;
    RegionCursor write(to);
    RegionCursor read(from);
    for (int64_t left = to.elements(); left > 0;) {
      if (read.left() == 0) read = RegionCursor(from);
      const int64_t count = read.left() == 0 ? write.left() : std::min(read.left(), write.left());
      std::byte* place = target + write.offset() * size;
      if (read.left() == 0) {
        std::memset(place, 0, static_cast<size_t>(count * size));
      } else {
        std::memcpy(place, source + read.offset() * size, static_cast<size_t>(count * size));
        read.advance(count);
      }
      write.advance(count);
      left -= count;
    }
  }

  const Fault& fault_;
  const CollectiveCall call_;
};

class FakeCommunicator final : public Communicator {
 public:
  FakeCommunicator(int rank, int world) : rank_(rank), world_(world) {
    WEFT_CHECK(world > 0 && rank >= 0 && rank < world, "comm", "got rank {} of {}", rank, world);
  }

  std::string_view name() const override { return "fake"; }
  int rank() const override { return rank_; }
  int world() const override { return world_; }

  std::unique_ptr<Kernel> prepare(const KernelSpec& spec, std::span<const int32_t> group) override {
    return std::make_unique<FakeCollective>(fault_, collective_call(spec, group, rank_, world_));
  }
  /// All ranks say the same.
  std::vector<std::string> gather(Channel, std::string_view message) override {
    check();
    if (rank_ != 0) return {};
    return std::vector<std::string>(static_cast<size_t>(world_), std::string(message));
  }
  std::string broadcast(Channel, std::string_view message) override {
    check();
    return std::string(message);
  }
  void barrier(Channel) override { check(); }
  void abort(std::string_view cause) noexcept override { fault_.raise(rank_, cause); }
  std::map<std::string, int64_t> received() const override { return {}; }

 private:
  void check() const {
    if (fault_.raised()) fault_.throw_peer_error();
  }

  const int rank_;
  const int world_;
  Fault fault_;
};

}  // namespace

std::unique_ptr<Communicator> make_fake_communicator(int rank, int world) {
  return std::make_unique<FakeCommunicator>(rank, world);
}

}  // namespace weft
