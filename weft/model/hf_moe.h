// The fields of config.json that describe experts. Internal to model/.
#pragma once

#include <string>

#include "weft/model/hf_fields.h"
#include "weft/model/model_spec.h"

namespace weft {

/// mixtral, qwen3_moe, deepseek (the first generation) or dots1.
bool is_moe_type(const std::string& model_type);
/// Fills spec.moe; the rest of `spec` is set. Errors name `where` and the field.
void read_moe(ModelSpec& spec, const HfFields& f, const std::string& where);
/// "MixtralForCausalLM" etc.
std::string moe_architecture(const std::string& model_type);
/// Adds the fields that read_moe reads.
void add_moe_json(const ModelSpec& spec, Json& json);

}  // namespace weft
