#include "weft/ir/tier.h"

#include "weft/base/error.h"

namespace weft {

std::string_view tier_name(Tier tier) {
  switch (tier) {
    case Tier::device: return "device";
    case Tier::host: return "host";
    case Tier::nvme: return "nvme";
  }
  throw BugError("tier", "unknown tier");
}

}  // namespace weft
