#include "weft/compile/offload_update.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "weft/base/check.h"
#include "weft/compile/late_update.h"
#include "weft/ops/op_kind.h"

namespace weft {
namespace {

std::string ahead_name(std::string_view state, int64_t begin) {
  return fmt::format("{}{}{}", state, kAheadMark, begin);
}

size_t at(int32_t id) { return static_cast<size_t>(id); }

/// One update node and the tensors it reads; inputs before `tensors` are parameters, gradients and
/// slots, those behind are scalars.
struct Update {
  NodeId node = kNoNode;
  size_t tensors = 0;
  int64_t elements = 0;
  int64_t piece = 0;  // elements of a piece
};

struct Piece {
  size_t update = 0;
  int64_t begin = 0;
  int64_t size = 0;
  bool ahead = false;             // the run before has left it ready
  std::vector<ValueId> operands;  // once loaded
};

/// A piece of a state that lies ready where updates work.
struct Ahead {
  std::string name;
  ValueId state = kNoValue;
  int64_t begin = 0;
  int64_t size = 0;
};

class UpdateStream {
 public:
  UpdateStream(Graph& graph, const TierChoice& choice)
      : graph_(graph),
        choice_(choice),
        where_(choice.update_on_host ? Tier::host : Tier::device),
        same_(at(graph.num_values())) {
    std::iota(same_.begin(), same_.end(), 0);
    for (const State& state : graph.states()) {
      if (state.result != kNoValue) state_of_result_[state.result] = state.value;
    }
  }

  void run() {
    collect();
    if (updates_.empty()) return;
    if (is_late()) choose_ahead();
    std::vector<NodeId> order;
    const NodeId count = graph_.num_nodes();
    size_t next = 0;
    for (NodeId id = 0; id < count; ++id) {
      if (next < updates_.size() && updates_[next].node == id) {
        append_pieces(next++, order);
      } else {
        order.push_back(id);
      }
    }
    leave_ahead(order);
    graph_.substitute(full_replacement());
    graph_.reorder_nodes(order);
  }

 private:
  static bool is_update(const Node& node) {
    return node.phase == Phase::update && !op_def(node.op).transfer &&
           !op_def(node.op).aliases.empty() && op_def(node.op).aliases[0].required;
  }

