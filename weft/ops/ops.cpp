#include "weft/ops/ops.h"

#include <algorithm>
#include <array>

namespace weft {

#define WEFT_OP(name) const OpDef& name##_op();
#include "weft/ops/op_list.def"
#undef WEFT_OP

const OpDef& op_def(OpKind op) {
  switch (op) {
#define WEFT_OP(name) \
  case OpKind::name:  \
    return name##_op();
#include "weft/ops/op_list.def"
#undef WEFT_OP
  }
  throw BugError("op_def", fmt::format("no operator number {}", static_cast<int>(op)));
}

std::string_view op_name(OpKind op) { return op_def(op).name; }

std::optional<OpKind> find_op(std::string_view name) {
  for (int i = 0; i < kNumOps; ++i) {
    if (op_name(static_cast<OpKind>(i)) == name) return static_cast<OpKind>(i);
  }
  return std::nullopt;
}

DType param_dtype(DType c) { return c == DType::f64 ? DType::f64 : DType::f32; }

void check_count(std::string_view op, Types inputs, size_t count) {
  WEFT_OP_CHECK(inputs.size() == count, op, "got {} inputs, expected {}", inputs.size(), count);
}

void check_rank(std::string_view op, std::string_view operand, const TensorType& type,
                size_t rank) {
  WEFT_OP_CHECK(type.present() && type.shape.size() == rank, op, "{}: got {}, expected {} dims",
                operand, shape_text(type.shape), rank);
}

void check_type(std::string_view op, std::string_view operand, const TensorType& type,
                const TensorType& expected) {
  WEFT_OP_CHECK(type == expected, op, "{}: got {}{}, expected {}{}", operand,
                dtype_name(type.dtype), shape_text(type.shape), dtype_name(expected.dtype),
                shape_text(expected.shape));
}

void check_optional(std::string_view op, std::string_view operand, const TensorType& type,
                    const TensorType& expected) {
  if (type.present()) check_type(op, operand, type, expected);
}

OpCost stream_cost(Types inputs, Types outputs, double flops_per_element) {
  OpCost cost;
  for (const TensorType& type : inputs) cost.bytes += static_cast<double>(type.bytes());
  for (const TensorType& type : outputs) cost.bytes += static_cast<double>(type.bytes());
  if (!outputs.empty()) {
    cost.flops = flops_per_element * static_cast<double>(outputs[0].elements());
  }
  return cost;
}

namespace {

class RuleParser {
 public:
  RuleParser(ShardingRule& rule, std::string_view reduce, std::string_view whole)
      : rule_(rule), reduce_(reduce), whole_(whole) {
    index_.fill(-1);
  }

  void set_size(char letter, int64_t size) { factor(letter, size); }

  ShardingRule::Dims operand(std::string_view text, const TensorType& type) {
    ShardingRule::Dims dims;
    if (text == "_" || !type.present()) return dims;
    for (size_t i = 0; i < text.size(); ++i) {
      std::vector<int> dim;
      const size_t index = dims.size();
      WEFT_CHECK(index < type.shape.size(), "make_rule", "\"{}\" has more dims than {}", text,
                 shape_text(type.shape));
      if (text[i] == '(') {
        for (++i; text[i] != ')'; ++i) dim.push_back(factor(text[i], -1));
      } else if (text[i] != '1') {
        dim.push_back(factor(text[i], type.shape[index]));
      }
      dims.push_back(std::move(dim));
    }
    WEFT_CHECK(dims.size() == type.shape.size(), "make_rule", "\"{}\" does not name all dims of {}",
               text, shape_text(type.shape));
    return dims;
  }

 private:
  int factor(char letter, int64_t size) {
    int& index = index_[static_cast<unsigned char>(letter)];
    if (index < 0) {
      WEFT_CHECK(size >= 0, "make_rule", "size of factor {} is not known", letter);
      index = static_cast<int>(rule_.factors.size());
      Factor made;
      made.name = std::string(1, letter);
      made.size = size;
      if (reduce_.find(letter) != std::string_view::npos) made.kind = FactorKind::reduce;
      if (whole_.find(letter) != std::string_view::npos) made.kind = FactorKind::whole;
      rule_.factors.push_back(std::move(made));
    }
    WEFT_CHECK(size < 0 || rule_.factors[static_cast<size_t>(index)].size == size, "make_rule",
               "factor {} has two sizes", letter);
    return index;
  }

  ShardingRule& rule_;
  std::string_view reduce_;
  std::string_view whole_;
  std::array<int, 256> index_{};
};

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

ShardingRule make_rule(std::string_view text, Types inputs, Types outputs, std::string_view reduce,
                       std::string_view whole,
                       std::initializer_list<std::pair<char, int64_t>> sizes) {
  ShardingRule rule;
  RuleParser parser(rule, reduce, whole);
  for (const auto& [letter, size] : sizes) parser.set_size(letter, size);
  const size_t arrow = text.find("->");
  const auto sources = split(text.substr(0, arrow));
  const auto results = split(text.substr(arrow + 2));
  WEFT_CHECK(sources.size() == inputs.size() && results.size() == outputs.size(), "make_rule",
             "\"{}\" does not fit {} inputs and {} outputs", text, inputs.size(), outputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    rule.inputs.push_back(parser.operand(sources[i], inputs[i]));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    rule.outputs.push_back(parser.operand(results[i], outputs[i]));
  }
  return rule;
}

std::string leading(const TensorType& type, std::string_view last) {
  static constexpr std::string_view kLetters = "bsxyz";
  const size_t count = type.shape.empty() ? 0 : type.shape.size() - 1;
  WEFT_CHECK(count <= kLetters.size(), "leading", "too many dims in {}", shape_text(type.shape));
  return std::string(kLetters.substr(0, count)) + std::string(last);
}

}  // namespace weft
