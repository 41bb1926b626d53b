#include <liburing.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

#include "weft/base/check.h"
#include "weft/io/cold/io_engine.h"

namespace weft {
namespace {

/// The kernel takes at most this much as one registered buffer.
constexpr int64_t kMaxSlice = int64_t{1} << 30;
/// Times a submission may be refused for want of memory before that is an error.
constexpr int kMaxRefusals = 1000;

class UringEngine final : public IoEngine {
 public:
  UringEngine(const std::vector<int>& handles, int depth, int* error) {
    // COOP_TASKRUN spares the interrupts of other cores; kernels before 5.19 do not know it.
    const auto entries = static_cast<unsigned>(depth);
    int result = io_uring_queue_init(entries, &ring_, IORING_SETUP_COOP_TASKRUN);
    if (result == -EINVAL) result = io_uring_queue_init(entries, &ring_, 0);
    if (result < 0) {
      *error = -result;
      return;
    }
    made_ = true;
    result = io_uring_register_files(&ring_, handles.data(), static_cast<unsigned>(handles.size()));
    *error = -result;
  }
  ~UringEngine() override {
    if (made_) io_uring_queue_exit(&ring_);
  }
  UringEngine(const UringEngine&) = delete;
  UringEngine& operator=(const UringEngine&) = delete;

  std::string name() const override { return "io_uring"; }

  void submit(std::span<const IoRequest> requests) override {
    for (const IoRequest& request : requests) {
      io_uring_sqe* entry = io_uring_get_sqe(&ring_);
      WEFT_CHECK(entry != nullptr, "io_uring", "more requests than its depth are in flight");
      prepare(entry, request);
    }
    // What is refused now stays in the ring and is offered again by wait().
    check_submitted(io_uring_submit(&ring_));
  }

  void wait(std::vector<IoResult>& results) override {
    const size_t before = results.size();
    while (results.size() == before) {
      check_submitted(io_uring_submit_and_wait(&ring_, 1));
      io_uring_cqe* entry = nullptr;
      unsigned head = 0;
      unsigned count = 0;
      io_uring_for_each_cqe(&ring_, head, entry) {
        results.push_back({entry->user_data, entry->res});
        ++count;
      }
      io_uring_cq_advance(&ring_, count);
    }
  }

  int register_memory(char* data, int64_t bytes) override {
    std::vector<iovec> slices = slices_;
    for (int64_t at = 0; at < bytes; at += kMaxSlice) {
      slices.push_back({data + at, static_cast<size_t>(std::min(kMaxSlice, bytes - at))});
    }
    std::sort(slices.begin(), slices.end(),
              [](const iovec& a, const iovec& b) { return a.iov_base < b.iov_base; });
    if (!slices_.empty()) io_uring_unregister_buffers(&ring_);
    const int result =
        io_uring_register_buffers(&ring_, slices.data(), static_cast<unsigned>(slices.size()));
    if (result == 0) {
      slices_ = std::move(slices);
      return 0;
    }
    // The old ones were pinned before, so they can be pinned again; if not, none is.
    if (!slices_.empty() && io_uring_register_buffers(&ring_, slices_.data(),
                                                      static_cast<unsigned>(slices_.size())) != 0) {
      slices_.clear();
    }
    return -result;
  }

 private:
  void prepare(io_uring_sqe* entry, const IoRequest& request) {
    const auto bytes = static_cast<unsigned>(request.bytes);
    const auto offset = static_cast<uint64_t>(request.offset);
    const int slice = slice_of(request);
    if (slice >= 0 && request.write) {
      io_uring_prep_write_fixed(entry, request.file, request.data, bytes, offset, slice);
    } else if (slice >= 0) {
      io_uring_prep_read_fixed(entry, request.file, request.data, bytes, offset, slice);
    } else if (request.write) {
      io_uring_prep_write(entry, request.file, request.data, bytes, offset);
    } else {
      io_uring_prep_read(entry, request.file, request.data, bytes, offset);
    }
    io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data64(entry, request.tag);
  }

  /// Position of the registered slice that holds the whole request, -1 when none does.
  int slice_of(const IoRequest& request) const {
    const auto after = std::upper_bound(
        slices_.begin(), slices_.end(), request.data,
        [](const char* data, const iovec& slice) { return data < slice.iov_base; });
    if (after == slices_.begin()) return -1;
    const auto slice = after - 1;
    const char* end = static_cast<const char*>(slice->iov_base) + slice->iov_len;
    return request.data + request.bytes <= end ? static_cast<int>(slice - slices_.begin()) : -1;
  }

  void check_submitted(int result) {
    if (result >= 0) {
      refusals_ = 0;
      return;
    }
    const bool again = result == -EINTR || result == -EAGAIN || result == -EBUSY;
    if (result == -EINTR || (again && ++refusals_ < kMaxRefusals)) return;
    throw ResourceError("io_uring", fmt::format("got \"{}\" for a submission, expected it to be "
                                                "accepted; try freeing memory",
                                                errno_text(-result)));
  }

  io_uring ring_{};
  bool made_ = false;
  std::vector<iovec> slices_;  // by address
  int refusals_ = 0;
};

}  // namespace

std::unique_ptr<IoEngine> make_uring_engine(const std::vector<int>& handles, int depth,
                                            int* error) {
  *error = 0;
  auto engine = std::make_unique<UringEngine>(handles, depth, error);
  if (*error != 0) return nullptr;
  return engine;
}

}  // namespace weft
