// IoEngine: asynchronous reads and writes of a few open files, what the cold tier needs of the
// system. Two of them: io_uring (uring_engine.cpp, or no_uring_engine.cpp where liburing was not
// there at build time) and threads that call pread and pwrite (thread_engine.cpp).
//
// Nothing is retried: a result is what the system said, a short count included. An engine serves
// one thread at a time, which must stay alive while requests are in flight (io_uring cancels what
// an ending thread has begun).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace weft {

struct IoRequest {
  uint64_t tag = 0;  // of the caller, unique among the requests in flight
  bool write = false;
  int file = 0;        // position in the handles given to the factory
  int64_t offset = 0;  // in the file
  char* data = nullptr;
  int64_t bytes = 0;
};

struct IoResult {
  uint64_t tag = 0;
  int64_t result = 0;  // bytes done, or -errno
};

class IoEngine {
 public:
  virtual ~IoEngine() = default;

  virtual std::string name() const = 0;
  /// Starts the requests; at most `depth` of the factory may be in flight. Memory of a request
  /// belongs to the engine until its result was given out.
  virtual void submit(std::span<const IoRequest> requests) = 0;
  /// Waits until at least one request ended and appends the results of all that did.
  virtual void wait(std::vector<IoResult>& results) = 0;
  /// Pins memory for requests that lie inside it, while none is in flight. 0, or the errno for
  /// which it stays ordinary memory, which is slower but right.
  virtual int register_memory(char* data, int64_t bytes) = 0;
};

/// Null with *error set to an errno where io_uring is not there or not permitted. The handles stay
/// with the caller and must outlive the engine.
std::unique_ptr<IoEngine> make_uring_engine(const std::vector<int>& handles, int depth, int* error);
std::unique_ptr<IoEngine> make_thread_engine(const std::vector<int>& handles, int depth);

}  // namespace weft
