// How logical tensors are spelled in Hugging Face folders: as they are, or, for the stacked weights
// of experts, as one tensor per expert. Names are those of the state, "model.layers.0.mlp…".
#pragma once

#include <string>
#include <vector>

#include "weft/checkpoint/box.h"

namespace weft {

/// A tensor of a folder and what it holds of its logical tensor.
struct HfPart {
  std::string name;
  Shape shape;
  Box box;
};

/// The ways in which folders spell logical tensor `name`; each covers it. The first is the usual
/// one.
std::vector<std::vector<HfPart>> hf_spellings(const std::string& name, const Shape& shape);
/// The one that models of `model_type` are published in.
std::vector<HfPart> hf_parts(const std::string& name, const Shape& shape,
                             const std::string& model_type);

}  // namespace weft
