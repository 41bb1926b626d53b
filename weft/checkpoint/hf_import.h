// Weights from a Hugging Face folder into a session. docs/formats/safetensors.md.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "weft/checkpoint/manifest.h"
#include "weft/checkpoint/state_store.h"
#include "weft/comm/communicator.h"
#include "weft/io/file.h"

namespace weft {

struct ImportReport {
  std::string dtype;                                 // "f32", "bf16", "f16": that of most elements
  std::map<std::string, std::string> tensor_dtypes;  // tensors that differ, as in ModelInfo
  int64_t tensors = 0;
  int64_t bytes = 0;
};

/// Fills every stored weight and master (moments are left alone), then refreshes copies. Of a
/// tensor only chunks that hold something of the states are read. Collective with a communicator of
/// several ranks (checkpoint.h), the report is that of the whole model. Names are
/// accepted with and without the "transformer." or "model." prefix; known buffers are ignored; a
/// head in the file of a tied model must equal the embedding. Missing, unexpected, wrongly shaped
/// or non-finite tensors are InputErrors that name the tensor and the file.
ImportReport import_hf_weights(FileSystem& files, StateStore& states, const std::string& folder,
                               Communicator* communicator = nullptr);

/// `info` as stored in checkpoints after this import: precision and source folder.
void note_import(const ImportReport& report, const std::string& folder, ModelInfo& info);

}  // namespace weft
