#include "weft/checkpoint/manifest.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr const char* kFormat = "weft-checkpoint";

std::string manifest_checksum(const Json& without_checksum) {
  const std::string text = without_checksum.dump();
  return checksum_hex(text.data(), static_cast<int64_t>(text.size()));
}

Json piece_json(const Piece& piece) {
  return Json::object({{"file", piece.file},
                       {"tensor", piece.tensor},
                       {"offset", piece.offset},
                       {"bytes", piece.bytes},
                       {"begin", Json(piece.box.begin)},
                       {"extent", Json(piece.box.extent)},
                       {"checksum", piece.checksum}});
}

Json tensor_json(const LogicalTensor& tensor) {
  Json pieces = Json::array();
  for (const Piece& piece : tensor.pieces) pieces.push(piece_json(piece));
  return Json::object({{"name", tensor.name},
                       {"dtype", dtype_name(tensor.dtype)},
                       {"shape", Json(tensor.shape)},
                       {"pieces", std::move(pieces)}});
}

Json train_json(const TrainState& train) {
  Json counters = Json::object();
  for (const auto& [name, value] : train.counters) counters.set(name, value);
  return Json::object({{"step", train.step},
                       {"samples_consumed", train.samples_consumed},
                       {"epoch", train.epoch},
                       {"tokens_total", train.tokens_total},
                       {"counters", std::move(counters)},
                       {"scaler", train.scaler}});
}

Json model_json(const ModelInfo& model) {
  Json dtypes = Json::object();
  for (const auto& [name, dtype] : model.tensor_dtypes) dtypes.set(name, dtype);
  return Json::object({{"dtype", model.dtype},
                       {"tensor_dtypes", std::move(dtypes)},
                       {"source", model.source},
                       {"hf_config", model.hf_config}});
}

/// Typed access to a parsed manifest; errors name the file and the member.
class Reader {
 public:
  explicit Reader(const std::string& where) : where_(where) {}

  Manifest read(const Json& json) const {
    if (!json.is_object()) fail("got no JSON object, expected a checkpoint manifest");
    const Json* format = json.find("format");
    if (format == nullptr || !format->is_string() || format->as_string() != kFormat) {
      fail("member \"format\" is not \"{}\"", kFormat);
    }
    const int64_t version = integer(json, "format_version", "the manifest");
    if (version != Manifest::kVersion) {
      fail("got format version {}, expected {}; try the weft that wrote it", version,
           Manifest::kVersion);
    }
    Manifest manifest;
    manifest.train = train(object(json, "train", "the manifest"));
    if (integer(json, "step", "the manifest") != manifest.train.step) {
      fail("members \"step\" and \"train.step\" differ");
    }
    manifest.config = member(json, "config", "the manifest");
    manifest.model = model(object(json, "model", "the manifest"));
    for (const Json& item : array(json, "files", "the manifest")) {
      ManifestFile file;
      file.name = plain_name(string(item, "name", "a file"), "a file");
      file.bytes = integer(item, "bytes", file.name);
      manifest.files.push_back(std::move(file));
    }
    for (const Json& item : array(json, "tensors", "the manifest")) {
      manifest.tensors.push_back(tensor(item, manifest.files));
    }
    check_names(manifest);
    return manifest;
  }

  std::string string(const Json& json, const char* name, const std::string& of) const {
    const Json& value = member(json, name, of);
    if (!value.is_string()) fail("member \"{}\" of {} is no string", name, of);
    return value.as_string();
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw InputError(where_, fmt::format(format, std::forward<Args>(args)...));
  }

  const Json& member(const Json& json, const char* name, const std::string& of) const {
    const Json* found = json.find(name);
    if (found == nullptr) fail("member \"{}\" of {} is missing", name, of);
    return *found;
  }
  int64_t integer(const Json& json, const char* name, const std::string& of) const {
    const Json& value = member(json, name, of);
    if (!value.is_int() || value.as_int() < 0) {
      fail("member \"{}\" of {} is no integer >= 0", name, of);
    }
    return value.as_int();
  }
  const Json& object(const Json& json, const char* name, const std::string& of) const {
    const Json& value = member(json, name, of);
    if (!value.is_object()) fail("member \"{}\" of {} is no object", name, of);
    return value;
  }
  const Json::Array& array(const Json& json, const char* name, const std::string& of) const {
    const Json& value = member(json, name, of);
    if (!value.is_array()) fail("member \"{}\" of {} is no array", name, of);
    return value.as_array();
  }
  Shape extents(const Json& json, const char* name, const std::string& of) const {
    Shape shape;
    for (const Json& extent : array(json, name, of)) {
      if (!extent.is_int() || extent.as_int() < 0) {
        fail("member \"{}\" of {} holds {}, expected integers >= 0", name, of, extent.dump());
      }
      shape.push_back(extent.as_int());
    }
    return shape;
  }

  std::string plain_name(std::string name, const std::string& of) const {
    if (name.empty() || name == "." || name == ".." ||
        name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      fail("{} is named {}, expected a file of the same folder", of, Json(name).dump());
    }
    return name;
  }

  TrainState train(const Json& json) const {
    TrainState train;
    const std::string of = "\"train\"";
    train.step = integer(json, "step", of);
    train.samples_consumed = integer(json, "samples_consumed", of);
    train.epoch = integer(json, "epoch", of);
    train.tokens_total = integer(json, "tokens_total", of);
    for (const auto& [name, value] : object(json, "counters", of).as_object()) {
      if (!value.is_number()) fail("counter \"{}\" is no number", name);
      train.counters[name] = value.as_double();
    }
    train.scaler = member(json, "scaler", of);
    return train;
  }

