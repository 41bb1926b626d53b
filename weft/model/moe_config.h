// Reading the parts of a configuration that describe experts. Internal to model/.
#pragma once

#include <string>

#include "weft/model/model_spec.h"

namespace weft {

/// Fills spec.moe and model_type of family "moe" from [model]; the rest of `spec` is set.
/// UsageError when fields are missing or describe a model that no Hugging Face type can express.
void read_moe_fields(ModelSpec& spec, const ModelConfig& config);
/// The keys on how experts are trained, which are allowed beside `hf` too. UsageError when the
/// model has no experts.
void apply_moe_training(ModelSpec& spec, const ModelConfig& config);
/// Rules for spec.moe; nothing without experts.
void check_moe(const ModelSpec& spec, const std::string& where);

}  // namespace weft
