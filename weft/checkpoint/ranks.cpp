#include "weft/checkpoint/ranks.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "weft/base/check.h"
#include "weft/base/json.h"
#include "weft/checkpoint/agree.h"
#include "weft/checkpoint/rank_file.h"
#include "weft/checkpoint/write.h"

namespace weft {
namespace {

constexpr const char* kWhere = "checkpoint";
// First character of the messages that settle a layout.
constexpr char kAsync = 'a';
constexpr char kStreamed = 's';
// Answer of rank 0 while some rank still writes.
constexpr const char* kMore = "more";

Shape shape_of(const Json& json) {
  Shape shape;
  for (const Json& extent : json.as_array()) shape.push_back(extent.as_int());
  return shape;
}

/// The same for pieces that hold the same elements.
std::string key_of(const HeldPiece& piece) {
  std::string key = piece.tensor;
  for (const Box& box : piece.boxes) {
    key += fmt::format(" {}{}", shape_text(box.begin), shape_text(box.extent));
  }
  return key;
}

/// A distinct piece: the ranks that hold it, with its place in the list of each.
struct Shared {
  int64_t bytes = 0;
  std::vector<std::pair<size_t, int>> holders;
};

/// Whatever happens to a save, the folder aside does not outlive it.
struct FolderGuard {
  std::unique_ptr<AtomicFolder>& folder;
  ~FolderGuard() { folder.reset(); }
};

struct TensorBoxes {
  const HeldPiece* first = nullptr;  // says dtype and shape
  std::vector<const Box*> boxes;     // of the distinct pieces
};

}  // namespace

int64_t HeldPiece::bytes() const {
  int64_t elements = 0;
  for (const Box& box : boxes) elements += num_elements(box.extent);
  return elements * dtype_size(dtype);
}

std::vector<HeldPiece> held_pieces(const std::vector<PlanState>& states) {
  std::vector<HeldPiece> pieces;
  for (const LogicalGroup& group : group_states(states)) {
    for (const LogicalGroup::Part& part : group.parts) {
      pieces.push_back({group.name, group.dtype, group.shape, part.boxes, part.state});
    }
  }
  return pieces;
}

std::string held_text(const std::vector<HeldPiece>& pieces) {
  Json list = Json::array();
  for (const HeldPiece& piece : pieces) {
    Json boxes = Json::array();
    for (const Box& box : piece.boxes) {
      boxes.push(Json::Array{Json(box.begin), Json(box.extent)});
    }
    list.push(Json::Array{piece.tensor, dtype_name(piece.dtype), Json(piece.shape), boxes});
  }
  return list.dump();
}

std::vector<HeldPiece> parse_held(std::string_view text) {
  std::vector<HeldPiece> pieces;
  const Json json = parse_json(text, kWhere);
  for (const Json& item : json.as_array()) {
    const Json::Array& fields = item.as_array();
    HeldPiece piece;
    piece.tensor = fields[0].as_string();
    piece.dtype = parse_dtype(fields[1].as_string()).value();
    piece.shape = shape_of(fields[2]);
    for (const Json& box : fields[3].as_array()) {
      piece.boxes.push_back({shape_of(box.as_array()[0]), shape_of(box.as_array()[1])});
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::vector<std::vector<int>> assign_writers(const std::vector<std::vector<HeldPiece>>& held) {
  std::map<std::string, Shared> pieces;
  std::map<std::string, TensorBoxes> tensors;
  for (size_t rank = 0; rank < held.size(); ++rank) {
    for (size_t i = 0; i < held[rank].size(); ++i) {
      const HeldPiece& piece = held[rank][i];
      TensorBoxes& tensor = tensors[piece.tensor];
      if (tensor.first == nullptr) tensor.first = &piece;
      WEFT_CHECK(tensor.first->dtype == piece.dtype && tensor.first->shape == piece.shape, kWhere,
                 "tensor \"{}\" is {} {} on one rank and {} {} on rank {}", piece.tensor,
                 dtype_name(tensor.first->dtype), shape_text(tensor.first->shape),
                 dtype_name(piece.dtype), shape_text(piece.shape), rank);
      if (piece.boxes.empty()) continue;
      Shared& shared = pieces[key_of(piece)];
      if (shared.holders.empty()) {
        shared.bytes = piece.bytes();
        for (const Box& box : piece.boxes) tensor.boxes.push_back(&box);
      }
      // Two states of one rank may hold the same piece: one of them is enough.
      if (shared.holders.empty() || shared.holders.back().first != rank) {
        shared.holders.emplace_back(rank, static_cast<int>(i));
      }
    }
  }
  for (const auto& [name, tensor] : tensors) {
    WEFT_CHECK(boxes_cover(tensor.boxes, tensor.first->shape), kWhere,
               "the pieces that {} ranks hold of \"{}\" {} overlap or leave gaps", held.size(),
               name, shape_text(tensor.first->shape));
  }
  // Those without a choice first, then the largest: each goes to the holder with the least.
  std::vector<const Shared*> order;
  for (const auto& [key, shared] : pieces) order.push_back(&shared);
  std::stable_sort(order.begin(), order.end(), [](const Shared* a, const Shared* b) {
    const bool forced_a = a->holders.size() == 1;
    const bool forced_b = b->holders.size() == 1;
    return forced_a != forced_b ? forced_a : a->bytes > b->bytes;
  });
  std::vector<std::vector<int>> result(held.size());
  std::vector<int64_t> load(held.size(), 0);
  for (const Shared* shared : order) {
    const auto least = std::min_element(
        shared->holders.begin(), shared->holders.end(),
        [&](const auto& a, const auto& b) { return load[a.first] < load[b.first]; });
    load[least->first] += shared->bytes;
    result[least->first].push_back(least->second);
  }
  for (std::vector<int>& list : result) std::sort(list.begin(), list.end());
  return result;
}

std::string rank_file_name(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }

std::string piece_name(const std::string& tensor, const Shape& shape, const Box& box) {
  if (box.extent == shape) return tensor;
  std::string text;
  for (size_t d = 0; d < shape.size(); ++d) {
    text += fmt::format("{}{}:{}", d == 0 ? "" : ", ", box.begin[d], box.begin[d] + box.extent[d]);
  }
  return fmt::format("{}[{}]", tensor, text);
}

void RankSaver::agree_on_layout(const std::vector<PlanState>& states, bool async) {
  std::vector<HeldPiece> held;
  std::string text;
  const std::exception_ptr failure = failure_of([&] {
    held = held_pieces(states);
    text = held_text(held);
  });
  if (!layout_.empty()) {
    WEFT_CHECK(text == layout_, kWhere, "a writer got other states than at its first save");
    return;
  }
  const auto assign = [&](const std::vector<std::string>& messages) {
    std::vector<std::vector<HeldPiece>> lists;
    bool all_async = true;
    for (const std::string& message : messages) {
      all_async = all_async && message[0] == kAsync;
      lists.push_back(parse_held(std::string_view(message).substr(1)));
    }
    const std::vector<std::vector<int>> writers = assign_writers(lists);
    std::map<std::string, LogicalTensor> tensors;
    all_.assign(lists.size(), {});
    for (size_t rank = 0; rank < lists.size(); ++rank) {
      for (const HeldPiece& piece : lists[rank]) {
        tensors[piece.tensor] = {piece.tensor, piece.dtype, piece.shape, {}};
      }
      for (const int i : writers[rank]) all_[rank].push_back(lists[rank][static_cast<size_t>(i)]);
    }
    for (auto& [name, tensor] : tensors) tensors_.push_back(std::move(tensor));
    Json answer = Json::array();
    for (const std::vector<int>& list : writers) answer.push(Json(list));
    return (all_async ? kAsync : kStreamed) + answer.dump();
  };
  const std::string answer =
      agree(&communicator_, failure, (async ? kAsync : kStreamed) + text, assign);
  async_ = answer[0] == kAsync;
  const Json json = parse_json(std::string_view(answer).substr(1), kWhere);
  for (const Json& i : json.as_array()[static_cast<size_t>(communicator_.rank())].as_array()) {
    mine_.push_back(held[static_cast<size_t>(i.as_int())]);
    states_to_write_.push_back(mine_.back().state);
  }
  std::sort(states_to_write_.begin(), states_to_write_.end());
  layout_ = std::move(text);
}

std::string RankSaver::begin(const std::string& root, const std::string& name) {
  const auto make_folder = [&](const std::vector<std::string>& names) {
    for (const std::string& other : names) {
      WEFT_CHECK(other == name, kWhere, "ranks save {} and {} at the same time", name, other);
    }
    int64_t bytes = 0;
    for (const std::vector<HeldPiece>& pieces : all_) {
      for (const HeldPiece& piece : pieces) bytes += piece.bytes();
    }
    files_.make_folders(root);
    require_space(files_, root, bytes);
    aside_ = std::make_unique<AtomicFolder>(files_, join_path(root, name));
    return file_name(aside_->path());
  };
  return join_path(root, agree(&communicator_, nullptr, name, make_folder));
}

Manifest RankSaver::join(const std::vector<std::string>& reports,
                         const CheckpointMeta& meta) const {
  Manifest manifest;
  manifest.train = meta.train;
  manifest.config = meta.config;
  manifest.model = meta.model;
  std::map<std::string, LogicalTensor> tensors;
  for (const LogicalTensor& tensor : tensors_) tensors[tensor.name] = tensor;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const Json report = parse_json(reports[rank], kWhere);
    const Json::Array& fields = report.as_array();
    if (fields.empty()) continue;
    const std::string file = rank_file_name(static_cast<int>(rank));
    manifest.files.push_back({file, fields[0].as_int()});
    size_t at = 1;
    for (const HeldPiece& held : all_[rank]) {
      for (const Box& box : held.boxes) {
        Piece piece;
        piece.file = file;
        piece.tensor = piece_name(held.tensor, held.shape, box);
        piece.offset = fields.at(at++).as_int();
        piece.bytes = num_elements(box.extent) * dtype_size(held.dtype);
        piece.box = box;
        piece.checksum = fields.at(at++).as_string();
        tensors[held.tensor].pieces.push_back(std::move(piece));
      }
    }
  }
  for (auto& [name, tensor] : tensors) {
    std::sort(tensor.pieces.begin(), tensor.pieces.end(),
              [](const Piece& a, const Piece& b) { return a.box.begin < b.box.begin; });
    manifest.tensors.push_back(std::move(tensor));
  }
  return manifest;
}

void RankSaver::write_and_commit(const std::string& root, const std::string& name,
                                 StateBytes& source, const CheckpointMeta& meta, bool finite) {
  const FolderGuard guard{aside_};
  const std::string folder = begin(root, name);
  RankFile file(files_, join_path(folder, rank_file_name(communicator_.rank())), mine_);
  const auto commit_when_done = [&](const std::vector<std::string>& reports) {
    if (std::count(reports.begin(), reports.end(), "") > 0) return std::string(kMore);
    files_.write_text(join_path(folder, kManifestName), manifest_text(join(reports, meta)));
    aside_->commit();
    return std::string();
  };
  std::string answer = kMore;
  while (answer == kMore) {
    std::string report;
    const std::exception_ptr failure = failure_of([&] {
      if (file.write_some(source, finite, round_bytes_)) report = file.report().dump();
    });
    answer = agree(&communicator_, failure, report, commit_when_done);
  }
}

}  // namespace weft
