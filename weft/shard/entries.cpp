#include "weft/shard/entries.h"

#include <fmt/core.h>

#include <algorithm>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr std::string_view kWhere = "parallel.shard";

/// Names users of other systems write.
std::string axis_name(std::string_view text) {
  if (text == "1" || text == "." || text == "None") return "";
  if (text == "dp") return "data";
  if (text == "tp" || text == "mp") return "op";
  if (text == "pp") return "pipeline";
  if (text == "ep") return "expert";
  return std::string(text);
}

std::string checked_axis(std::string_view text, const std::string& pattern, const Mesh& mesh) {
  const std::string name = axis_name(text);
  if (name.empty() || mesh.find(name) >= 0) return name;
  std::string known;
  for (AxisId i = 0; i < mesh.num_axes(); ++i) known += (i == 0 ? "" : ", ") + mesh.name(i);
  throw UsageError(kWhere, fmt::format("\"{}\": got axis \"{}\", expected one of {} or \"\" for a "
                                       "dim that stays whole",
                                       pattern, text, known));
}

/// "((dp,1),(1,op))" -> one list per operand.
std::vector<std::vector<std::string>> parse_tuple(const std::string& text,
                                                  const std::string& pattern) {
  const auto fail = [&] {
    throw UsageError(kWhere,
                     fmt::format("\"{}\": got strategy \"{}\", expected one tuple per operator "
                                 "input, for example \"((dp,1),(1,op))\"",
                                 pattern, text));
  };
  std::vector<std::vector<std::string>> tuples;
  std::string word;
  int depth = 0;
  bool closed = false;
  for (const char c : text) {
    if (c == ' ') continue;
    if (closed) fail();
    if (c == '(') {
      if (++depth > 2) fail();
      if (depth == 2) tuples.emplace_back();
    } else if (c == ')' || c == ',') {
      if (depth == 2 && !word.empty()) {
        tuples.back().push_back(word);
        word.clear();
      }
      if (!word.empty() || depth == 0) fail();
      if (c == ')' && --depth == 0) closed = true;
    } else {
      if (depth != 2) fail();
      word += c;
    }
  }
  if (!closed || tuples.empty()) fail();
  return tuples;
}

/// Index of the operand an entry calls `name`; -1 when the operator has none.
int operand_index(const NodeView& view, const std::string& name) {
  if (name == "input") return 0;
  const std::string wanted = name == "weight" ? "w" : name;
  for (size_t i = 0; i < view.def->inputs.size(); ++i) {
    std::string_view input = view.def->inputs[i];
    if (input.ends_with('?') || input.ends_with('*')) input.remove_suffix(1);
    if (input == wanted || (name == "weight" && input == "table")) return static_cast<int>(i);
  }
  return -1;
}

class EntryReader {
 public:
  EntryReader(const ShardEntry& entry, const Node& node, const NodeView& view, const Mesh& mesh)
      : entry_(entry), node_(node), view_(view), mesh_(mesh) {
    strategy_.resize(static_cast<size_t>(mesh.num_axes()));
  }

  NodeStrategy read() {
    for (const auto& [name, axes] : entry_.operands) read_operand(name, axes);
    check_operands();
    return strategy_;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw UsageError(kWhere, fmt::format("\"{}\" at {} ({}): {}", entry_.pattern, node_.scope,
                                         view_.def->name, why));
  }

  /// Factors of the dims of an operand in the order the entry lists them.
  std::vector<std::vector<int>> listed_dims(const std::string& name, int operand) const {
    std::vector<std::vector<int>> dims = view_.rule.inputs[static_cast<size_t>(operand)];
    const bool matrix = name == "weight" && view_.def->inputs[static_cast<size_t>(operand)] == "w";
    if (matrix && dims.size() >= 2 && node_.attrs.get_bool("transpose_w", false)) {
      std::swap(dims[dims.size() - 2], dims[dims.size() - 1]);
    }
    return dims;
  }

  void read_operand(const std::string& name, std::vector<std::string> axes) {
    const int operand = operand_index(view_, name);
    if (operand < 0) {
      std::string known = "input";
      for (const std::string_view input : view_.def->inputs) known += fmt::format(", {}", input);
      fail(fmt::format("got operand \"{}\", expected one of {}", name, known));
    }
    const auto dims = listed_dims(name, operand);
    // (rows, features) of an input with leading dims: the rows are cut at the batch.
    if (name == "input" && axes.size() == 2 && dims.size() == 3) axes.insert(axes.begin() + 1, "");
    if (axes.size() != dims.size()) {
      fail(fmt::format("got {} dims for {}, expected {}", axes.size(), name, dims.size()));
    }
    for (size_t i = 0; i < dims.size(); ++i) {
      if (axes[i].empty()) continue;
      assign(name, axes[i], dims[i]);
      if (axes[i] == "data") follow_data(dims[i]);
    }
    listed_.push_back({name, operand, axes, dims});
  }

