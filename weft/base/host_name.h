#pragma once

#include <string>

namespace weft {

/// Name of this machine; "localhost" when it has none.
std::string host_name();

}  // namespace weft
