// Cases that every communicator must pass, with a plain reference: one table, run by ranks that are
// threads and by ranks that are processes.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/ops/collective.h"
#include "weft/ops/ops.h"

namespace weft {

using Bytes = std::vector<std::byte>;

struct CommCase {
  CollectiveKind kind{};
  DType dtype = DType::f32;
  std::vector<Shape> shapes;  // logical, one per tensor
  int64_t dim = -1;
  int64_t block = 1;
  int64_t gather_dim = -1;  // all_to_all
  int64_t gather_block = 1;
  Reduction reduction = Reduction::sum;
  bool in_place = false;

  std::string name() const {
    static constexpr const char* kKinds[] = {"all_reduce", "reduce_scatter", "all_gather",
                                             "all_to_all"};
    std::string text = fmt::format("{} {}{}{} dim {}", kKinds[static_cast<int>(kind)],
                                   dtype_name(dtype), in_place ? " in place" : "",
                                   reduction == Reduction::logsumexp ? " logsumexp" : "", dim);
    for (const Shape& shape : shapes) text += " " + shape_text(shape);
    return text;
  }
};

/// 64 mixed bits.
inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 32);
}

/// Element `index` of tensor `tensor` on rank `rank`: magnitudes differ, so that the order of a sum
/// shows in its bits.
inline void put_value(const CommCase& c, std::byte* data, int64_t index, size_t tensor, int rank) {
  const uint64_t bits =
      mix(static_cast<uint64_t>(index) + (tensor << 40) + (static_cast<uint64_t>(rank) << 50) + 1);
  if (c.dtype == DType::i32) {
    const auto value = static_cast<int32_t>(bits);
    std::memcpy(data + index * 4, &value, 4);
  } else if (c.dtype == DType::i64) {
    const auto value = static_cast<int64_t>(bits);
    std::memcpy(data + index * 8, &value, 8);
  } else {
    double value = std::ldexp(static_cast<double>(bits & 0xffffu) - 32768.0,
                              static_cast<int>(bits >> 16 & 7u) - 14);
    if (c.reduction == Reduction::logsumexp) {
      value = (bits >> 20 & 3u) == 0 ? -std::numeric_limits<double>::infinity() : value / 8;
    }
    store_element(data, c.dtype, index, value);
  }
}

inline Bytes make_tensor(const CommCase& c, const Shape& shape, size_t tensor, int rank) {
  Bytes data(static_cast<size_t>(num_elements(shape) * dtype_size(c.dtype)));
  for (int64_t i = 0; i < num_elements(shape); ++i) put_value(c, data.data(), i, tensor, rank);
  return data;
}

/// One element of a reduction, in the order of the ranks.
inline void reduce_value(const CommCase& c, const std::vector<Bytes>& inputs, std::byte* out,
                         int64_t i) {
  const auto load = [&](const Bytes& data) { return load_element(data.data(), c.dtype, i); };
  if (c.dtype == DType::i32) {
    uint32_t sum = 0;
    for (const Bytes& data : inputs) {
      uint32_t value = 0;
      std::memcpy(&value, data.data() + i * 4, 4);
      sum += value;
    }
    std::memcpy(out + i * 4, &sum, 4);
  } else if (c.dtype == DType::i64) {
    uint64_t sum = 0;
    for (const Bytes& data : inputs) {
      uint64_t value = 0;
      std::memcpy(&value, data.data() + i * 8, 8);
      sum += value;
    }
    std::memcpy(out + i * 8, &sum, 8);
  } else if (c.reduction == Reduction::logsumexp) {
    double largest = -std::numeric_limits<double>::infinity();
    for (const Bytes& data : inputs) largest = std::max(largest, load(data));
    double sum = 0;
    for (const Bytes& data : inputs) sum += std::exp(load(data) - largest);
    store_element(out, c.dtype, i, std::isinf(largest) ? largest : largest + std::log(sum));
  } else if (c.dtype == DType::f64) {
    double sum = load(inputs[0]);
    for (size_t r = 1; r < inputs.size(); ++r) sum += load(inputs[r]);
    store_element(out, c.dtype, i, sum);
  } else {
    float sum = static_cast<float>(load(inputs[0]));
    for (size_t r = 1; r < inputs.size(); ++r) sum += static_cast<float>(load(inputs[r]));
    store_element(out, c.dtype, i, sum);
  }
}

