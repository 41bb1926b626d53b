// Any bytes as a checkpoint manifest: refused with an InputError, or written again it reads equal.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "weft/base/error.h"
#include "weft/checkpoint/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::Manifest manifest;
  try {
    manifest = weft::parse_manifest({reinterpret_cast<const char*>(data), size}, "manifest.json");
  } catch (const weft::InputError&) {
    return 0;
  }
  const std::string text = weft::manifest_text(manifest);
  const weft::Manifest again = weft::parse_manifest(text, "manifest.json");
  if (!again.intact || weft::manifest_text(again) != text) std::abort();
  return 0;
}
