// The entry points of backend_list.def: what make_backend and the backends' folders agree on.
#pragma once

#include <memory>

#include "weft/backend/backend.h"

namespace weft {

#define WEFT_BACKEND(name) \
  std::unique_ptr<Backend> make_##name##_backend(const BackendOptions& options);
#include "weft/backend/backend_list.def"
#undef WEFT_BACKEND

}  // namespace weft
