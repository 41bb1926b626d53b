# cmake -D IN=<file> -D OUT=<file.cpp> -D SYMBOL=<name> -P embed_file.cmake
#
# Writes a source that defines `extern const std::string_view weft::<SYMBOL>` with the bytes of IN.
file(READ ${IN} bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" lines "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," array "${lines}")
file(WRITE ${OUT} "#include <string_view>

namespace weft {
namespace {
const char bytes[] = {
${array}
};
}  // namespace
extern const std::string_view ${SYMBOL};
const std::string_view ${SYMBOL}(bytes, sizeof bytes);
}  // namespace weft
")
