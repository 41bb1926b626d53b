#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "weft/base/check.h"
#include "weft/io/cold/io_engine.h"

namespace weft {
namespace {

constexpr int kMaxThreads = 16;

class ThreadEngine final : public IoEngine {
 public:
  ThreadEngine(const std::vector<int>& handles, int depth) : handles_(handles) {
    try {
      for (int i = 0; i < std::min(depth, kMaxThreads); ++i) {
        threads_.emplace_back([this] { work(); });
      }
    } catch (const std::system_error& error) {
      // Fewer threads do the same work; none at all cannot.
      if (threads_.empty()) {
        throw ResourceError("cold tier", fmt::format("got \"{}\" for a thread; try a higher "
                                                     "`ulimit -u`",
                                                     error.what()));
      }
    }
  }
  ~ThreadEngine() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  ThreadEngine(const ThreadEngine&) = delete;
  ThreadEngine& operator=(const ThreadEngine&) = delete;

  std::string name() const override { return fmt::format("{} threads", threads_.size()); }

  void submit(std::span<const IoRequest> requests) override {
    {
      const std::lock_guard lock(mutex_);
      waiting_.insert(waiting_.end(), requests.begin(), requests.end());
    }
    if (requests.size() == 1) {
      wake_.notify_one();
    } else {
      wake_.notify_all();
    }
  }

  void wait(std::vector<IoResult>& results) override {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return !done_.empty(); });
    results.insert(results.end(), done_.begin(), done_.end());
    done_.clear();
  }

  int register_memory(char*, int64_t) override { return 0; }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const IoRequest request = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      const int64_t result = transfer(request);
      lock.lock();
      done_.push_back({request.tag, result});
      ended_.notify_one();
    }
  }

  int64_t transfer(const IoRequest& request) const {
    const int handle = handles_[static_cast<size_t>(request.file)];
    const auto bytes = static_cast<size_t>(request.bytes);
    const ssize_t result = request.write ? ::pwrite(handle, request.data, bytes, request.offset)
                                         : ::pread(handle, request.data, bytes, request.offset);
    return result < 0 ? -int64_t{errno} : int64_t{result};
  }

  const std::vector<int> handles_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_;   // work came, or the end
  std::condition_variable ended_;  // a request ended
  std::deque<IoRequest> waiting_;
  std::vector<IoResult> done_;
  bool ending_ = false;
};

}  // namespace

std::unique_ptr<IoEngine> make_thread_engine(const std::vector<int>& handles, int depth) {
  return std::make_unique<ThreadEngine>(handles, depth);
}

}  // namespace weft