/// Elements [piece] along `dim` (-1 = of the flattening).
inline Bytes slice(const Bytes& whole, Shape shape, int64_t dim, CutPiece piece, int64_t size) {
  if (dim < 0) {
    shape = {num_elements(shape)};
    dim = 0;
  }
  int64_t inner = size;
  for (size_t i = static_cast<size_t>(dim) + 1; i < shape.size(); ++i) inner *= shape[i];
  const int64_t row = shape[static_cast<size_t>(dim)] * inner;
  Bytes result;
  for (int64_t begin = 0; row > 0 && begin < static_cast<int64_t>(whole.size()); begin += row) {
    const auto first = whole.begin() + begin + piece.begin * inner;
    result.insert(result.end(), first, first + piece.size * inner);
  }
  return result;
}

struct MemberData {
  std::vector<Bytes> inputs;
  std::vector<Bytes> outputs;
};

/// What member `index` of `ways` puts in and must get.
inline MemberData reference(const CommCase& c, int ways, int index) {
  MemberData data;
  const int64_t size = dtype_size(c.dtype);
  for (size_t t = 0; t < c.shapes.size(); ++t) {
    const Shape& shape = c.shapes[t];
    const int64_t extent = c.dim < 0 ? num_elements(shape) : shape[static_cast<size_t>(c.dim)];
    const CutPiece piece = cut_piece(extent, c.block, ways, index);
    if (c.kind == CollectiveKind::all_reduce || c.kind == CollectiveKind::reduce_scatter) {
      std::vector<Bytes> inputs;
      for (int r = 0; r < ways; ++r) inputs.push_back(make_tensor(c, shape, t, r));
      Bytes sum(inputs[0].size());
      for (int64_t i = 0; i < num_elements(shape); ++i) reduce_value(c, inputs, sum.data(), i);
      data.inputs.push_back(inputs[static_cast<size_t>(index)]);
      const bool whole = c.kind == CollectiveKind::all_reduce;
      data.outputs.push_back(whole ? sum : slice(sum, shape, c.dim, piece, size));
    } else if (c.kind == CollectiveKind::all_gather) {
      const Bytes whole = make_tensor(c, shape, t, 0);
      data.inputs.push_back(slice(whole, shape, c.dim, piece, size));
      data.outputs.push_back(whole);
    } else {
      const Bytes whole = make_tensor(c, shape, t, 0);
      const CutPiece gathered =
          cut_piece(shape[static_cast<size_t>(c.gather_dim)], c.gather_block, ways, index);
      data.inputs.push_back(slice(whole, shape, c.gather_dim, gathered, size));
      data.outputs.push_back(slice(whole, shape, c.dim, piece, size));
    }
  }
  return data;
}

