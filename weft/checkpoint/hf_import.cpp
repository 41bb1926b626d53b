#include "weft/checkpoint/hf_import.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "weft/base/error.h"
#include "weft/checkpoint/agree.h"
#include "weft/checkpoint/fill.h"
#include "weft/checkpoint/finite.h"
#include "weft/checkpoint/hf_names.h"
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
  Importer(FileSystem& files, StateStore& states, const std::string& folder,
           Communicator* communicator)
      : files_(files), states_(states), folder_(folder), communicator_(communicator) {}

  ImportReport run() {
    std::exception_ptr failure = failure_of([&] {
      tensors_.emplace(files_, folder_);
      groups_ = group_loaded_states(states_.states());
      std::erase_if(groups_, [](const LogicalGroup& group) { return group.slot; });
    });
    const std::map<std::string, Shape> wanted = all_tensors(communicator_, failure, groups_);
    failure = failure_of([&] {
      match_names(wanted);
      for (const LogicalGroup& group : groups_) load(group, matches_.at(group.name));
      states_.refresh_copies();
    });
    agree(communicator_, failure);
    return report();
  }

 private:
  /// A tensor of the files, and what it holds of the logical one.
  struct Match {
    const HfTensors::Item* item;
    HfPart part;
  };

  ImportReport report() const {
    ImportReport report;
    std::map<std::string, int64_t> elements_by_dtype;
    for (const auto& [name, matches] : matches_) {
      for (const Match& match : matches) {
        const TensorEntry& entry = match.item->entry;
        elements_by_dtype[std::string(dtype_name(entry.dtype))] += num_elements(entry.shape);
        ++report.tensors;
        report.bytes += entry.bytes;
      }
    }
    for (const auto& [dtype, count] : elements_by_dtype) {
      if (report.dtype.empty() || count > elements_by_dtype[report.dtype]) report.dtype = dtype;
    }
    for (const auto& [name, matches] : matches_) {
      for (const Match& match : matches) {
        const std::string dtype(dtype_name(match.item->entry.dtype));
        if (dtype != report.dtype) report.tensor_dtypes[match.part.name] = dtype;
      }
    }
    return report;
  }

  [[noreturn]] void fail(const HfTensors::Item& item, const std::string& message) const {
    throw InputError(tensors_->file_of(item),
                     fmt::format("tensor \"{}\" {}", item.entry.name, message));
  }

  /// Pairs every tensor that a rank wants with one of the files, before anything is read.
  void match_names(const std::map<std::string, Shape>& wanted) {
    std::map<std::string_view, const HfTensors::Item*> given;
    std::set<std::string_view> wanted_bare;
    for (const auto& [name, shape] : wanted) wanted_bare.insert(bare_name(name));
    for (const HfTensors::Item& item : tensors_->tensors()) {
      const std::string_view bare = bare_name(item.entry.name);
      if (wanted_bare.count(bare) == 0 && is_buffer(bare)) continue;
      const auto [twin, is_new] = given.emplace(bare, &item);
      if (!is_new) fail(item, fmt::format("is the same as \"{}\"", twin->second->entry.name));
    }
    std::set<std::string_view> used;
    for (const auto& [name, shape] : wanted) {
      std::vector<Match>& matches = matches_[name];
      for (HfPart& part : spelling(name, shape, given)) {
        const auto found = given.find(bare_name(part.name));
        if (found == given.end()) {
          throw InputError(folder_, fmt::format("tensor \"{}\" is missing, expected {}; try the "
                                                "config.json that belongs to these weights",
                                                part.name, shape_text(part.shape)));
        }
        check(part.shape, *found->second);
        used.insert(found->first);
        matches.push_back({found->second, std::move(part)});
      }
    }
    for (const auto& [bare, item] : given) {
      if (used.count(bare) != 0) continue;
      if (bare != "lm_head.weight") {
        fail(*item, "is not part of this model; try the config.json that belongs to these weights");
      }
      check_tied_head(*item, given);
    }
  }

  /// The spelling that the files use, or the usual one when they have nothing of the tensor.
  static std::vector<HfPart> spelling(
      const std::string& name, const Shape& shape,
      const std::map<std::string_view, const HfTensors::Item*>& given) {
    std::vector<std::vector<HfPart>> all = hf_spellings(name, shape);
    for (std::vector<HfPart>& parts : all) {
      const bool any = std::any_of(parts.begin(), parts.end(), [&](const HfPart& part) {
        return given.count(bare_name(part.name)) != 0;
      });
      if (any) return std::move(parts);
    }
    return std::move(all.front());
  }

  void check(const Shape& shape, const HfTensors::Item& item) const {
    if (item.entry.shape != shape) {
      fail(item, fmt::format("has shape {}, expected {}; try the config.json that belongs to these "
                             "weights",
                             shape_text(item.entry.shape), shape_text(shape)));
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
      // One rank is enough to read both.
      const bool other_rank = communicator_ != nullptr && communicator_->rank() != 0;
      if (other_rank || same_content(head, *found->second)) return;
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
      tensors_->read(a, at, buffers[0].data(), count);
      tensors_->read(b, at, buffers[1].data(), count);
      if (!std::equal(buffers[0].begin(), buffers[0].begin() + count, buffers[1].begin())) {
        return false;
      }
    }
    return true;
  }

  void load(const LogicalGroup& group, const std::vector<Match>& matches) {
    TensorFill fill(states_, group, group.dtype);
    for (const Match& match : matches) {
      if (fill.needs(match.part.box)) read(group, match, fill);
    }
    fill.write();
  }

  void read(const LogicalGroup& group, const Match& match, TensorFill& fill) {
    constexpr int64_t kChunkElements = 1 << 18;
    const HfTensors::Item& item = *match.item;
    const DType from = item.entry.dtype;
    const int64_t size = dtype_size(from);
    const int64_t elements = num_elements(match.part.box.extent);
    for (int64_t at = 0; at < elements; at += kChunkElements) {
      const int64_t count = std::min(kChunkElements, elements - at);
      if (!fill.needs(match.part.box, at, count)) continue;
      source_.resize(static_cast<size_t>(count * size));
      tensors_->read(item, at * size, source_.data(), count * size);
      if (const int64_t bad = find_nonfinite(source_.data(), from, count); bad >= 0) {
        fail(item, fmt::format("holds {} at element {}, expected finite values",
                               nonfinite_text(source_.data(), from, bad), at + bad));
      }
      converted_.resize(static_cast<size_t>(count * dtype_size(group.dtype)));
      convert_elements(source_.data(), from, converted_.data(), group.dtype, count);
      if (const int64_t over = find_nonfinite(converted_.data(), group.dtype, count); over >= 0) {
        fail(item, fmt::format("holds {}, which {} cannot hold",
                               load_element(source_.data(), from, over), dtype_name(group.dtype)));
      }
      fill.add(match.part.box, at, count, converted_.data());
    }
  }

  FileSystem& files_;
  StateStore& states_;
  std::string folder_;
  Communicator* communicator_;
  std::optional<HfTensors> tensors_;
  std::vector<LogicalGroup> groups_;
  std::map<std::string, std::vector<Match>> matches_;  // of the whole model
  std::vector<char> source_;
  std::vector<char> converted_;
};

}  // namespace

ImportReport import_hf_weights(FileSystem& files, StateStore& states, const std::string& folder,
                               Communicator* communicator) {
  return Importer(files, states, folder, communicator).run();
}

void note_import(const ImportReport& report, const std::string& folder, ModelInfo& info) {
  info.dtype = report.dtype;
  info.tensor_dtypes = report.tensor_dtypes;
  info.source = std::filesystem::absolute(folder).lexically_normal().string();
}

}  // namespace weft
