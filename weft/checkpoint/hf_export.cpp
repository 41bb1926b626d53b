#include "weft/checkpoint/hf_export.h"

#include <fmt/core.h>

#include <array>
#include <functional>
#include <map>
#include <utility>

#include "weft/base/error.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/content.h"
#include "weft/checkpoint/finite.h"
#include "weft/checkpoint/hf_names.h"
#include "weft/checkpoint/logical.h"
#include "weft/io/atomic_folder.h"

namespace weft {
namespace {

/// Files that belong to a model folder but are not made by training.
constexpr std::array kCopiedFiles = {
    "tokenizer.json",     "tokenizer_config.json",
    "tokenizer.model",    "special_tokens_map.json",
    "vocab.json",         "merges.txt",
    "added_tokens.json",  "chat_template.jinja",
    "chat_template.json", "generation_config.json",
};

/// One logical tensor to export; read() gives all of it, packed, valid until the next read.
struct Source {
  std::string name;
  DType dtype;
  Shape shape;
  std::function<const void*()> read;
  std::vector<HfPart> parts = {};  // as it is spelled in the folder
};

std::string torch_name(DType dtype) {
  switch (dtype) {
    case DType::bf16: return "bfloat16";
    case DType::f16: return "float16";
    case DType::f64: return "float64";
    default: return "float32";
  }
}

DType require_dtype(const std::string& name) {
  const auto dtype = parse_dtype(name);
  if (!dtype || !is_floating(*dtype)) {
    throw UsageError("export", fmt::format("got dtype \"{}\", expected fp32, bf16 or fp16", name));
  }
  return *dtype;
}

class Exporter {
 public:
  Exporter(FileSystem& files, const ModelInfo& model, const std::string& out,
           const ExportOptions& options)
      : files_(files), model_(model), out_(out), options_(options) {}

  ExportReport run(std::vector<Source> sources) {
    check_target();
    const Json* type = model_.hf_config.find("model_type");
    for (Source& source : sources) {
      source.parts = hf_parts(source.name, source.shape,
                              type != nullptr && type->is_string() ? type->as_string() : "");
    }
    const DType dtype = options_.dtype ? require_dtype(std::string(dtype_name(*options_.dtype)))
                                       : require_dtype(model_.dtype.empty() ? "f32" : model_.dtype);
    report_.dtype = dtype_name(dtype);
    AtomicFolder aside(files_, out_);
    write_tensors(aside.path(), sources, dtype);
    write_config(aside.path(), dtype);
    copy_files(aside.path());
    aside.commit();
    return std::move(report_);
  }

 private:
  void check_target() const {
    const PathKind kind = files_.kind(out_);
    if (kind == PathKind::file || (kind == PathKind::folder && !files_.list(out_).empty())) {
      throw UsageError("export", fmt::format("got {}, which exists and is not an empty folder; try "
                                             "another --out",
                                             out_));
    }
    if (!model_.hf_config.is_object()) {
      throw InputError(
          "export",
          "got a model that no type of config.json describes (model.gated_mlp = false, "
          "or a checkpoint without a description), expected one to write");
    }
  }

  /// A tensor keeps the precision of the file it came from, which may have spelled it otherwise.
  DType dtype_of(const HfPart& part, const Source& source, DType otherwise) const {
    if (options_.dtype) return otherwise;
    for (const std::string& name : {part.name, source.name}) {
      const auto found = model_.tensor_dtypes.find(name);
      if (found != model_.tensor_dtypes.end()) return require_dtype(found->second);
    }
    return otherwise;
  }