  bool is_away(const Node& node) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
      return id != kNoValue && graph_.value(id).tier != Tier::device;
    });
  }

  /// Updates of which something lives off the device, and the sizes of their pieces.
  void collect() {
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      const Node& node = graph_.node(id);
      if (!is_update(node) || !is_away(node)) continue;
      Update update;
      update.node = id;
      const TensorType& w = graph_.type(node.inputs[0]);
      update.elements = w.elements();
      const auto& names = op_def(node.op).inputs;
      update.tensors =
          static_cast<size_t>(std::find(names.begin(), names.end(), "hyper") - names.begin());
      update.piece = std::max<int64_t>(1, choice_.chunk_bytes / dtype_size(w.dtype));
      const size_t index = updates_.size();
      for (int64_t begin = 0; begin == 0 || begin < update.elements; begin += update.piece) {
        pieces_.push_back({index, begin, std::min(update.piece, update.elements - begin), {}});
      }
      updates_.push_back(update);
    }
  }

  /// The update of the step before runs first, and the gradients of this one wait for the next.
  bool is_late() const {
    return std::any_of(graph_.states().begin(), graph_.states().end(), [](const State& state) {
      return state.result != kNoValue && state.name.ends_with(kPendingSuffix);
    });
  }

  /// Nothing hides the reading of the first pieces, so the run before does it.
  void choose_ahead() {
    int64_t bytes = 0;
    for (Piece& piece : pieces_) {
      const Update& update = updates_[piece.update];
      int64_t more = 0;
      for (size_t i = 0; i < update.tensors; ++i) {
        const ValueId id = graph_.node(update.node).inputs[i];
        if (may_wait(id)) more += piece.size * dtype_size(graph_.type(id).dtype);
      }
      bytes += more;
      if (bytes > choice_.ahead_bytes) return;
      piece.ahead = more > 0;
    }
  }

  bool may_wait(ValueId id) const {
    if (id == kNoValue) return false;
    const Value& value = graph_.value(id);
    return value.kind == ValueKind::state && value.tier == Tier::nvme &&
           !value.name.ends_with(kPendingSuffix);
  }

  /// A state that holds the piece from one run to the next.
  ValueId ahead_of(ValueId id, const Piece& piece) {
    State state;
    state.name = ahead_name(graph_.value(id).name, piece.begin);
    state.role = StateRole::moment;
    state.slot = "ahead";
    state.type = {graph_.type(id).dtype, {piece.size}};
    ahead_.push_back({state.name, id, piece.begin, piece.size});
    const ValueId value = graph_.add_state(std::move(state));
    graph_.set_home(ahead_.back().name, where_);
    graph_.value(value).memory_class = MemoryClass::prefetch;
    return value;
  }

  /// At the end of the program the pieces are read for the next run.
  void leave_ahead(std::vector<NodeId>& order) {
    for (const Ahead& entry : ahead_) {
      graph_.set_scope(parameter_name(entry.name));
      graph_.set_phase(Phase::update);
      const ValueId loaded = load_range(current(entry.state), entry.begin, entry.size);
      order.push_back(graph_.num_nodes() - 1);
      graph_.set_state_result(entry.name, loaded);
    }
  }

  ValueId load_range(ValueId value, int64_t begin, int64_t size) {
    const Attrs range = {{"tier", static_cast<int64_t>(where_)}, {"begin", begin}, {"size", size}};
    const ValueId loaded = graph_.add(OpKind::load, {value}, range);
    graph_.value(loaded).memory_class = MemoryClass::prefetch;
    return loaded;
  }

  /// The pieces of an update stand where it stood; loads of later pieces, of whatever update, run
  /// ahead of them.
  void append_pieces(size_t update, std::vector<NodeId>& order) {
    const NodeId first = graph_.num_nodes();
    const auto ahead = static_cast<size_t>(std::max(0, choice_.pieces_ahead));
    for (; at_ < pieces_.size() && pieces_[at_].update == update; ++at_) {
      for (; loaded_ < std::min(pieces_.size(), at_ + ahead + 1); ++loaded_) {
        load(pieces_[loaded_]);
      }
      compute(pieces_[at_]);
    }
    for (NodeId id = first; id < graph_.num_nodes(); ++id) order.push_back(id);
  }

  void enter(const Update& update) {
    const Node& node = graph_.node(update.node);
    graph_.set_scope(node.scope);
    graph_.set_phase(node.phase);
    graph_.set_micro(node.micro);
    graph_.set_on_host(false);
  }

  ValueId current(ValueId state) const {
    const auto found = version_.find(state);
    return found == version_.end() ? state : found->second;
  }

  /// The operand where the update works: loaded as a piece unless it is there already.
  ValueId bring(ValueId id, const Piece& piece) {
    if (id == kNoValue) return kNoValue;
    const ValueId value = current(id);
    if (graph_.value(value).tier == where_) return value;
    if (piece.ahead && may_wait(id)) return ahead_of(id, piece);
    return load_range(value, piece.begin, piece.size);
  }

  /// Scalars are the same for all pieces.
  ValueId bring_scalar(ValueId id) {
    if (id == kNoValue || graph_.value(id).tier == where_) return id;
    const auto [known, fresh] = scalars_.try_emplace(id, kNoValue);
    if (fresh) {
      known->second = graph_.add(OpKind::load, {id}, {{"tier", static_cast<int64_t>(where_)}});
    }
    return known->second;
  }

  /// Loads the states of a piece. Where they already are, the version current at its turn is used.
  void load(Piece& piece) {
    const Update& update = updates_[piece.update];
    enter(update);
    const std::vector<ValueId> inputs = graph_.node(update.node).inputs;
    for (size_t i = 0; i < update.tensors; ++i) {
      piece.operands.push_back(bring(inputs[i], piece));
    }
  }

  void compute(Piece& piece) {
    const Update& update = updates_[piece.update];
    enter(update);
    const Node node = graph_.node(update.node);  // a copy: adding nodes moves the list
    std::vector<ValueId> operands;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (i >= update.tensors) {
        operands.push_back(bring_scalar(node.inputs[i]));
      } else if (node.inputs[i] != kNoValue && in_place(node.inputs[i])) {
        operands.push_back(current(node.inputs[i]));
      } else {
        operands.push_back(piece.operands[i]);
      }
    }
    Attrs attrs = node.attrs;
    attrs.set("begin", piece.begin);
    attrs.set("size", piece.size);
    graph_.set_on_host(where_ == Tier::host);
    const std::vector<ValueId> made = graph_.add_node(node.op, operands, std::move(attrs));
    graph_.set_on_host(false);
    const OpDef& def = op_def(node.op);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      const auto alias =
          std::find_if(def.aliases.begin(), def.aliases.end(), [&](const OpAlias& entry) {
            return entry.required && entry.output == static_cast<int>(i);
          });
      if (alias != def.aliases.end()) {
        keep_state(node.inputs[static_cast<size_t>(alias->input)], node.outputs[i], made[i], piece);
      } else {
        keep_copy(node.outputs[i], made[i], piece, update);
      }
    }
  }

  bool in_place(ValueId state) const { return graph_.value(state).tier == where_; }

  void keep_state(ValueId state, ValueId result, ValueId made, const Piece& piece) {
    graph_.value(made).memory_class = graph_.value(state).memory_class;
    version_[state] = in_place(state) ? made : store(made, current(state), piece);
    same_[at(result)] = version_[state];
  }

  /// The rounded weights of a piece go to the weight's home, or come together on the device for
  /// whoever reads them.
  void keep_copy(ValueId result, ValueId made, const Piece& piece, const Update& update) {
    const auto state = state_of_result_.find(result);
    if (state != state_of_result_.end()) {
      version_[state->second] = store(made, current(state->second), piece);
      same_[at(result)] = version_[state->second];
      return;
    }
    const ValueId here =
        where_ == Tier::device
            ? made
            : graph_.add(OpKind::load, {made}, {{"tier", static_cast<int64_t>(Tier::device)}});
    std::vector<ValueId>& parts = copies_[result];
    parts.push_back(here);
    if (piece.begin + piece.size < update.elements) return;
    same_[at(result)] =
        parts.size() == 1 ? here : graph_.add(OpKind::concat, parts, {{"dim", int64_t{0}}});
  }

  ValueId store(ValueId value, ValueId target, const Piece& piece) {
    const MemoryClass memory_class = graph_.value(target).memory_class;
    const ValueId next = graph_.add(OpKind::store, {value, target}, {{"begin", piece.begin}});
    graph_.value(next).memory_class = memory_class;
    return next;
  }

  std::vector<ValueId> full_replacement() {
    const size_t known = same_.size();
    same_.resize(at(graph_.num_values()));
    std::iota(same_.begin() + static_cast<std::ptrdiff_t>(known), same_.end(),
              static_cast<ValueId>(known));
    return same_;
  }

  Graph& graph_;
  const TierChoice& choice_;
  Tier where_;
  std::vector<ValueId> same_;                   // per value: what stands for it afterwards
  std::map<ValueId, ValueId> state_of_result_;  // result -> state value
  std::map<ValueId, ValueId> version_;          // state value -> its newest version
  std::map<ValueId, ValueId> scalars_;          // scalar -> its copy where updates work
  std::map<ValueId, std::vector<ValueId>> copies_;
  std::vector<Update> updates_;
  std::vector<Piece> pieces_;
  std::vector<Ahead> ahead_;
  size_t at_ = 0;      // pieces done
  size_t loaded_ = 0;  // pieces loaded
};

}  // namespace

