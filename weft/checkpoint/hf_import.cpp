#include "weft/checkpoint/hf_import.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/checkpoint/finite.h"
#include "weft/checkpoint/logical.h"
#include "weft/io/hf_folder.h"

namespace weft {
namespace {

/// The name without the prefix that some writers leave out.
std::string_view bare_name(std::string_view name) {
  for (const std::string_view prefix : {"transformer.", "model."}) {
    if (name.substr(0, prefix.size()) == prefix) return name.substr(prefix.size());
  }
  return name;
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

/// Masks and tables that old writers stored beside the weights.
bool is_buffer(std::string_view name) {
  return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") ||
         ends_with(name, "rotary_emb.inv_freq");
}

class Importer {
 public:
  Importer(FileSystem& files, StateStore& states, const std::string& folder)
      : states_(states), folder_(folder), tensors_(files, folder) {}

  ImportReport run() {
    match_names();
    std::map<std::string, int64_t> elements_by_dtype;
    std::map<std::string, std::string> dtypes;
    for (const auto& [group, item] : matches_) {
      load(group, *item);
      const std::string dtype(dtype_name(item->entry.dtype));
      elements_by_dtype[dtype] += group.elements();
      dtypes[group.name] = dtype;
      ++report_.tensors;
      report_.bytes += item->entry.bytes;
    }
    states_.refresh_copies();
    for (const auto& [dtype, count] : elements_by_dtype) {
      if (report_.dtype.empty() || count > elements_by_dtype[report_.dtype]) report_.dtype = dtype;
    }
    for (const auto& [name, dtype] : dtypes) {
      if (dtype != report_.dtype) report_.tensor_dtypes[name] = dtype;
    }
    return std::move(report_);
  }

 private:
  [[noreturn]] void fail(const HfTensors::Item& item, const std::string& message) const {
    throw InputError(tensors_.file_of(item),
                     fmt::format("tensor \"{}\" {}", item.entry.name, message));
  }

  /// Pairs every wanted tensor with one of the files, before anything is read.
  void match_names() {
    std::map<std::string_view, const HfTensors::Item*> given;
    std::map<std::string_view, LogicalGroup> wanted;
    std::vector<LogicalGroup> groups = group_states(states_.states());
    for (LogicalGroup& group : groups) {
      if (!group.slot) wanted.emplace(bare_name(group.name), group);
    }
    for (const HfTensors::Item& item : tensors_.tensors()) {
      const std::string_view bare = bare_name(item.entry.name);
      if (wanted.count(bare) == 0 && is_buffer(bare)) continue;
      const auto [twin, is_new] = given.emplace(bare, &item);
      if (!is_new) fail(item, fmt::format("is the same as \"{}\"", twin->second->entry.name));
    }
    for (const auto& [bare, group] : wanted) {
      const auto found = given.find(bare);
      if (found == given.end()) {
        throw InputError(folder_, fmt::format("tensor \"{}\" is missing, expected {}; try the "
                                              "config.json that belongs to these weights",
                                              group.name, shape_text(group.shape)));
      }
      check(group, *found->second);
      matches_.emplace_back(group, found->second);
    }
    for (const auto& [bare, item] : given) {
      if (wanted.count(bare) != 0) continue;
      if (bare != "lm_head.weight") {
        fail(*item, "is not part of this model; try the config.json that belongs to these weights");
      }
      check_tied_head(*item, given);
    }
  }

  void check(const LogicalGroup& group, const HfTensors::Item& item) const {
    if (item.entry.shape != group.shape) {
      fail(item, fmt::format("has shape {}, expected {}; try the config.json that belongs to these "
                             "weights",
                             shape_text(item.entry.shape), shape_text(group.shape)));
    }
    if (!is_floating(item.entry.dtype)) {
      fail(item,
           fmt::format("has dtype {}, expected F32, BF16, F16 or F64", item.entry.dtype_name));
    }
  }

  /// A head beside a tied embedding is fine when it is the same matrix.
  void check_tied_head(const HfTensors::Item& head,
                       const std::map<std::string_view, const HfTensors::Item*>& given) {
    for (const std::string_view name : {"embed_tokens.weight", "wte.weight"}) {
      const auto found = given.find(name);
      if (found == given.end()) continue;
      if (same_content(head, *found->second)) return;
      fail(head, fmt::format("differs from \"{}\", but the model ties them; try "
                             "tie_word_embeddings = false",
                             found->second->entry.name));
    }
    fail(head, "is not part of this model");
  }

  bool same_content(const HfTensors::Item& a, const HfTensors::Item& b) {
    if (a.entry.dtype != b.entry.dtype || a.entry.shape != b.entry.shape) return false;
    constexpr int64_t kChunk = 1 << 20;
    std::array<std::vector<char>, 2> buffers{std::vector<char>(kChunk), std::vector<char>(kChunk)};
    for (int64_t at = 0; at < a.entry.bytes; at += kChunk) {
      const int64_t count = std::min(kChunk, a.entry.bytes - at);
      tensors_.read(a, at, buffers[0].data(), count);
      tensors_.read(b, at, buffers[1].data(), count);
      if (!std::equal(buffers[0].begin(), buffers[0].begin() + count, buffers[1].begin())) {
        return false;
      }
    }
    return true;
  }

  void load(const LogicalGroup& group, const HfTensors::Item& item) {
    const DType from = item.entry.dtype;
    source_.resize(static_cast<size_t>(item.entry.bytes));
    tensors_.read(item, 0, source_.data(), item.entry.bytes);
    const int64_t bad = find_nonfinite(source_.data(), from, group.elements());
    if (bad >= 0) {
      fail(item, fmt::format("holds {} at element {}, expected finite values",
                             nonfinite_text(source_.data(), from, bad), bad));
    }
    const Box all{Shape(group.shape.size(), 0), group.shape};
    for (const LogicalGroup::Part& part : group.parts) {
      const int64_t count = num_elements(part.box.extent);
      const char* piece = source_.data();
      if (group.parts.size() > 1) {
        piece_.resize(static_cast<size_t>(count * dtype_size(from)));
        copy_overlap(all, source_.data(), part.box, piece_.data(), dtype_size(from));
        piece = piece_.data();
      }
      converted_.resize(static_cast<size_t>(count * dtype_size(group.dtype)));
      convert_elements(piece, from, converted_.data(), group.dtype, count);
      if (const int64_t over = find_nonfinite(converted_.data(), group.dtype, count); over >= 0) {
        fail(item, fmt::format("holds {}, which {} cannot hold", load_element(piece, from, over),
                               dtype_name(group.dtype)));
      }
      states_.write_state(part.state, converted_.data());
    }
  }

  StateStore& states_;
  std::string folder_;
  HfTensors tensors_;
  std::vector<std::pair<LogicalGroup, const HfTensors::Item*>> matches_;
  ImportReport report_;
  std::vector<char> source_;
  std::vector<char> piece_;
  std::vector<char> converted_;
};

}  // namespace

ImportReport import_hf_weights(FileSystem& files, StateStore& states, const std::string& folder) {
  return Importer(files, states, folder).run();
}

void note_import(const ImportReport& report, const std::string& folder, ModelInfo& info) {
  info.dtype = report.dtype;
  info.tensor_dtypes = report.tensor_dtypes;
  info.source = std::filesystem::absolute(folder).lexically_normal().string();
}

}  // namespace weft
