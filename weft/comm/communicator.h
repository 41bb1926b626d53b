// The communicator contract: collectives of the plan as kernels, and a small control plane. One
// object serves one rank. Implementations: thread (ranks are threads of one process), mpi (each
// process is a rank), fake (planning and tests of one rank: moves nothing).
//
// All implementations combine contributions in the order of the group's members, accumulate bf16
// and f16 in f32 and round once, so that they give the same bits.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/ir/kernel.h"

namespace weft {

/// Control messages of different channels never mix. Within a channel all ranks make the same calls
/// in the same order, each rank from one thread at a time.
enum class Channel : uint8_t { train, checkpoint };
inline constexpr int kNumChannels = 2;

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int world() const = 0;

  /// Prepares a collective among `group`, the sorted world ranks that take part, this one included.
  /// spec: see ops/collective.h; args.workspace has collective_workspace_bytes(spec). Every member
  /// prepares, and later runs, the same collectives of a group in the same order. run() blocks the
  /// calling lane until the result is there; inputs may be changed afterwards. Groups may run at
  /// the same time from several lanes only when they are different groups. Throws PeerError from
  /// run() once any rank has aborted or has not answered for the stall time.
  virtual std::unique_ptr<Kernel> prepare(const KernelSpec& spec,
                                          std::span<const int32_t> group) = 0;

  /// Rank 0 gets the messages of all ranks, in their order; the others an empty list.
  virtual std::vector<std::string> gather(Channel channel, std::string_view message) = 0;
  /// Everybody gets the message of rank 0.
  virtual std::string broadcast(Channel channel, std::string_view message) = 0;
  virtual void barrier(Channel channel) = 0;

  /// Brings all ranks down: those that wait, or will wait, throw PeerError with the first cause and
  /// its rank. Any thread; the first call counts.
  virtual void abort(std::string_view cause) noexcept = 0;

  /// Bytes received from other ranks by collectives since the start, per axis; counted where the
  /// bytes are copied, so that it can be held against the plan.
  virtual std::map<std::string, int64_t> received() const = 0;
};

}  // namespace weft
