// The enumerators of OpKind, made from op_list.def.
#pragma once

#include <optional>
#include <string_view>

#include "weft/ir/op_def.h"

namespace weft {

enum class OpKind : uint16_t {
#define WEFT_OP(name) name,
#include "weft/ops/op_list.def"
#undef WEFT_OP
};

inline constexpr int kNumOps = 0
#define WEFT_OP(name) +1
#include "weft/ops/op_list.def"
#undef WEFT_OP
    ;

std::string_view op_name(OpKind op);
std::optional<OpKind> find_op(std::string_view name);

}  // namespace weft
