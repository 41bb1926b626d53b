#include <fmt/core.h>

#include "weft/backend/backend_entries.h"
#include "weft/base/error.h"

namespace weft {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Backend> (*make)(const BackendOptions&);
};

constexpr Entry kBackends[] = {
#define WEFT_BACKEND(name) {#name, &make_##name##_backend},
#include "weft/backend/backend_list.def"
#undef WEFT_BACKEND
};

}  // namespace

std::unique_ptr<Backend> make_backend(std::string_view name, const BackendOptions& options) {
  std::string known;
  for (const Entry& entry : kBackends) {
    if (entry.name == name) return entry.make(options);
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw UsageError("device.backend",
                   fmt::format("got \"{}\", expected one of {}; try \"cpu\"", name, known));
}

}  // namespace weft
