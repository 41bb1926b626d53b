// Values that parse but that this version cannot honour. A key must never be read and ignored, so
// each of them is refused here until the feature behind it lands and its line goes away.
#include <fmt/core.h>

#include "weft/config/schema.h"

namespace weft {

void refuse_unsupported(const Config& c) {
  const auto refuse = [&](bool condition, std::string_view key, std::string_view expected) {
    if (!condition) return;
    refuse_key(c, key,
               fmt::format("got {} = {}, which this version does not support, expected {}; try "
                           "removing the key",
                           key, key_value(*find_key(key), c).dump(), expected));
  };
  refuse(c.parallel.pipeline > 1, "parallel.pipeline", "1");
  refuse(c.parallel.strategy == "auto", "parallel.strategy", "semi or manual");

  refuse(c.monitor.prometheus_port != 0, "monitor.prometheus_port", "0");
  refuse(c.monitor.dashboard_port != 0, "monitor.dashboard_port", "0");
  refuse(c.monitor.bind != "127.0.0.1", "monitor.bind", "127.0.0.1");
}

}  // namespace weft
