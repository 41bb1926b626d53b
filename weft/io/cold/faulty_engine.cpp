#include "weft/io/cold/faulty_engine.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace weft {
namespace {

constexpr int64_t kSector = 512;

}  // namespace

class FaultyEngine final : public IoEngine {
 public:
  FaultyEngine(std::unique_ptr<IoEngine> inner, std::vector<std::string> paths, IoFaults& faults)
      : inner_(std::move(inner)), paths_(std::move(paths)), faults_(faults) {}

  std::string name() const override { return inner_->name(); }

  void submit(std::span<const IoRequest> requests) override {
    std::vector<IoRequest> passed;
    for (IoRequest request : requests) {
      const IoFault fault = faults_.decide(request, paths_[static_cast<size_t>(request.file)]);
      write_ = request.write;
      ++in_flight_;
      if (fault.error != 0) {
        ready_.push_back({request.tag, -int64_t{fault.error}});
        continue;
      }
      if (fault.short_bytes > 0) request.bytes = std::min(request.bytes, fault.short_bytes);
      pending_[request.tag] = {request, fault};
      passed.push_back(request);
    }
    if (!passed.empty()) inner_->submit(passed);
  }

  void wait(std::vector<IoResult>& results) override {
    faults_.call_hook(write_, in_flight_);
    const size_t before = results.size();
    while (results.size() == before) {
      results.insert(results.end(), ready_.begin(), ready_.end());
      ready_.clear();
      if (results.size() == before && !pending_.empty()) take(results);
      release(static_cast<int>(results.size() - before), results);
    }
    in_flight_ -= static_cast<int>(results.size() - before);
  }

  int register_memory(char* data, int64_t bytes) override {
    return inner_->register_memory(data, bytes);
  }

 private:
  struct Pending {
    IoRequest request;
    IoFault fault;
  };
  struct Held {
    IoResult result;
    int left = 0;
  };

  void take(std::vector<IoResult>& results) {
    std::vector<IoResult> inner;
    inner_->wait(inner);
    for (IoResult result : inner) {
      const auto place = pending_.find(result.tag);
      Pending& pending = place->second;
      const IoFault fault = pending.fault;
      if (fault.short_bytes > 0 && result.result == -EINVAL) {
        // Direct I/O moves whole sectors: less than one is reported without a transfer.
        if (pending.request.bytes % kSector != 0 && pending.request.bytes > kSector) {
          pending.request.bytes = pending.request.bytes / kSector * kSector;
          inner_->submit({&pending.request, 1});
          continue;
        }
        result.result = pending.request.bytes;
      }
      char* const data = pending.request.data;
      pending_.erase(place);
      if (fault.flip_byte >= 0 && result.result > 0) {
        data[fault.flip_byte % result.result] ^= 0x10;
      }
      if (fault.hold > 0) {
        held_.push_back({result, fault.hold});
      } else {
        results.push_back(result);
      }
    }
  }

  /// Gives out held results whose turn has come: `passed` others did, or nothing else is left.
  void release(int passed, std::vector<IoResult>& results) {
    const bool all = passed == 0 && pending_.empty() && ready_.empty();
    std::erase_if(held_, [&](Held& held) {
      held.left -= passed;
      if (!all && held.left > 0) return false;
      results.push_back(held.result);
      return true;
    });
  }

  std::unique_ptr<IoEngine> inner_;
  const std::vector<std::string> paths_;
  IoFaults& faults_;
  std::unordered_map<uint64_t, Pending> pending_;
  std::vector<IoResult> ready_;
  std::vector<Held> held_;
  bool write_ = false;
  int in_flight_ = 0;
};

void IoFaults::add(IoFault fault) {
  const std::lock_guard lock(mutex_);
  faults_.push_back({std::move(fault)});
}

void IoFaults::clear() {
  const std::lock_guard lock(mutex_);
  faults_.clear();
  capacity_ = -1;
}

void IoFaults::set_capacity(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  capacity_ = bytes;
}

void IoFaults::set_hook(std::function<void(bool, int)> hook) {
  const std::lock_guard lock(mutex_);
  hook_ = std::move(hook);
}

void IoFaults::call_hook(bool write, int in_flight) {
  std::function<void(bool, int)> hook;
  {
    const std::lock_guard lock(mutex_);
    hook = hook_;
  }
  if (hook) hook(write, in_flight);
}

int64_t IoFaults::requests(bool write) const {
  const std::lock_guard lock(mutex_);
  return requests_[write ? 1 : 0];
}

IoFault IoFaults::decide(const IoRequest& request, const std::string& path) {
  const std::lock_guard lock(mutex_);
  ++requests_[request.write ? 1 : 0];
  IoFault merged;
  for (Armed& armed : faults_) {
    const IoFault& fault = armed.fault;
    if (fault.write != request.write || path.find(fault.path_part) == std::string::npos) continue;
    if (armed.seen++ < fault.skip) continue;
    if (fault.times >= 0 && armed.failed >= fault.times) continue;
    ++armed.failed;
    if (fault.error != 0) merged.error = fault.error;
    if (fault.short_bytes > 0) merged.short_bytes = fault.short_bytes;
    if (fault.flip_byte >= 0) merged.flip_byte = fault.flip_byte;
    merged.hold = std::max(merged.hold, fault.hold);
  }
  if (request.write && capacity_ >= 0 && merged.error == 0) {
    if (capacity_ == 0) {
      merged.error = ENOSPC;
    } else if (capacity_ < request.bytes) {
      merged.short_bytes = capacity_;
    }
    capacity_ -= std::min(capacity_, request.bytes);
  }
  return merged;
}

std::function<std::unique_ptr<IoEngine>(std::unique_ptr<IoEngine>, const std::vector<std::string>&)>
IoFaults::wrapper() {
  return [this](std::unique_ptr<IoEngine> inner, const std::vector<std::string>& paths) {
    return std::make_unique<FaultyEngine>(std::move(inner), paths, *this);
  };
}

}  // namespace weft