inline KernelSpec kernel_spec(const CommCase& c, int ways, int index,
                              const std::string& axis = "op") {
  static constexpr OpKind kOps[] = {OpKind::all_reduce, OpKind::reduce_scatter, OpKind::all_gather,
                                    OpKind::all_to_all};
  KernelSpec spec;
  spec.op = kOps[static_cast<int>(c.kind)];
  spec.attrs.set("axis", axis);
  spec.attrs.set("ways", int64_t{ways});
  spec.attrs.set("index", int64_t{index});
  if (c.reduction == Reduction::logsumexp) spec.attrs.set("reduction", std::string("logsumexp"));
  if (c.kind != CollectiveKind::all_reduce) {
    spec.attrs.set("dim", c.dim);
    spec.attrs.set("block", c.block);
  }
  std::string shapes;
  for (const Shape& shape : c.shapes) {
    TensorType type{c.dtype, shape};
    if (!shapes.empty()) shapes += ";";
    shapes += extents_attr(shape);
    if (c.kind == CollectiveKind::all_gather && c.dim < 0) {
      type.shape = {cut_piece(num_elements(shape), 1, ways, index).size};
    } else if (c.kind == CollectiveKind::all_gather) {
      int64_t& extent = type.shape[static_cast<size_t>(c.dim)];
      extent = cut_piece(extent, c.block, ways, index).size;
    } else if (c.kind == CollectiveKind::all_to_all) {
      int64_t& extent = type.shape[static_cast<size_t>(c.gather_dim)];
      spec.attrs.set("gather_dim", c.gather_dim);
      spec.attrs.set("gather_block", c.gather_block);
      spec.attrs.set("gather_extent", extent);
      extent = cut_piece(extent, c.gather_block, ways, index).size;
    }
    spec.inputs.push_back(std::move(type));
  }
  if (c.kind == CollectiveKind::all_gather) spec.attrs.set("shape", shapes);
  spec.outputs = op_def(spec.op).infer(spec.inputs, spec.attrs);
  return spec;
}

/// Runs the case among `group` and returns what was wrong, "" when nothing was.
inline std::string run_case(Communicator& comm, const CommCase& c,
                            const std::vector<int32_t>& group, const std::string& axis = "op") {
  constexpr auto kGuard = std::byte{0x5a};
  const int ways = static_cast<int>(group.size());
  const int index =
      static_cast<int>(std::find(group.begin(), group.end(), comm.rank()) - group.begin());
  const KernelSpec spec = kernel_spec(c, ways, index, axis);
  const CollectiveSpec collective = collective_spec(spec);
  const MemberData data = reference(c, ways, index);
  const std::unique_ptr<Kernel> kernel = comm.prepare(spec, group);
  const int64_t before = comm.received()[axis];
  const auto workspace_bytes = static_cast<size_t>(collective_workspace_bytes(collective));
  constexpr int kRuns = 2;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<Bytes> inputs = data.inputs;
    std::vector<Bytes> outputs;
    for (const Bytes& expected : data.outputs) outputs.emplace_back(expected.size() + 1, kGuard);
    Bytes workspace(workspace_bytes + 1, kGuard);
    std::vector<const void*> in;
    std::vector<void*> out;
    for (size_t t = 0; t < inputs.size(); ++t) {
      inputs[t].push_back(kGuard);
      in.push_back(inputs[t].data());
      out.push_back(c.in_place ? inputs[t].data() : outputs[t].data());
    }
    kernel->run({in, out, workspace.data()});
    if (workspace.back() != kGuard) return c.name() + ": wrote behind the workspace";
    for (size_t t = 0; t < inputs.size(); ++t) {
      Bytes result = c.in_place ? inputs[t] : outputs[t];
      if (result.back() != kGuard) return c.name() + ": wrote behind the output";
      result.pop_back();
      if (result != data.outputs[t]) {
        return fmt::format("{}: output {} of rank {} differs", c.name(), t, comm.rank());
      }
      inputs[t].pop_back();
      if (!c.in_place && inputs[t] != data.inputs[t]) return c.name() + ": changed its input";
    }
  }
  const int64_t received = comm.received()[axis] - before;
  if (received != kRuns * received_bytes(collective)) {
    return fmt::format("{}: received {} bytes on rank {}, planned {}", c.name(), received,
                       comm.rank(), kRuns * received_bytes(collective));
  }
  return "";
}

