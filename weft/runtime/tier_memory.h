// The memory of one rank in all three tiers, and the transfers between them. Internal to runtime/.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "weft/backend/backend.h"
#include "weft/io/cold/cold_store.h"
#include "weft/plan/plan.h"

namespace weft {

/// A transfer step. run() is begin() and finish(); a lane that may keep several under way calls
/// those. One object per step.
class Transfer : public Kernel {
 public:
  void run(const KernelArgs&) override {
    begin();
    finish();
  }
  virtual void begin() = 0;
  virtual void finish() = 0;
};

class TierMemory {
 public:
  /// Allocates what the plan says. `cold` names the folders when the plan uses the nvme tier.
  /// Throws ResourceError when memory or disk is not there. Arguments must outlive the object.
  TierMemory(const Plan& plan, Backend& backend, const ColdOptions* cold);

  /// Start of a buffer in device or host memory; nullptr in the cold tier.
  std::byte* address(int32_t buffer) const;
  /// Between host memory of the caller and a buffer in any tier; complete on return. `offset` and
  /// `bytes` count bytes; a buffer of the cold tier is written by one thread at a time, at
  /// multiples of kColdAlignment.
  void write(int32_t buffer, int64_t offset, const void* data, int64_t bytes);
  void read(int32_t buffer, int64_t offset, void* data, int64_t bytes);
  Tier tier(int32_t buffer) const;
  /// Whether the tier's memory held zeros when it was made.
  bool made_zeroed(Tier tier) const;

  std::unique_ptr<Transfer> transfer(const PlanStep& step);

  /// Bytes in use; equal to the plan's.
  int64_t used_bytes(Tier tier) const;
  ColdCounters cold_counters() const { return cold_ ? cold_->counters() : ColdCounters{}; }

 private:
  const PlanBuffer& buffer(int32_t id) const { return plan_.buffers[static_cast<size_t>(id)]; }

  const Plan& plan_;
  Backend& backend_;
  std::array<std::unique_ptr<DeviceArena>, 2> arenas_;  // device, host
  std::unique_ptr<ColdStore> cold_;
};

}  // namespace weft
