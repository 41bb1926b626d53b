#include "weft/ops/expert_rows.h"

namespace weft {

void check_rows(std::string_view op, std::string_view operand, const TensorType& rows,
                const TensorType& counts) {
  check_rank(op, "counts", counts, 2);
  WEFT_OP_CHECK(counts.dtype == DType::i32, op, "counts must be i32");
  const bool fits = has_capacity(rows)
                        ? rows.shape[0] == counts.shape[1] && rows.shape[1] == counts.shape[0]
                        : rows.shape.size() == 3 && rows.shape[0] == counts.shape[0];
  WEFT_OP_CHECK(fits, op, "{}: got rows {} and counts {}", operand, shape_text(rows.shape),
                shape_text(counts.shape));
}

std::string row_letters(const TensorType& rows, char width) {
  return (has_capacity(rows) ? std::string("ebc") : std::string("br")) + width;
}

std::string count_letters(const TensorType& rows) { return has_capacity(rows) ? "be" : "b1"; }

void add_expert_factor(ShardingRule& rule, const TensorType& rows, int64_t experts,
                       std::vector<int> parts) {
  if (has_capacity(rows)) return;  // a dim of the rows
  int expert = -1;
  for (size_t i = 0; i < rule.factors.size(); ++i) {
    if (rule.factors[i].name == "e") expert = static_cast<int>(i);
  }
  if (expert < 0) {
    expert = static_cast<int>(rule.factors.size());
    rule.factors.push_back({"e", experts, FactorKind::reduce, Reduction::sum});
  }
  for (const int input : parts) rule.parts.push_back({input, expert});
}

void localize_experts(Attrs& attrs, const ShardingRule& rule, std::span<const CutPiece> pieces) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (rule.factors[i].name != "e" || pieces[i].size == rule.factors[i].size) continue;
    attrs.set("first_expert", attrs.get_int("first_expert", 0) + pieces[i].begin);
    attrs.set("num_experts", pieces[i].size);
  }
}

double expert_share(const Attrs& attrs, const TensorType& rows, const TensorType& counts) {
  if (has_capacity(rows) || counts.shape[1] == 0) return 1.0;
  return static_cast<double>(attrs.get_int("num_experts", counts.shape[1])) /
         static_cast<double>(counts.shape[1]);
}

}  // namespace weft
