#include "weft/runtime/tier_memory.h"

#include <fmt/core.h>

#include <cstring>

#include "weft/backend/host_arena.h"
#include "weft/base/check.h"
#include "weft/base/raise.h"

namespace weft {
namespace {

/// Between device and host, or inside one of them.
class CopyTransfer final : public Transfer {
 public:
  CopyTransfer(Backend& backend, Tier from, const std::byte* source, Tier to, std::byte* target,
               int64_t bytes)
      : backend_(backend), from_(from), to_(to), source_(source), target_(target), bytes_(bytes) {}
  void begin() override {
    if (to_ == Tier::device && from_ == Tier::host) {
      backend_.copy_to_device(target_, source_, bytes_);
    } else if (to_ == Tier::host && from_ == Tier::device) {
      backend_.copy_to_host(target_, source_, bytes_);
    } else if (bytes_ > 0) {
      std::memcpy(target_, source_, static_cast<size_t>(bytes_));
    }
  }
  void finish() override {}

 private:
  Backend& backend_;
  Tier from_, to_;
  const std::byte* source_;
  std::byte* target_;
  int64_t bytes_;
};

class ColdRead final : public Transfer {
 public:
  ColdRead(ColdStore& store, int64_t address, std::byte* target, int64_t bytes)
      : store_(store), address_(address), target_(target), bytes_(bytes) {}
  void begin() override { transfer_ = store_.begin_read(address_, target_, bytes_); }
  void finish() override { store_.wait(transfer_); }

 private:
  ColdStore& store_;
  int64_t address_;
  std::byte* target_;
  int64_t bytes_;
  ColdTransfer transfer_;
};

class ColdWrite final : public Transfer {
 public:
  ColdWrite(ColdStore& store, int64_t address, const std::byte* source, int64_t bytes)
      : store_(store), address_(address), source_(source), bytes_(bytes) {}
  void begin() override { transfer_ = store_.begin_write(address_, source_, bytes_); }
  void finish() override { store_.wait(transfer_); }

 private:
  ColdStore& store_;
  int64_t address_;
  const std::byte* source_;
  int64_t bytes_;
  ColdTransfer transfer_;
};

}  // namespace

TierMemory::TierMemory(const Plan& plan, Backend& backend, const ColdOptions* cold)
    : plan_(plan), backend_(backend) {
  const auto bytes_of = [&](Tier tier) {
    const int64_t held = tier == Tier::host ? plan.snapshot_bytes : 0;
    return plan.tiers[static_cast<size_t>(tier)].peak_bytes - held;
  };
  const auto check = [&](const std::unique_ptr<DeviceArena>& arena, Tier tier) {
    WEFT_CHECK(arena != nullptr && arena->bytes() == bytes_of(tier), "session",
               "got another arena of tier {} than the {} bytes asked for", tier_name(tier),
               bytes_of(tier));
  };
  for (const Tier tier : {Tier::device, Tier::host}) {
    const int64_t bytes = bytes_of(tier);
    if (bytes == 0) continue;
    auto& arena = arenas_[static_cast<size_t>(tier)];
    try {
      arena = tier == Tier::device ? backend.allocate(bytes) : allocate_host_arena(bytes);
    } catch (const ResourceError& error) {
      raise(error.code(), fmt::format("{} memory", tier_name(tier)), error.what());
    }
    check(arena, tier);
  }
  const int64_t cold_bytes = bytes_of(Tier::nvme);
  if (cold_bytes == 0) return;
  WEFT_CHECK(cold != nullptr, "session", "the plan has {} bytes in the cold tier and no folders",
             cold_bytes);
  ColdOptions options = *cold;
  options.bytes = cold_bytes;
  options.rank = plan.rank;
  cold_ = ColdStore::open(options);
  for (const auto& arena : arenas_) {
    if (arena) cold_->register_memory(arena->data(), arena->bytes());
  }
}

Tier TierMemory::tier(int32_t id) const { return buffer(id).tier; }

std::byte* TierMemory::address(int32_t id) const {
  const PlanBuffer& b = buffer(id);
  if (b.tier == Tier::nvme) return nullptr;
  return arenas_[static_cast<size_t>(b.tier)]->data() + b.offset;
}

void TierMemory::write(int32_t id, int64_t offset, const void* data, int64_t bytes) {
  if (bytes == 0) return;
  switch (tier(id)) {
    case Tier::device: backend_.copy_to_device(address(id) + offset, data, bytes); return;
    case Tier::host: std::memcpy(address(id) + offset, data, static_cast<size_t>(bytes)); return;
    case Tier::nvme: cold_->write(buffer(id).offset + offset, data, bytes); return;
  }
}

void TierMemory::read(int32_t id, int64_t offset, void* data, int64_t bytes) {
  if (bytes == 0) return;
  switch (tier(id)) {
    case Tier::device: backend_.copy_to_host(data, address(id) + offset, bytes); return;
    case Tier::host: std::memcpy(data, address(id) + offset, static_cast<size_t>(bytes)); return;
    case Tier::nvme: cold_->read(buffer(id).offset + offset, data, bytes); return;
  }
}

bool TierMemory::made_zeroed(Tier tier) const {
  if (tier == Tier::nvme) return false;
  const auto& arena = arenas_[static_cast<size_t>(tier)];
  return arena && arena->made_zeroed();
}

std::unique_ptr<Transfer> TierMemory::transfer(const PlanStep& step) {
  const OpDef& def = op_def(step.op);
  const bool is_store = !def.aliases.empty();
  const int32_t from = step.inputs[0];
  const int32_t to = step.outputs[0];
  // A load moves a piece of its source, a store fills a piece of its target.
  const int64_t element = dtype_size(step.input_types[0].dtype);
  const int64_t begin = step.attrs.get_int("begin", 0) * element;
  const int64_t bytes = is_store ? step.input_types[0].bytes() : step.output_types[0].bytes();
  const int64_t source_offset = is_store ? 0 : begin;
  const int64_t target_offset = is_store ? begin : 0;
  if (tier(from) == Tier::nvme) {
    return std::make_unique<ColdRead>(*cold_, buffer(from).offset + source_offset,
                                      address(to) + target_offset, bytes);
  }
  if (tier(to) == Tier::nvme) {
    return std::make_unique<ColdWrite>(*cold_, buffer(to).offset + target_offset,
                                       address(from) + source_offset, bytes);
  }
  return std::make_unique<CopyTransfer>(backend_, tier(from), address(from) + source_offset,
                                        tier(to), address(to) + target_offset, bytes);
}

int64_t TierMemory::used_bytes(Tier tier) const {
  if (tier == Tier::nvme) return cold_ ? plan_.tiers[static_cast<size_t>(tier)].peak_bytes : 0;
  const auto& arena = arenas_[static_cast<size_t>(tier)];
  const int64_t snapshot = tier == Tier::host ? plan_.snapshot_bytes : 0;
  return (arena ? arena->bytes() : 0) + snapshot;
}

}  // namespace weft
