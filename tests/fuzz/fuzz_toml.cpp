// A configuration is either refused with a UsageError or its TOML form loads back equal.
#include <string>
#include <string_view>

#include "weft/base/check.h"
#include "weft/base/error.h"
#include "weft/config/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  weft::Config config;
  try {
    config = weft::parse_config(text, "fuzz.toml", {});
  } catch (const weft::UsageError&) {
    return 0;
  }
  const std::string toml = weft::config_toml(config);
  const weft::Config again = weft::parse_config(toml, "fuzz.toml", {});
  WEFT_CHECK(weft::config_toml(again) == toml, "fuzz_toml", "changed by a round trip:\n{}", toml);
  return 0;
}
