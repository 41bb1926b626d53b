#include "tests/support/hf_fixture.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "weft/base/check.h"

namespace weft::test {
namespace {

/// Smooth values in (-1, 1) without a zero among them.
void fill(HostTensor& tensor, double scale) {
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor.set(i, scale * std::sin(1.0 + 0.7 * static_cast<double>(i)));
  }
}

void fill_ones(HostTensor& tensor) {
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.set(i, 1.0);
}

std::string hf_dtype(DType dtype) {
  switch (dtype) {
    case DType::f32: return "float32";
    case DType::bf16: return "bfloat16";
    case DType::f16: return "float16";
    default: throw BugError("hf_fixture", "unsupported dtype");
  }
}

double rounded(double value, DType dtype) {
  const HostTensor tensor({dtype, {1}}, {value});
  return tensor.get(0);
}

}  // namespace

void write_hf_folder(const std::string& folder, const Json& config, const Tensors& tensors,
                     int64_t shard_bytes) {
  FileSystem& files = posix_files();
  files.make_folders(folder);
  files.write_text(join_path(folder, "config.json"), config.dump(2) + "\n");
  std::vector<TensorInfo> infos;
  for (const auto& [name, tensor] : tensors) {
    infos.push_back({name, tensor.type.dtype, tensor.type.shape});
  }
  HfWriter writer(files, folder, infos, shard_bytes);
  for (const std::string& name : writer.order()) {
    writer.write(name, tensors.at(name).bytes.data());
  }
  writer.finish();
}

Json tiny_llama_config(const TinyLlama& shape) {
  return Json::object({{"architectures", Json(Json::Array{Json("LlamaForCausalLM")})},
                       {"model_type", "llama"},
                       {"hidden_size", shape.vocab},
                       {"intermediate_size", shape.intermediate},
                       {"num_hidden_layers", shape.layers},
                       {"num_attention_heads", shape.heads},
                       {"num_key_value_heads", shape.kv_heads},
                       {"vocab_size", shape.vocab},
                       {"max_position_embeddings", shape.max_positions},
                       {"rms_norm_eps", shape.eps},
                       {"hidden_act", "silu"},
                       {"rope_theta", 10000.0},
                       {"tie_word_embeddings", shape.tied},
                       {"torch_dtype", hf_dtype(shape.dtype)}});
}

Tensors zero_tensors(const TinyLlama& shape) {
  const int64_t hidden = shape.vocab;
  const int64_t head_dim = div_exact(hidden, shape.heads);
  const int64_t kv = shape.kv_heads * head_dim;
  Tensors tensors;
  const auto add = [&](const std::string& name, Shape dims) {
    tensors.emplace(name, HostTensor({shape.dtype, std::move(dims)}));
  };
  add("model.embed_tokens.weight", {shape.vocab, hidden});
  add("model.norm.weight", {hidden});
  if (!shape.tied) add("lm_head.weight", {shape.vocab, hidden});
  for (int64_t i = 0; i < shape.layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    add(layer + "input_layernorm.weight", {hidden});
    add(layer + "self_attn.q_proj.weight", {hidden, hidden});
    add(layer + "self_attn.k_proj.weight", {kv, hidden});
    add(layer + "self_attn.v_proj.weight", {kv, hidden});
    add(layer + "self_attn.o_proj.weight", {hidden, hidden});
    add(layer + "post_attention_layernorm.weight", {hidden});
    add(layer + "mlp.gate_proj.weight", {shape.intermediate, hidden});
    add(layer + "mlp.up_proj.weight", {shape.intermediate, hidden});
    add(layer + "mlp.down_proj.weight", {hidden, shape.intermediate});
  }
  return tensors;
}

Tensors bigram_tensors(const TinyLlama& shape, const BigramColumns& columns) {
  WEFT_CHECK(!shape.tied, "bigram_tensors", "a bigram model is untied");
  Tensors tensors = zero_tensors(shape);
  for (auto& [name, tensor] : tensors) {
    const bool silent = name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight");
    if (name.ends_with("norm.weight")) {
      fill_ones(tensor);
    } else if (name.starts_with("model.layers.") && !silent) {
      fill(tensor, 0.5);
    }
  }
  HostTensor& embedding = tensors.at("model.embed_tokens.weight");
  for (int64_t i = 0; i < shape.vocab; ++i) embedding.set(i * shape.vocab + i, 1.0);
  HostTensor& head = tensors.at("lm_head.weight");
  for (size_t c = 0; c < columns.size(); ++c) {
    for (size_t r = 0; r < columns[c].size(); ++r) {
      head.set(static_cast<int64_t>(r) * shape.vocab + static_cast<int64_t>(c), columns[c][r]);
    }
  }
  return tensors;
}

void write_zero_model(const std::string& folder, const TinyLlama& shape) {
  write_hf_folder(folder, tiny_llama_config(shape), zero_tensors(shape));
}

void write_bigram_model(const std::string& folder, const TinyLlama& shape,
                        const BigramColumns& columns) {
  write_hf_folder(folder, tiny_llama_config(shape), bigram_tensors(shape, columns));
}

double bigram_loss(const TinyLlama& shape, const BigramColumns& columns, int64_t token,
                   int64_t target) {
  std::vector<double> logits(static_cast<size_t>(shape.vocab), 0.0);
  const double hidden = 1.0 / std::sqrt(1.0 / static_cast<double>(shape.vocab) + shape.eps);
  if (static_cast<size_t>(token) < columns.size()) {
    const std::vector<double>& column = columns[static_cast<size_t>(token)];
    for (size_t r = 0; r < column.size(); ++r) logits[r] = rounded(column[r], shape.dtype) * hidden;
  }
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum) - logits[static_cast<size_t>(target)];
}

}  // namespace weft::test
