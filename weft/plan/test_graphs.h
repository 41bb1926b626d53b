// Small hand-made graphs and a backend for tests of plans. Included by tests only.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "weft/base/rng.h"
#include "weft/ir/graph.h"
#include "weft/ir/kernel.h"
#include "weft/ops/op_kind.h"
#include "weft/plan/build.h"

namespace weft {

/// Takes every kernel; matmul-like ones want a workspace of 100 bytes.
class TestSupport : public KernelSupport {
 public:
  bool supports(const KernelSpec& spec) const override { return spec.op != refused; }
  int64_t workspace_bytes(const KernelSpec& spec) const override {
    return op_def(spec.op).matmul_like ? 100 : 0;
  }

  OpKind refused = static_cast<OpKind>(kNumOps);
};

inline ValueId add_weight(Graph& graph, const std::string& name, Shape shape) {
  State state;
  state.name = name;
  state.type = {DType::f32, shape};
  state.init = {StateInit::Kind::normal, 0.02, ""};
  state.logical = {name, shape, Shape(shape.size(), 0)};
  state.decay = shape.size() > 1;
  return graph.add_state(state);
}

inline ValueId add_moment(Graph& graph, const std::string& weight, const std::string& slot) {
  State state;
  state.name = weight + "@" + slot;
  state.role = StateRole::moment;
  state.type = graph.type(graph.find_state(weight)->value);
  state.logical = graph.find_state(weight)->logical;
  state.slot = slot;
  return graph.add_state(state);
}

/// y = act(x W1) W2 over `micros` micro-batches of `rows` rows, gradients accumulated in place,
/// then adamw. Inputs x.i, dy.i, inv_scale, hyper; outputs y.i, norm.
inline Graph mlp_train_graph(int micros, int64_t rows = 8, int64_t width = 16) {
  Graph graph;
  const TensorType rows_type{DType::f32, {1, rows, width}};
  const TensorType scalar{DType::f32, {1}};
  std::vector<ValueId> x;
  std::vector<ValueId> dy;
  for (int i = 0; i < micros; ++i) {
    x.push_back(graph.add_input("x." + std::to_string(i), rows_type));
    dy.push_back(graph.add_input("dy." + std::to_string(i), rows_type));
  }
  const ValueId inv_scale = graph.add_input("inv_scale", scalar);
  const ValueId hyper = graph.add_input("hyper", {DType::f32, {3}});
  const ValueId w1 = add_weight(graph, "up.weight", {width, width});
  const ValueId w2 = add_weight(graph, "down.weight", {width, width});
  const Attrs linear{{"transpose_w", true}};
  const Attrs back{{"transpose_w", false}};
  const Attrs gelu{{"kind", std::string("gelu")}};

  ValueId dw1 = kNoValue;
  ValueId dw2 = kNoValue;
  for (int i = 0; i < micros; ++i) {
    graph.set_micro(i);
    graph.set_phase(Phase::forward);
    graph.set_scope("up");
    const ValueId h =
        graph.add(OpKind::matmul, {x[static_cast<size_t>(i)], w1, kNoValue, kNoValue}, linear);
    graph.set_scope("act");
    const ValueId a = graph.add(OpKind::activation, {h}, gelu);
    graph.set_scope("down");
    const ValueId y = graph.add(OpKind::matmul, {a, w2, kNoValue, kNoValue}, linear);
    graph.set_output("y." + std::to_string(i), y);
    graph.set_phase(Phase::backward);
    const ValueId dyi = dy[static_cast<size_t>(i)];
    dw2 = graph.add(OpKind::matmul_wgrad, {a, dyi, dw2}, linear);
    const ValueId da = graph.add(OpKind::matmul, {dyi, w2, kNoValue, kNoValue}, back);
    graph.set_scope("act");
    const ValueId dh = graph.add(OpKind::activation_grad, {h, da}, gelu);
    graph.set_scope("up");
    dw1 = graph.add(OpKind::matmul_wgrad, {x[static_cast<size_t>(i)], dh, dw1}, linear);
  }
  for (ValueId gradient : {dw1, dw2}) graph.value(gradient).memory_class = MemoryClass::gradients;
  graph.set_micro(0);
  graph.set_scope("");
  graph.set_phase(Phase::verdict);
  const ValueId s1 = graph.add(OpKind::sum_squares, {dw1});
  const ValueId s2 = graph.add(OpKind::sum_squares, {dw2});
  const std::vector<ValueId> verdict =
      graph.add_node(OpKind::verdict, {inv_scale, s1, s2}, {{"max_norm", 1.0}});
  graph.set_output("norm", verdict[0]);
  graph.set_phase(Phase::update);
  const auto update = [&](const std::string& name, ValueId w, ValueId g) {
    const ValueId m = add_moment(graph, name, "m");
    const ValueId v = add_moment(graph, name, "v");
    graph.set_scope(name);
    const std::vector<ValueId> out =
        graph.add_node(OpKind::adamw, {w, m, v, g, hyper, verdict[1], verdict[2], kNoValue},
                       {{"beta1", 0.9},
                        {"beta2", 0.95},
                        {"eps", 1e-8},
                        {"weight_decay", 0.1},
                        {"copy_dtype", std::string("none")}});
    graph.set_state_result(name, out[0]);
    graph.set_state_result(name + "@m", out[1]);
    graph.set_state_result(name + "@v", out[2]);
  };
  update("up.weight", w1, dw1);
  update("down.weight", w2, dw2);
  return graph;
}

/// A random graph of in-place capable operators; every third value is an output.
inline Graph random_graph(uint64_t seed, int nodes) {
  std::mt19937_64 random(seed);
  const auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  Graph graph;
  const int64_t widths[] = {8, 16, 24};
  std::vector<std::vector<ValueId>> values(3);
  std::vector<std::vector<ValueId>> weights(3);  // [from * 3 + to] flattened below
  for (size_t i = 0; i < 3; ++i) {
    values[i].push_back(graph.add_input("x" + std::to_string(i), {DType::f32, {1, 4, widths[i]}}));
    for (size_t j = 0; j < 3; ++j) {
      weights[i].push_back(
          add_weight(graph, "w" + std::to_string(i) + std::to_string(j), {widths[j], widths[i]}));
    }
  }
  const Attrs kind{{"kind", std::string("silu")}};
  for (int n = 0; n < nodes; ++n) {
    const size_t from = below(3);
    // Recent values are read more often, so that many die early.
    const auto pick = [&] {
      const auto& list = values[from];
      return list[list.size() - 1 - std::min(below(list.size()), below(list.size()))];
    };
    graph.set_scope("n" + std::to_string(n));
    switch (below(5)) {
      case 0: {
        const size_t to = below(3);
        values[to].push_back(graph.add(OpKind::matmul,
                                       {pick(), weights[from][to], kNoValue, kNoValue},
                                       {{"transpose_w", true}}));
        break;
      }
      case 1: values[from].push_back(graph.add(OpKind::add, {pick(), pick()})); break;
      case 2: values[from].push_back(graph.add(OpKind::activation, {pick()}, kind)); break;
      case 3:
        values[from].push_back(graph.add(OpKind::activation_grad, {pick(), pick()}, kind));
        break;
      default:
        for (ValueId out : graph.add_node(OpKind::glu_grad, {pick(), pick(), pick()}, kind)) {
          values[from].push_back(out);
        }
    }
  }
  for (size_t i = 0; i < 3; ++i) {
    graph.set_output("last" + std::to_string(i), values[i].back());
    graph.set_output("middle" + std::to_string(i), values[i][values[i].size() / 2]);
  }
  return graph;
}

/// Bytes that depend on every byte of the operands, the operator and the position: any operand
/// that was clobbered changes every result.
inline void scramble(OpKind op, const std::vector<std::vector<std::byte>>& inputs, int output,
                     std::byte* out, int64_t bytes) {
  uint64_t key = static_cast<uint64_t>(op) * 1000003u + static_cast<uint64_t>(output);
  for (const std::vector<std::byte>& input : inputs) {
    key =
        RngStream(key, std::string_view(reinterpret_cast<const char*>(input.data()), input.size()))
            .key();
  }
  const RngStream stream(key);
  for (int64_t i = 0; i < bytes; ++i) {
    out[i] = static_cast<std::byte>(stream.bits(static_cast<uint64_t>(i)) & 0xff);
  }
}

}  // namespace weft
