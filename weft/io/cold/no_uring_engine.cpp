// Twin of uring_engine.cpp for builds without liburing.
#include <cerrno>

#include "weft/io/cold/io_engine.h"

namespace weft {

std::unique_ptr<IoEngine> make_uring_engine(const std::vector<int>&, int, int* error) {
  *error = ENOSYS;
  return nullptr;
}

}  // namespace weft