void offload_updates(Graph& graph, const TierChoice& choice) { UpdateStream(graph, choice).run(); }

std::optional<Graph> prime_ahead(const Graph& train) {
  Graph prime;
  std::map<std::string, ValueId> known;
  const auto copy = [&](State state) {
    const auto [found, fresh] = known.try_emplace(state.name, kNoValue);
    if (!fresh) return found->second;
    const MemoryClass memory_class = train.value(state.value).memory_class;
    state.value = state.result = kNoValue;
    found->second = prime.add_state(std::move(state));
    prime.value(found->second).memory_class = memory_class;
    return found->second;
  };
  for (const State& state : train.states()) {
    const size_t cut = state.name.find(kAheadMark);
    if (cut == std::string::npos) continue;
    const State* source = train.find_state(state.name.substr(0, cut));
    WEFT_CHECK(source != nullptr, "tiers", "state {} is a piece of nothing", state.name);
    const ValueId from = copy(*source);
    copy(state);
    const int64_t begin = std::stoll(state.name.substr(cut + std::string_view(kAheadMark).size()));
    prime.set_scope(parameter_name(state.name));
    prime.set_phase(Phase::update);
    const ValueId loaded = prime.add(OpKind::load, {from},
                                     {{"tier", static_cast<int64_t>(state.home)},
                                      {"begin", begin},
                                      {"size", state.type.elements()}});
    prime.value(loaded).memory_class = MemoryClass::prefetch;
    prime.set_state_result(state.name, loaded);
  }
  if (known.empty()) return {};
  return prime;
}

}  // namespace weft
