#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "weft/compile/passes.h"
#include "weft/ops/collective.h"

namespace weft {
namespace {

size_t at(int32_t id) { return static_cast<size_t>(id); }

class Buckets {
 public:
  Buckets(Graph& graph, int64_t limit) : graph_(graph), limit_(limit) {
    reads_.assign(at(graph.num_values()), -1);
  }

  void run() {
    order_verdict();
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      close_read_by(graph_.node(id));
      join(id);
    }
    while (!open_.empty()) close(open_.begin()->first);
    merge();
  }

 private:
  /// Collectives that may share a call.
  using Key = std::tuple<OpKind, std::string, DType, std::string, Phase>;
  struct Bucket {
    std::vector<NodeId> members;
    int64_t bytes = 0;
  };

  /// Sums of the verdict that go over several axes are made axis by axis: all of one axis travel
  /// together. Other nodes of the verdict come once the sums they read are there.
  void order_verdict() {
    std::vector<NodeId> order(at(graph_.num_nodes()));
    std::iota(order.begin(), order.end(), 0);
    std::vector<int> sums(at(graph_.num_values()), 0);  // calls behind a value
    std::vector<int> turn(order.size(), 0);
    const auto is_verdict = [&](NodeId id) { return graph_.node(id).phase == Phase::verdict; };
    for (const NodeId id : order) {
      const Node& node = graph_.node(id);
      if (!is_verdict(id)) continue;
      const bool call = eligible(node);
      int behind = call ? 1 : 0;
      for (const ValueId input : node.inputs) {
        if (input != kNoValue) behind = std::max(behind, sums[at(input)] + (call ? 1 : 0));
      }
      for (const ValueId output : node.outputs) {
        if (output != kNoValue) sums[at(output)] = behind;
      }
      turn[at(id)] = 2 * behind + (call ? 0 : 1);
    }
    const auto first = std::find_if(order.begin(), order.end(), is_verdict);
    const auto last = std::find_if_not(first, order.end(), is_verdict);
    std::stable_sort(first, last, [&](NodeId a, NodeId b) { return turn[at(a)] < turn[at(b)]; });
    graph_.reorder_nodes(order);
  }

  /// Gradients, sums and new weights move flattened or as a whole; activations do not wait for
  /// others.
  bool eligible(const Node& node) const {
    const OpDef& def = op_def(node.op);
    if (!def.collective || !def.inputs[0].ends_with('*') || node.inputs.size() != 1) return false;
    if (node.attrs.get_int("dim", -1) >= 0) return false;
    const MemoryClass memory_class = graph_.value(node.outputs[0]).memory_class;
    return node.phase == Phase::verdict || node.phase == Phase::update ||
           memory_class == MemoryClass::gradients;
  }

  Key key_of(const Node& node) const {
    return {node.op, node.attrs.get_string("axis"), graph_.type(node.inputs[0]).dtype,
            node.attrs.get_string("reduction", "sum"), node.phase};
  }

  int64_t whole_bytes(const Node& node) const {
    return std::max(graph_.type(node.inputs[0]).bytes(), graph_.type(node.outputs[0]).bytes());
  }

  void close_read_by(const Node& node) {
    for (const ValueId input : node.inputs) {
      if (input == kNoValue || reads_[at(input)] < 0) continue;
      const Key key = key_of(graph_.node(reads_[at(input)]));
      if (open_.contains(key)) close(key);
    }
  }

  void join(NodeId id) {
    const Node& node = graph_.node(id);
    if (!eligible(node)) return;
    const Key key = key_of(node);
    const int64_t bytes = whole_bytes(node);
    if (open_.contains(key) && open_[key].bytes + bytes > limit_) close(key);
    Bucket& bucket = open_[key];
    bucket.members.push_back(id);
    bucket.bytes += bytes;
    reads_[at(node.outputs[0])] = id;
  }

  void close(const Key& key) {
    const auto found = open_.find(key);
    Bucket bucket = std::move(found->second);
    open_.erase(found);
    for (const NodeId id : bucket.members) reads_[at(graph_.node(id).outputs[0])] = -1;
    if (bucket.members.size() > 1) closed_.push_back(std::move(bucket.members));
  }

  /// The last member takes the operands of the others; those leave.
  void merge() {
    if (closed_.empty()) return;
    std::vector<bool> gone(at(graph_.num_nodes()), false);
    for (const std::vector<NodeId>& members : closed_) {
      Node& last = graph_.node(members.back());
      std::vector<ValueId> inputs;
      std::vector<ValueId> outputs;
      std::string shapes;
      for (const NodeId id : members) {
        const Node& node = graph_.node(id);
        inputs.push_back(node.inputs[0]);
        outputs.push_back(node.outputs[0]);
        if (node.attrs.contains("shape")) {
          shapes += (shapes.empty() ? "" : ";") + node.attrs.get_string("shape");
        }
        gone[at(id)] = id != members.back();
      }
      last.inputs = std::move(inputs);
      last.outputs = std::move(outputs);
      if (!shapes.empty()) last.attrs.set("shape", shapes);
      for (size_t i = 0; i < last.outputs.size(); ++i) {
        graph_.value(last.outputs[i]).producer = members.back();
        graph_.value(last.outputs[i]).output_index = static_cast<int>(i);
      }
    }
    std::vector<NodeId> kept;
    for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
      if (!gone[at(id)]) kept.push_back(id);
    }
    graph_.reorder_nodes(kept);
  }

  Graph& graph_;
  int64_t limit_;
  std::map<Key, Bucket> open_;
  std::vector<std::vector<NodeId>> closed_;
  std::vector<NodeId> reads_;  // by value: the open member that makes it, or -1
};

}  // namespace

void bucket_collectives(Graph& graph, int64_t limit_bytes) { Buckets(graph, limit_bytes).run(); }

}  // namespace weft
