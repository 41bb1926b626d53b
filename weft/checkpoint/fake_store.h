// A StateStore in plain memory: a small gpt2-like model with fused attention columns, bf16 copies
// of fp32 masters and two moments. Tests only.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/state_store.h"

namespace weft {

class FakeStore : public StateStore {
 public:
  const std::vector<PlanState>& states() const override { return states_; }
  void read_state(int index, void* data) override {
    const auto& from = data_[static_cast<size_t>(index)];
    std::memcpy(data, from.data(), from.size());
  }
  void write_state(int index, const void* data) override {
    auto& to = data_[static_cast<size_t>(index)];
    std::memcpy(to.data(), data, to.size());
  }
  void refresh_copies() override {
    ++refreshed;
    for (size_t i = 0; i < states_.size(); ++i) {
      if (states_[i].init.kind != StateInit::Kind::copy) continue;
      const auto source = static_cast<size_t>(index(states_[i].init.source));
      if (!same_piece(states_[i], states_[source])) continue;
      convert_elements(data_[source].data(), states_[source].type.dtype, data_[i].data(),
                       states_[i].type.dtype, states_[i].type.elements());
    }
  }

  void add(std::string name, StateRole role, DType dtype, Shape shape, LogicalSlice logical,
           std::string slot = "", StateInit init = {}) {
    PlanState state;
    state.name = std::move(name);
    state.role = role;
    state.type = {dtype, std::move(shape)};
    state.logical = std::move(logical);
    state.slot = std::move(slot);
    state.init = std::move(init);
    data_.emplace_back(static_cast<size_t>(state.type.bytes()));
    states_.push_back(std::move(state));
  }
  /// A bf16 weight, its master and both moments.
  void add_parameter(const std::string& name, const Shape& shape, const LogicalSlice& logical) {
    add(name, StateRole::weight, DType::bf16, shape, logical, "",
        {StateInit::Kind::copy, 0.0, name + "@master"});
    add(name + "@master", StateRole::master, DType::f32, shape, logical);
    if (!moments) return;
    add(name + "@m", StateRole::moment, DType::f32, shape, logical, "m");
    add(name + "@v", StateRole::moment, DType::f32, shape, logical, "v");
  }
  void add_parameter(const std::string& name, const Shape& shape) {
    add_parameter(name, shape, {name, shape, Shape(shape.size(), 0)});
  }

  /// Every element of every stored state gets its own value. The fp32 values fit bf16 exactly.
  void fill(int seed) {
    for (size_t i = 0; i < states_.size(); ++i) {
      const DType dtype = states_[i].type.dtype;
      for (int64_t k = 0; k < states_[i].type.elements(); ++k) {
        const auto value = static_cast<float>((seed * 37 + static_cast<int>(i) * 11 + k) % 256);
        store_element(data_[i].data(), dtype, k, value - 100.0f);
      }
    }
  }
  /// Fills weights by element of the logical tensor, so that slicing does not matter.
  void fill_logical(int seed) {
    for (size_t i = 0; i < states_.size(); ++i) {
      const PlanState& state = states_[i];
      const uint64_t base =
          std::hash<std::string>{}(stored_name(state)) % 97 + static_cast<uint64_t>(seed);
      const Shape& shape = state.type.shape;
      for (int64_t k = 0; k < state.type.elements(); ++k) {
        int64_t rest = k;
        int64_t at = 0;
        int64_t stride = 1;
        for (size_t d = shape.size(); d-- > 0;) {
          at += (state.logical.begin[d] + rest % shape[d]) * stride;
          rest /= shape[d];
          stride *= state.logical.shape[d];
        }
        store_element(data_[i].data(), state.type.dtype, k,
                      static_cast<float>((base + static_cast<uint64_t>(at)) % 256) - 100.0f);
      }
    }
  }

  int index(const std::string& name) const {
    const auto found = std::find_if(states_.begin(), states_.end(),
                                    [&](const PlanState& state) { return state.name == name; });
    return static_cast<int>(found - states_.begin());
  }
  float* values(const std::string& name) {
    return reinterpret_cast<float*>(data_.at(static_cast<size_t>(index(name))).data());
  }
  /// Content of all states, copies too.
  const std::vector<std::vector<char>>& content() const { return data_; }
  /// Content of the stored states only.
  std::vector<std::vector<char>> stored() const {
    std::vector<std::vector<char>> result;
    for (size_t i = 0; i < states_.size(); ++i) {
      if (is_stored(states_[i])) result.push_back(data_[i]);
    }
    return result;
  }

  int refreshed = 0;
  bool moments = true;

 private:
  std::vector<PlanState> states_;
  std::vector<std::vector<char>> data_;
};

/// Where the columns of the fused attention matrix are cut in a fake model.
enum class Cut { columns, rows, whole };

inline FakeStore make_fake(Cut cut = Cut::columns, bool moments = true) {
  FakeStore store;
  store.moments = moments;
  store.add_parameter("transformer.wte.weight", {6, 4});
  const std::string fused = "transformer.h.0.attn.c_attn.weight";
  const Shape shape = {4, 12};
  if (cut == Cut::whole) {
    store.add_parameter(fused, shape);
  } else if (cut == Cut::columns) {
    const char* parts[] = {"#q", "#k", "#v"};
    for (int64_t i = 0; i < 3; ++i) {
      store.add_parameter(fused + parts[i], {4, 4}, {fused, shape, {0, 4 * i}});
    }
  } else {
    store.add_parameter(fused + "#0", {1, 12}, {fused, shape, {0, 0}});
    store.add_parameter(fused + "#1", {3, 12}, {fused, shape, {1, 0}});
  }
  store.add_parameter("transformer.h.0.attn.c_proj.weight", {4, 4});
  store.add_parameter("transformer.h.0.ln_1.weight", {4});
  store.fill_logical(1);
  return store;
}

inline CheckpointMeta make_meta(int64_t step) {
  CheckpointMeta meta;
  meta.train.step = step;
  meta.train.samples_consumed = step * 16;
  meta.train.epoch = 2;
  meta.train.tokens_total = step * 16 * 128;
  meta.train.counters["skipped"] = 0.1;
  meta.train.scaler = Json::object({{"scale", 65536.0}});
  meta.config = Json::object({{"seed", 1234}, {"lr", 3e-4}});
  meta.model.hf_config = Json::object({{"model_type", "gpt2"}, {"n_embd", 4}});
  meta.model.dtype = "bf16";
  return meta;
}

}  // namespace weft
