// Reading single fields of a Hugging Face config.json; shared by both ways to a ModelSpec. Errors
// are InputErrors naming `where` and the field.
#pragma once

#include <optional>
#include <string>

#include "weft/model/model_spec.h"

namespace weft {

/// Kernel kind of a Hugging Face activation name: gelu, gelu_tanh or silu; others are refused.
std::string resolve_activation(const std::string& name, const std::string& where);
/// Explicit head_dim wins; absent means hidden / heads, which must then be whole.
int64_t resolve_head_dim(std::optional<int64_t> head_dim, int64_t hidden, int64_t heads,
                         const std::string& where);
/// rope_parameters or rope_scaling object. Types other than default, linear and llama3 are refused.
RopeSpec rope_from_json(const Json& json, double theta, const std::string& where);
/// Rules that hold for every ModelSpec (positive sizes, heads divide, even head_dim with RoPE).
void check_model_spec(const ModelSpec& spec, const std::string& where);

}  // namespace weft