inline std::vector<CommCase> comm_cases() {
  using enum CollectiveKind;
  std::vector<CommCase> cases;
  for (const DType dtype :
       {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64}) {
    cases.push_back({.kind = all_reduce, .dtype = dtype, .shapes = {{7, 11}, {2}, {3, 500}}});
    cases.push_back({.kind = all_reduce, .dtype = dtype, .shapes = {{4099}}, .in_place = true});
    cases.push_back({.kind = reduce_scatter, .dtype = dtype, .shapes = {{3, 10, 5}}, .dim = 1});
  }
  for (const DType dtype : {DType::f32, DType::bf16, DType::i64}) {
    cases.push_back({.kind = reduce_scatter, .dtype = dtype, .shapes = {{5, 7}, {1}, {40}}});
    cases.push_back({.kind = reduce_scatter, .dtype = dtype, .shapes = {{9, 4}}, .dim = 0});
    cases.push_back(
        {.kind = reduce_scatter, .dtype = dtype, .shapes = {{6, 12}}, .dim = 1, .block = 4});
    cases.push_back({.kind = all_gather, .dtype = dtype, .shapes = {{5, 7}, {1}, {40}}});
    cases.push_back({.kind = all_gather, .dtype = dtype, .shapes = {{3, 10, 5}}, .dim = 1});
    cases.push_back({.kind = all_gather, .dtype = dtype, .shapes = {{9, 4}}, .dim = 0});
    cases.push_back(
        {.kind = all_gather, .dtype = dtype, .shapes = {{2, 3, 8}, {5, 16}}, .dim = 1, .block = 1});
    cases.push_back(
        {.kind = all_gather, .dtype = dtype, .shapes = {{6, 12}}, .dim = 1, .block = 4});
    // Cut and gathered dims in both orders, with and without dims before, between and behind.
    for (const auto& [dim, gather] :
         {std::pair<int64_t, int64_t>{0, 1}, {1, 0}, {1, 3}, {3, 1}, {0, 3}, {3, 0}, {2, 1}}) {
      cases.push_back({.kind = all_to_all,
                       .dtype = dtype,
                       .shapes = {{6, 5, 4, 10}},
                       .dim = dim,
                       .block = dim == 3 ? 2 : 1,
                       .gather_dim = gather,
                       .gather_block = gather == 0 ? 3 : 1});
    }
  }
  // One block: all but one piece are empty.
  cases.push_back({.kind = reduce_scatter, .shapes = {{3, 64}}, .dim = 1, .block = 64});
  cases.push_back({.kind = all_gather, .shapes = {{3, 64}}, .dim = 1, .block = 64});
  cases.push_back({.kind = all_reduce, .shapes = {{1}}});
  cases.push_back({.kind = all_reduce, .shapes = {{0}}});
  cases.push_back({.kind = all_gather, .shapes = {{0, 3}}, .dim = 0});
  for (const DType dtype : {DType::f32, DType::f64}) {
    cases.push_back(
        {.kind = all_reduce, .dtype = dtype, .shapes = {{301}}, .reduction = Reduction::logsumexp});
    cases.push_back({.kind = reduce_scatter,
                     .dtype = dtype,
                     .shapes = {{3, 20}},
                     .dim = 1,
                     .reduction = Reduction::logsumexp});
  }
  return cases;
}

/// Cases of more than one chunk per member, for 3 or 4 members.
inline std::vector<CommCase> large_comm_cases() {
  using enum CollectiveKind;
  const int64_t rows = 9 * kCollectiveChunkBytes / 2 / (8 * 1000) + 7;  // of 1000 f64
  return {
      {.kind = all_reduce, .dtype = DType::f64, .shapes = {{rows, 1000}, {5000}}},
      {.kind = reduce_scatter, .dtype = DType::f64, .shapes = {{1000, rows}, {7, rows}}, .dim = 1},
      {.kind = all_gather, .dtype = DType::f64, .shapes = {{1000, rows}, {7, rows}}, .dim = 1},
      {.kind = all_gather, .dtype = DType::f64, .shapes = {{rows, 1000}, {5000}}}};
}

inline std::vector<int32_t> all_ranks(int world) {
  std::vector<int32_t> ranks(static_cast<size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace weft
