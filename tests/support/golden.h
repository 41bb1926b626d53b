// The golden models of tests/golden/models: a Hugging Face folder and what the real library
// computes with it. tests/golden/README.md lists the tensors.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/support/host_tensor.h"
#include "weft/config/config.h"
#include "weft/model/model_spec.h"

namespace weft::test {

using Tensors = std::map<std::string, HostTensor>;

/// All tensors of a .safetensors file, or of a Hugging Face folder with its shards.
Tensors read_tensors(const std::string& path);

struct Golden {
  std::string folder;
  ModelSpec spec;
  Tensors weights;   // by Hugging Face name
  Tensors expected;  // golden.safetensors

  const HostTensor& at(const std::string& name) const;
  /// A scalar or element of `expected`.
  double number(const std::string& name, int64_t index = 0) const;
  bool trained() const { return expected.contains("adamw.losses"); }
};

/// Folder of golden model `name`.
std::string golden_folder(const std::string& name);
Golden load_golden(const std::string& name);
/// Those with logits and gradients, in name order.
std::vector<std::string> golden_names();

/// Batch 3 x 16 in `accumulation` micro-batches (1 or 3), constant learning rate, the optimizer
/// settings the goldens were made with: "adamw" or "sgd".
Config golden_config(const std::string& optimizer, int64_t accumulation, const std::string& backend,
                     const std::string& compute);

/// The piece of `whole` that starts at `begin`, in the piece's dtype.
HostTensor cut(const HostTensor& whole, const Shape& begin, const TensorType& piece);
/// Writes a piece to its place.
void paste(HostTensor& whole, const Shape& begin, const HostTensor& piece);

/// max |got - expected| / max |expected|; infinite when shapes differ or a value is not finite.
double relative_error(const HostTensor& got, const HostTensor& expected);

}  // namespace weft::test
