// Shared helpers of the operator files: operand checks, cost and factor shorthands. Internal to
// ops/; builders of graphs use Graph::add with OpKind.
#pragma once

#include <fmt/core.h>

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/check.h"
#include "weft/ir/graph.h"
#include "weft/ops/op_kind.h"

namespace weft {

using Types = std::span<const TensorType>;

/// What router says of a sequence beside the load of each expert: assignments dropped, balance
/// loss, z loss, tokens that count.
inline constexpr int64_t kRouterStats = 4;

/// f64 for f64, else f32: the dtype of gradients and small parameters beside compute dtype `c`.
DType param_dtype(DType c);

/// Throws BugError "[op] …" unless the condition holds.
#define WEFT_OP_CHECK(condition, op, ...) WEFT_CHECK((condition), (op), __VA_ARGS__)

void check_count(std::string_view op, Types inputs, size_t count);
void check_rank(std::string_view op, std::string_view operand, const TensorType& type, size_t rank);
void check_type(std::string_view op, std::string_view operand, const TensorType& type,
                const TensorType& expected);
void check_optional(std::string_view op, std::string_view operand, const TensorType& type,
                    const TensorType& expected);

/// Cost of an operator that only moves memory: every operand once, `flops_per_element` of output 0.
OpCost stream_cost(Types inputs, Types outputs, double flops_per_element);

/// Makes a ShardingRule from a short text: factors by letters per operand. "bsh,vh->bsv": each
/// letter a dim; "(nd)" a dim of two factors; "1" a dim that is not cut. `reduce` and `whole` list
/// factor letters; all others are pass factors. Absent optional operands are written "_".
ShardingRule make_rule(std::string_view text, Types inputs, Types outputs,
                       std::string_view reduce = "", std::string_view whole = "",
                       std::initializer_list<std::pair<char, int64_t>> sizes = {});

/// Letters of a rank-n tensor with leading dims: rank 3 and "h" gives "bsh".
std::string leading(const TensorType& type, std::string_view last);

}  // namespace weft