  ModelInfo model(const Json& json) const {
    ModelInfo model;
    const std::string of = "\"model\"";
    model.dtype = string(json, "dtype", of);
    for (const auto& [name, dtype] : object(json, "tensor_dtypes", of).as_object()) {
      if (!dtype.is_string()) fail("dtype of \"{}\" is no string", name);
      model.tensor_dtypes[name] = dtype.as_string();
    }
    model.source = string(json, "source", of);
    model.hf_config = member(json, "hf_config", of);
    return model;
  }

  LogicalTensor tensor(const Json& json, const std::vector<ManifestFile>& files) const {
    LogicalTensor tensor;
    tensor.name = string(json, "name", "a tensor");
    const std::string of = fmt::format("tensor \"{}\"", tensor.name);
    const std::string dtype = string(json, "dtype", of);
    const auto parsed = parse_dtype(dtype);
    if (!parsed || *parsed == DType::none) fail("{} has unknown dtype \"{}\"", of, dtype);
    tensor.dtype = *parsed;
    tensor.shape = extents(json, "shape", of);
    // Boxes inside a shape whose byte count fits have byte counts that fit.
    int64_t bytes = dtype_size(tensor.dtype);
    for (const int64_t extent : tensor.shape) {
      if (__builtin_mul_overflow(bytes, std::max<int64_t>(extent, 1), &bytes)) {
        fail("{} has a shape whose product overflows", of);
      }
    }
    for (const Json& item : array(json, "pieces", of)) {
      tensor.pieces.push_back(piece(item, tensor, of, files));
    }
    std::vector<const Box*> boxes;
    for (const Piece& piece : tensor.pieces) boxes.push_back(&piece.box);
    if (!boxes_cover(boxes, tensor.shape)) fail("pieces of {} overlap or leave gaps", of);
    return tensor;
  }

  Piece piece(const Json& json, const LogicalTensor& tensor, const std::string& of,
              const std::vector<ManifestFile>& files) const {
    Piece piece;
    piece.file = plain_name(string(json, "file", of), of);
    const auto file = std::find_if(files.begin(), files.end(), [&](const ManifestFile& entry) {
      return entry.name == piece.file;
    });
    if (file == files.end()) fail("{} lies in {}, which \"files\" does not list", of, piece.file);
    piece.tensor = string(json, "tensor", of);
    piece.offset = integer(json, "offset", of);
    piece.bytes = integer(json, "bytes", of);
    if (piece.offset > file->bytes || piece.bytes > file->bytes - piece.offset) {
      fail("{} lies outside the {} bytes of {}", of, file->bytes, piece.file);
    }
    piece.box.begin = extents(json, "begin", of);
    piece.box.extent = extents(json, "extent", of);
    const size_t rank = tensor.shape.size();
    bool inside = piece.box.begin.size() == rank && piece.box.extent.size() == rank;
    for (size_t d = 0; inside && d < rank; ++d) {
      inside = piece.box.begin[d] <= tensor.shape[d] &&
               piece.box.extent[d] <= tensor.shape[d] - piece.box.begin[d];
    }
    if (!inside) fail("a piece of {} lies outside its shape {}", of, shape_text(tensor.shape));
    if (piece.bytes != num_elements(piece.box.extent) * dtype_size(tensor.dtype)) {
      fail("a piece of {} has {} bytes, expected {} {}", of, piece.bytes, dtype_name(tensor.dtype),
           shape_text(piece.box.extent));
    }
    piece.checksum = string(json, "checksum", of);
    if (piece.checksum.size() != 32) fail("{} has no checksum of 32 hex digits", of);
    return piece;
  }

  void check_names(Manifest& manifest) const {
    std::sort(manifest.tensors.begin(), manifest.tensors.end(),
              [](const LogicalTensor& a, const LogicalTensor& b) { return a.name < b.name; });
    const auto twin = std::adjacent_find(
        manifest.tensors.begin(), manifest.tensors.end(),
        [](const LogicalTensor& a, const LogicalTensor& b) { return a.name == b.name; });
    if (twin != manifest.tensors.end()) fail("tensor \"{}\" is listed twice", twin->name);
  }

  const std::string& where_;
};

}  // namespace

const LogicalTensor* Manifest::find(std::string_view name) const {
  const auto found = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const LogicalTensor& tensor, std::string_view key) { return tensor.name < key; });
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

std::string manifest_text(const Manifest& manifest) {
  Json files = Json::array();
  for (const ManifestFile& file : manifest.files) {
    files.push(Json::object({{"name", file.name}, {"bytes", file.bytes}}));
  }
  Json tensors = Json::array();
  for (const LogicalTensor& tensor : manifest.tensors) tensors.push(tensor_json(tensor));
  const Json json = Json::object({{"format", kFormat},
                                  {"format_version", Manifest::kVersion},
                                  {"step", manifest.train.step},
                                  {"train", train_json(manifest.train)},
                                  {"model", model_json(manifest.model)},
                                  {"config", manifest.config},
                                  {"files", std::move(files)},
                                  {"tensors", std::move(tensors)}});
  // Through the parser once: the checksum is that of what a reader will see.
  Json seen = parse_json(json.dump(), "manifest");
  const std::string checksum = manifest_checksum(seen);
  seen.set("checksum", checksum);
  return seen.dump(1) + "\n";
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  const Json json = parse_json(text, where);
  const Reader reader(where);
  Manifest manifest = reader.read(json);
  const std::string checksum = reader.string(json, "checksum", "the manifest");
  Json::Object members = json.as_object();
  std::erase_if(members, [](const Json::Member& item) { return item.first == "checksum"; });
  Json rest = Json::object();
  for (Json::Member& item : members) rest.set(item.first, std::move(item.second));
  manifest.intact = manifest_checksum(rest) == checksum;
  return manifest;
}

}  // namespace weft