  void write_tensors(const std::string& folder, const std::vector<Source>& sources, DType dtype) {
    std::vector<TensorInfo> infos;
    std::map<std::string_view, const Source*> left;  // by the name of each part
    for (const Source& source : sources) {
      for (const HfPart& part : source.parts) {
        infos.push_back({part.name, dtype_of(part, source, dtype), part.shape});
        left[part.name] = &source;
      }
    }
    HfWriter writer(files_, folder, infos, options_.shard_bytes);
    for (const std::string& name : writer.order()) {
      const auto found = left.find(name);
      if (found == left.end()) continue;  // with another part of its tensor
      const Source& source = *found->second;
      const void* data = source.read();
      for (const HfPart& part : source.parts) {
        write_part(writer, source, data, part, dtype_of(part, source, dtype));
        left.erase(part.name);
      }
    }
    writer.finish();
  }

  void write_part(HfWriter& writer, const Source& source, const void* whole, const HfPart& part,
                  DType to) {
    const int64_t count = num_elements(part.shape);
    const void* data = whole;
    if (source.parts.size() > 1) {
      part_.resize(static_cast<size_t>(count * dtype_size(source.dtype)));
      copy_overlap({Shape(source.shape.size(), 0), source.shape}, whole, part.box, part_.data(),
                   dtype_size(source.dtype));
      data = part_.data();
    }
    converted_.resize(static_cast<size_t>(count * dtype_size(to)));
    convert_elements(data, source.dtype, converted_.data(), to, count);
    const int64_t bad = find_nonfinite(converted_.data(), to, count);
    if (bad >= 0) {
      throw InputError("export", fmt::format("tensor \"{}\" holds {} at element {}, expected "
                                             "values that {} can hold; try --dtype fp32",
                                             part.name, load_element(data, source.dtype, bad), bad,
                                             dtype_name(to)));
    }
    writer.write(part.name, converted_.data());
    ++report_.tensors;
    report_.bytes += static_cast<int64_t>(converted_.size());
  }

  void write_config(const std::string& folder, DType dtype) const {
    Json config = model_.hf_config;
    config.set("torch_dtype", torch_name(dtype));
    if (config.contains("dtype")) config.set("dtype", torch_name(dtype));
    files_.write_text(join_path(folder, "config.json"), config.dump(2) + "\n");
  }

  void copy_files(const std::string& folder) {
    if (model_.source.empty() || !files_.is_folder(model_.source)) return;
    for (const char* name : kCopiedFiles) {
      const std::string from = join_path(model_.source, name);
      if (!files_.is_file(from)) continue;
      files_.copy_file(from, join_path(folder, name));
      report_.copied.emplace_back(name);
    }
  }

  FileSystem& files_;
  const ModelInfo& model_;
  std::string out_;
  const ExportOptions& options_;
  ExportReport report_;
  std::vector<char> part_;
  std::vector<char> converted_;
};

}  // namespace

ExportReport export_checkpoint(FileSystem& files, const std::string& checkpoint,
                               const std::string& out, const ExportOptions& options) {
  const Manifest manifest = read_manifest(files, checkpoint);
  CheckpointContent content(files, checkpoint, manifest);
  std::vector<char> buffer;
  std::vector<Source> sources;
  for (const LogicalTensor& tensor : manifest.tensors) {
    if (is_slot_name(tensor.name)) continue;
    sources.push_back({tensor.name, tensor.dtype, tensor.shape, [&content, &buffer, &tensor] {
                         buffer.resize(static_cast<size_t>(num_elements(tensor.shape) *
                                                           dtype_size(tensor.dtype)));
                         content.read_tensor(tensor, buffer.data());
                         return buffer.data();
                       }});
  }
  return Exporter(files, manifest.model, out, options).run(std::move(sources));
}

ExportReport export_states(FileSystem& files, StateStore& states, const ModelInfo& model,
                           const std::string& out, const ExportOptions& options) {
  LiveBytes live(states);
  Assembler assembler(live);
  const std::vector<LogicalGroup> groups = group_states(states.states());
  require_cover(groups);
  std::vector<Source> sources;
  for (const LogicalGroup& group : groups) {
    if (group.slot) continue;
    sources.push_back({group.name, group.dtype, group.shape,
                       [&assembler, &group] { return assembler.assemble(group); }});
  }
  return Exporter(files, model, out, options).run(std::move(sources));
}

}  // namespace weft
