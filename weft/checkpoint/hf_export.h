// A Hugging Face folder from a checkpoint or from live states. Streams tensor by tensor: memory is
// that of the largest tensor.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/base/dtype.h"
#include "weft/checkpoint/manifest.h"
#include "weft/checkpoint/state_store.h"
#include "weft/io/file.h"
#include "weft/io/hf_folder.h"

namespace weft {

struct ExportOptions {
  std::optional<DType> dtype;  // f32, bf16 or f16; unset = ModelInfo
  int64_t shard_bytes = kDefaultShardBytes;
};

struct ExportReport {
  std::string dtype;
  int64_t tensors = 0;
  int64_t bytes = 0;
  std::vector<std::string> copied;  // tokenizer files taken from the imported folder
};

/// Writes config.json, safetensors and the tokenizer files of the imported folder into `out`, which
/// must be absent or empty and appears only when complete. Values round to nearest even; a finite
/// value that the dtype cannot hold is an InputError naming the tensor.
ExportReport export_checkpoint(FileSystem& files, const std::string& checkpoint,
                               const std::string& out, const ExportOptions& options = {});
ExportReport export_states(FileSystem& files, StateStore& states, const ModelInfo& model,
                           const std::string& out, const ExportOptions& options = {});

}  // namespace weft
