// Parts that families share. Shapes: x is the residual stream [B,S,H].
#pragma once

#include "weft/model/model_graph.h"

namespace weft {

/// y = x w^T + b for a [out,in] weight `module`.weight, or x w + b for a Conv1D [in,out] one
/// (transpose_w false). `piece` selects a piece of a fused tensor ("#q"); the bias is used when the
/// model has it.
ValueId linear(ForwardContext& context, ValueId x, const std::string& module,
               bool transpose_w = true, const std::string& piece = "");
/// RMS norm with weight `module`.weight; per head when the weight is shorter than x.
ValueId rms_norm(ForwardContext& context, ValueId x, const std::string& module);
ValueId layer_norm(ForwardContext& context, ValueId x, const std::string& module);
/// x + dropout(branch), or x + branch without dropout.
ValueId residual_add(ForwardContext& context, ValueId x, ValueId branch);
/// dropout(x) at a new site.
ValueId dropout(ForwardContext& context, ValueId x);
/// MLP of a normed x, from `module`.gate_proj, up_proj, down_proj; see ModelSpec::gated.
ValueId llama_mlp(ForwardContext& context, ValueId x, const std::string& module);
/// Causal attention of q, k, v as [B,S,heads x head_dim] under `scale`.
ValueId attention(ForwardContext& context, ValueId q, ValueId k, ValueId v, int64_t layer,
                  double scale);

/// The families' pages.
ValueId gpt2_hidden(ForwardContext& context);
ValueId llama_hidden(ForwardContext& context);
std::vector<ParamSpec> gpt2_parameters(const ModelSpec& spec);
std::vector<ParamSpec> llama_parameters(const ModelSpec& spec);

/// Experts in place of the MLP of `layer` (moe.cpp): what they return for a normed x.
ValueId moe_branch(ForwardContext& context, ValueId x, int64_t layer);
/// "model.layers.N.mlp.gate".
std::string router_module(int64_t layer);
void add_moe_parameters(const ModelSpec& spec, int64_t layer, std::vector<ParamSpec>& parameters);
/// `module`.weight [out,in] and, with `bias`, `module`.bias.
void add_projection(std::vector<ParamSpec>& parameters, const std::string& module, int64_t out,
                    int64_t in, bool bias);
void add_llama_mlp(const ModelSpec& spec, const std::string& module, int64_t width,
                   std::vector<ParamSpec>& parameters);

/// A whole tensor as parameter; matrices decay and are drawn normal, others are ones or zeros.
ParamSpec matrix_parameter(const std::string& name, int64_t rows, int64_t columns);
ParamSpec vector_parameter(const std::string& name, int64_t size, const std::string& init);

}  // namespace weft
