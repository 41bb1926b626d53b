// Stands in for the cuda backend in builds without it.
#include "weft/backend/backend_entries.h"
#include "weft/base/error.h"

namespace weft {

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions&) {
  throw ResourceError("device.backend",
                      "got \"cuda\", expected a backend that is built in: this build has no cuda; "
                      "try \"cpu\"");
}

}  // namespace weft
