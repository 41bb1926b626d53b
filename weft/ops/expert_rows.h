// What the operators on rows of experts share. Rows are token copies in the order of their expert:
//
//   with a capacity   [E,B,C,H]    C rows per expert and sequence, the first counts[b,e] are used
//   dropless          [B,S*K,H]    per sequence all rows of expert 0, then of expert 1, …
//
// counts is [B,E] i32. A rank that has only some experts of dropless rows knows its first one
// (attributes first_expert, num_experts); rows of other experts are zero there, so that the rows
// of all ranks add up to the whole. docs/moe.md.
#pragma once

#include "weft/ops/ops.h"

namespace weft {

inline bool has_capacity(const TensorType& rows) { return rows.shape.size() == 4; }
inline int64_t row_width(const TensorType& rows) { return rows.shape.back(); }

/// Checks rows against counts; `experts` of them are here. BugError naming `op`.
void check_rows(std::string_view op, std::string_view operand, const TensorType& rows,
                const TensorType& counts);
/// Factor letters of rows whose width has the letter `width`, and those of counts.
std::string row_letters(const TensorType& rows, char width);
std::string count_letters(const TensorType& rows);
/// Adds factor e to a rule of dropless rows: a rank may have some of `experts`; `parts` are the
/// rows it takes as its own part. With `summed`, outputs without e become partial.
void add_expert_factor(ShardingRule& rule, const TensorType& rows, int64_t experts,
                       std::vector<int> parts);
/// LocalizeFn of these operators.
void localize_experts(Attrs& attrs, const ShardingRule& rule, std::span<const CutPiece> pieces);
/// Share of the experts that a node with these attributes has.
double expert_share(const Attrs& attrs, const TensorType& rows, const TensorType& counts);

}  // namespace weft
