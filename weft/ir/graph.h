// The SSA graph of one training step (or of an evaluation). Values have logical (global) shapes.
// Persistent tensors are states: a node may produce the next value of a state, which the plan
// keeps in the same memory. Nodes are stored in a valid execution order. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/ir/op_def.h"
#include "weft/ir/tier.h"

namespace weft {

using NodeId = int32_t;
inline constexpr NodeId kNoNode = -1;

/// Part of the step a node belongs to.
enum class Phase : uint8_t { forward, backward, verdict, update };

/// What a value is counted as in the memory table.
enum class MemoryClass : uint8_t {
  weights,
  gradients,
  optimizer,
  activations,
  workspace,
  prefetch,
  inputs,
};

enum class ValueKind : uint8_t { input, state, node };

struct Value {
  ValueKind kind = ValueKind::node;
  std::string name;  // unique; printed, and the key of inputs and outputs
  TensorType type;
  NodeId producer = kNoNode;
  int output_index = 0;
  MemoryClass memory_class = MemoryClass::activations;
  Tier tier = Tier::device;
  bool batched = false;  // an input whose first dim is the batch: each data rank has its own rows
};

struct Node {
  OpKind op{};
  std::vector<ValueId> inputs;  // kNoValue = absent optional operand
  std::vector<ValueId> outputs;
  Attrs attrs;
  std::string scope;  // Hugging Face module path, for example "model.layers.0.mlp.up_proj"
  Phase phase = Phase::forward;
  int32_t micro = 0;        // micro-batch within the step
  bool on_host = false;     // computed by the host lane, with all operands in host memory
  bool recomputed = false;  // makes a forward value again for the backward pass
};

enum class StateRole : uint8_t {
  weight,  // what kernels read in compute precision
  master,  // fp32 copy the optimizer updates, when it differs from the weight
  moment,  // optimizer slot
};

/// Initial value of a state.
struct StateInit {
  enum class Kind : uint8_t { zeros, ones, normal, copy } kind = Kind::zeros;
  double stddev = 0.0;  // normal: mean 0, drawn from RngStream(seed, logical.name) by the element
                        // index in the logical tensor
  std::string source;   // copy: name of the state to convert from
};

/// The piece of a logical (file) tensor that a state holds: `shape` of the whole, `begin` per dim.
/// The extents of the piece are the state's shape; or, when flat_begin >= 0, the state has one dim
/// and holds a range of the row-major flattening of the box (begin, extent), from flat_begin on.
struct LogicalSlice {
  std::string name;  // Hugging Face tensor name
  Shape shape;
  Shape begin;
  Shape extent = {};  // only with flat_begin >= 0
  int64_t flat_begin = -1;

  bool operator==(const LogicalSlice&) const = default;
};

struct State {
  std::string name;  // "model.norm.weight", with a suffix for slots: "…@m"
  StateRole role = StateRole::weight;
  TensorType type;
  ValueId value = kNoValue;   // at the start of the step
  ValueId result = kNoValue;  // at its end; kNoValue = unchanged
  StateInit init;
  LogicalSlice logical;      // same for a weight, its master and its slots
  std::string slot;          // "" for weights and masters, else "m", "v", "momentum"
  bool decay = false;        // weight decay applies: the logical tensor is a matrix
  bool pinned = false;       // stays on the device: a few numbers that no optimizer updates
  Tier home = Tier::device;  // where it lies between uses
};

/// "model.norm.weight" of the state "model.norm.weight@m": the parameter that a master, a slot or a
/// waiting gradient belongs to.
std::string parameter_name(std::string_view state);

class Graph {
 public:
  ValueId add_input(std::string name, TensorType type, bool batched = false);
  /// Adds a state; `state.value` is set by the call.
  ValueId add_state(State state);
  /// Appends a node, infers its outputs and returns them. Scope, phase and micro-batch are the
  /// current ones. Throws BugError when the operands do not fit.
  std::vector<ValueId> add_node(OpKind op, std::vector<ValueId> inputs, Attrs attrs = {});
  /// add_node for operators with one output.
  ValueId add(OpKind op, std::vector<ValueId> inputs, Attrs attrs = {});

  /// Names a value that stays readable at the end of the program.
  void set_output(std::string name, ValueId value);
  /// Declares the value a state has after the step.
  void set_state_result(std::string_view state, ValueId value);
  /// Fraction of the name space for node values: "<scope>.<op>" made unique.
  void set_scope(std::string scope) { scope_ = std::move(scope); }
  const std::string& scope() const { return scope_; }
  void set_phase(Phase phase) { phase_ = phase; }
  void set_micro(int32_t micro) { micro_ = micro; }
  int32_t micro() const { return micro_; }
  /// Nodes added from now on run on the host lane; their results lie in host memory.
  void set_on_host(bool on_host) { on_host_ = on_host; }
  /// Moves a state; its value and its result lie there from now on.
  void set_home(std::string_view state, Tier home);

  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  Value& value(ValueId id) { return values_[static_cast<size_t>(id)]; }
  const TensorType& type(ValueId id) const;  // an absent type for kNoValue
  const Node& node(NodeId id) const { return nodes_[static_cast<size_t>(id)]; }
  Node& node(NodeId id) { return nodes_[static_cast<size_t>(id)]; }
  int32_t num_values() const { return static_cast<int32_t>(values_.size()); }
  int32_t num_nodes() const { return static_cast<int32_t>(nodes_.size()); }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<State>& states() const { return states_; }
  std::vector<State>& states() { return states_; }
  /// nullptr when there is no such state.
  const State* find_state(std::string_view name) const;
  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::map<std::string, ValueId>& outputs() const { return outputs_; }

  std::vector<TensorType> input_types(const Node& node) const;
  std::vector<TensorType> output_types(const Node& node) const;

  /// Replaces the node list by `order` (a permutation or a subset of node ids); ids change, and
  /// values whose producer is dropped keep kNoNode. Used by passes.
  void reorder_nodes(std::span<const NodeId> order);
  /// Rewrites every use (inputs, outputs, state results) of value v to replacement[v], in one pass
  /// over the graph. Has one entry per value; v itself where nothing changes.
  void substitute(std::span<const ValueId> replacement);

 private:
  std::string unique_name(std::string base);

  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<State> states_;
  std::vector<ValueId> inputs_;
  std::map<std::string, ValueId> outputs_;
  std::map<std::string, int, std::less<>> names_;
  std::map<std::string, size_t, std::less<>> state_index_;
  std::string scope_;
  Phase phase_ = Phase::forward;
  int32_t micro_ = 0;
  bool on_host_ = false;
};

std::string_view phase_name(Phase phase);
std::string_view memory_class_name(MemoryClass memory_class);
std::string_view state_role_name(StateRole role);

/// Text form, one line per state, input and node; docs/formats/graph.md. Used by --dump.
std::string print_graph(const Graph& graph);
/// Checks SSA form, order, inferred types, aliasing of states; throws BugError naming the node.
void verify_graph(const Graph& graph);

/// Operator traits by kind; defined by ops/ from op_list.def.
const OpDef& op_def(OpKind op);

}  // namespace weft