  void assign(const std::string& name, const std::string& axis, const std::vector<int>& dim) {
    const AxisId id = mesh_.find(axis);
    if (mesh_.size(id) == 1) return;
    if (dim.empty() || !may_cut(view_.rule, dim[0])) {
      fail(fmt::format("got axis {} on a dim of {} that this operator needs whole", axis, name));
    }
    AxisChoice& choice = strategy_[static_cast<size_t>(id)];
    if (choice.kind == AxisChoice::Kind::factor && choice.factor != dim[0]) {
      fail(fmt::format("got axis {} on two different dims ({} and {} of the operator)", axis,
                       factor_name(choice.factor), factor_name(dim[0])));
    }
    choice.kind = AxisChoice::Kind::factor;
    choice.factor = dim[0];
    if (name == "weight") {
      const int64_t inner = elements_per_factor(view_.rule, dim, dim[0]);
      choice.block = std::max<int64_t>(1, entry_.block / inner);
    }
  }

  /// Axis expert lies inside data and cuts what data cuts, unless the entry uses it by name.
  void follow_data(const std::vector<int>& dim) {
    const AxisId expert = mesh_.find("expert");
    if (expert < 0 || mesh_.size(expert) == 1 || uses("expert")) return;
    AxisChoice& choice = strategy_[static_cast<size_t>(expert)];
    choice.kind = AxisChoice::Kind::factor;
    choice.factor = dim[0];
  }

  bool uses(std::string_view axis) const {
    for (const auto& [name, axes] : entry_.operands) {
      if (std::find(axes.begin(), axes.end(), axis) != axes.end()) return true;
    }
    return false;
  }

  std::string factor_name(int factor) const {
    return view_.rule.factors[static_cast<size_t>(factor)].name;
  }

  /// Every listed operand must be cut exactly as the strategy needs it.
  void check_operands() const {
    for (const Listed& listed : listed_) {
      for (size_t i = 0; i < listed.dims.size(); ++i) {
        for (AxisId axis = 0; axis < mesh_.num_axes(); ++axis) {
          const AxisChoice& choice = strategy_[static_cast<size_t>(axis)];
          if (mesh_.size(axis) == 1 || choice.kind != AxisChoice::Kind::factor) continue;
          const auto& dim = listed.dims[i];
          const bool needs = std::find(dim.begin(), dim.end(), choice.factor) != dim.end();
          const bool follows =
              mesh_.name(axis) == "expert" && listed.axes[i] == "data" && !uses("expert");
          const bool has = listed.axes[i] == mesh_.name(axis) || follows;
          if (needs != has) {
            fail(
                fmt::format("got dim {} of {} {} over {}, expected it {}, since another operand "
                            "has the same dim of the operator {}",
                            i, listed.name, has ? "cut" : "whole", mesh_.name(axis),
                            needs ? "cut" : "whole", needs ? "cut" : "whole"));
          }
        }
      }
    }
  }

  struct Listed {
    std::string name;
    int operand;
    std::vector<std::string> axes;
    std::vector<std::vector<int>> dims;
  };

  const ShardEntry& entry_;
  const Node& node_;
  const NodeView& view_;
  const Mesh& mesh_;
  NodeStrategy strategy_;
  std::vector<Listed> listed_;
};

}  // namespace

bool matches_module(std::string_view pattern, std::string_view name) {
  name = name.substr(0, name.find('#'));
  // Greedy with one point of return, as in the shell.
  size_t p = 0;
  size_t n = 0;
  size_t star = std::string_view::npos;
  size_t resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::vector<ShardEntry> parse_entries(const std::vector<ShardStrategy>& given, const Mesh& mesh) {
  std::vector<ShardEntry> entries;
  for (const ShardStrategy& strategy : given) {
    ShardEntry entry;
    entry.pattern = strategy.pattern;
    for (const auto& [name, axes] : strategy.operands) {
      for (const std::string& axis : axes) {
        entry.operands[name].push_back(checked_axis(axis, entry.pattern, mesh));
      }
    }
    if (!strategy.strategy.empty()) {
      const auto tuples = parse_tuple(strategy.strategy, entry.pattern);
      static constexpr const char* kNames[] = {"input", "weight"};
      if (tuples.size() > 2) {
        throw UsageError(kWhere, fmt::format("\"{}\": got {} tuples, expected one or two: input "
                                             "and weight",
                                             entry.pattern, tuples.size()));
      }
      for (size_t i = 0; i < tuples.size(); ++i) {
        for (const std::string& axis : tuples[i]) {
          entry.operands[kNames[i]].push_back(checked_axis(axis, entry.pattern, mesh));
        }
      }
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

NodeStrategy entry_strategy(const ShardEntry& entry, const Node& node, const NodeView& view,
                            const Mesh& mesh) {
  return EntryReader(entry, node, view, mesh).read();
}

}  // namespace weft
