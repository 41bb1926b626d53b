// Random layouts of a small model over several ranks: boxes, flat ranges of boxes, replicas, empty
// pieces, and ranks that do not know a tensor at all. Tests only.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "weft/base/rng.h"
#include "weft/checkpoint/fake_store.h"
#include "weft/checkpoint/logical.h"

namespace weft {

/// Element `index` of a logical tensor: uses every bit of an fp32 mantissa.
inline float logical_value(const std::string& name, int64_t index, int seed) {
  const RngStream stream(static_cast<uint64_t>(seed), name);
  return static_cast<float>(stream.uniform(static_cast<uint64_t>(index))) * 3.1f - 1.5f;
}

/// Calls body(element of the state, element of its logical tensor).
template <class Body>
void for_each_element(const PlanState& state, const Body& body) {
  int64_t local = 0;
  for (const Box& box : state_boxes(state)) {
    for (int64_t i = 0; i < num_elements(box.extent); ++i) {
      int64_t rest = i;
      int64_t place = 0;
      int64_t stride = 1;
      for (size_t d = box.extent.size(); d-- > 0;) {
        place += (box.begin[d] + rest % box.extent[d]) * stride;
        rest /= box.extent[d];
        stride *= state.logical.shape[d];
      }
      body(local++, place);
    }
  }
}

class RankLayout {
 public:
  struct Tensor {
    std::string name;
    Shape shape;
    int cut_dim = -1;   // over the ranks of axis op
    bool flat = false;  // what is stored is cut flat over axis data
    bool flat_weight = false;
    bool master = true;  // bf16 weight with an fp32 master, or one fp32 weight
    bool drop = false;   // ranks without elements do not know the tensor
  };

  /// `seed` draws how each tensor is cut.
  RankLayout(int world, int seed, bool moments = true) : world_(world), moments_(moments) {
    const RngStream rng(static_cast<uint64_t>(seed), "layout");
    uint64_t draw = 0;
    const auto below = [&](uint64_t bound) { return static_cast<int>(rng.below(draw++, bound)); };
    std::vector<int> divisors;
    for (int d = 1; d <= world; ++d) {
      if (world % d == 0) divisors.push_back(d);
    }
    op = divisors[static_cast<size_t>(below(divisors.size()))];
    const std::pair<const char*, Shape> model[] = {
        {"model.embed_tokens.weight", {11, 7}},
        {"model.layers.0.mlp.up_proj.weight", {5, 7}},
        {"model.layers.0.mlp.down_proj.weight", {7, 5}},
        {"model.layers.0.conv.weight", {3, 2, 4}},
        {"model.layers.0.norm.weight", {7}},
        {"model.layers.0.scale", {}},
        {"model.layers.0.tiny.weight", {1, 2}},
    };
    for (const auto& [name, shape] : model) {
      Tensor tensor{name, shape};
      tensor.cut_dim = below(shape.size() + 1) - 1;
      tensor.flat = below(3) != 0;
      tensor.flat_weight = tensor.flat && below(2) == 0;
      tensor.master = below(3) != 0;
      tensor.drop = below(3) == 0;
      tensors.push_back(tensor);
    }
  }

  /// The states of one rank, without values.
  FakeStore store(int rank) const {
    FakeStore result;
    const int64_t data = world_ / op;
    for (const Tensor& tensor : tensors) {
      Shape begin(tensor.shape.size(), 0);
      Shape extent = tensor.shape;
      if (tensor.cut_dim >= 0) {
        const auto d = static_cast<size_t>(tensor.cut_dim);
        cut(tensor.shape[d], op, rank % op, begin[d], extent[d]);
      }
      int64_t flat_begin = 0;
      int64_t count = 0;
      cut(num_elements(extent), data, rank / op, flat_begin, count);
      const LogicalSlice box{tensor.name, tensor.shape, begin};
      const LogicalSlice flat{tensor.name, tensor.shape, begin, extent, flat_begin};
      const bool empty = (tensor.flat ? count : num_elements(extent)) == 0;
      if (tensor.drop && empty && (tensor.flat_weight || num_elements(extent) == 0)) continue;
      const auto add = [&](const std::string& name, StateRole role, DType dtype, bool is_flat,
                           const std::string& slot, StateInit init) {
        result.add(name, role, dtype, is_flat ? Shape{count} : extent, is_flat ? flat : box, slot,
                   std::move(init));
      };
      const std::string& name = tensor.name;
      if (tensor.master) {
        add(name, StateRole::weight, DType::bf16, tensor.flat_weight, "",
            {StateInit::Kind::copy, 0.0, name + "@master"});
        add(name + "@master", StateRole::master, DType::f32, tensor.flat, "", {});
      } else {
        add(name, StateRole::weight, DType::f32, tensor.flat, "", {});
      }
      if (!moments_) continue;
      add(name + "@m", StateRole::moment, DType::f32, tensor.flat, "m", {});
      add(name + "@v", StateRole::moment, DType::f32, tensor.flat, "v", {});
    }
    return result;
  }
  /// With values, copies included.
  FakeStore filled_store(int rank, int seed) const {
    FakeStore result = store(rank);
    fill(result, seed);
    return result;
  }
  static void fill(FakeStore& store, int seed) {
    std::vector<char> data;
    for (size_t i = 0; i < store.states().size(); ++i) {
      const PlanState& state = store.states()[i];
      data.resize(static_cast<size_t>(state.type.bytes()));
      for_each_element(state, [&](int64_t local, int64_t place) {
        store_element(data.data(), state.type.dtype, local,
                      logical_value(stored_name(state), place, seed));
      });
      if (!data.empty()) store.write_state(static_cast<int>(i), data.data());
    }
  }

  int world() const { return world_; }

  int op = 1;  // ranks along axis op; the others are along axis data
  std::vector<Tensor> tensors;

 private:
  static void cut(int64_t extent, int64_t ways, int64_t index, int64_t& begin, int64_t& size) {
    size = extent / ways + (index < extent % ways ? 1 : 0);
    begin = extent / ways * index + std::min(index, extent % ways);
  }

  int world_;
  bool moments_;
};

}  // namespace weft
