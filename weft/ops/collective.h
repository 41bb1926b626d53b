// What a collective node does, read from its kernel description: the geometry that communicators
// execute and that plans count. Every collective works on one mesh axis.
//
// Attributes: axis (name), ways (ranks of the group), index (this rank's place in it); dim (-1 =
// the flattened tensor) and block (elements that stay together) where a dim is cut; shape: extents
// of the outputs, "4x6" per output joined by ';' (all_gather); reduction ("sum", "logsumexp").
// all_to_all cuts `dim` and gathers `gather_dim` up to `gather_extent` with `gather_block`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/ir/kernel.h"
#include "weft/ir/placement.h"
#include "weft/ops/op_kind.h"

namespace weft {

enum class CollectiveKind : uint8_t { all_reduce, reduce_scatter, all_gather, all_to_all };

/// A tensor seen as [outer, extent, inner] whose middle dim is cut over the group: member i has
/// pieces[i]. The whole is contiguous; so is each piece, as [outer, pieces[i].size, inner].
struct CollectiveView {
  int64_t outer = 1;
  int64_t extent = 0;
  int64_t inner = 1;
  std::vector<CutPiece> pieces;  // one per member

  int64_t elements() const { return outer * extent * inner; }
  int64_t piece_elements(int member) const {
    return outer * pieces[static_cast<size_t>(member)].size * inner;
  }
};

/// One tensor of a collective; several travel together in one call (a bucket).
/// - all_reduce: input and output are whole; `view` cuts the flattening among the members that sum.
/// - reduce_scatter: input whole, output piece `index`.
/// - all_gather: input piece `index`, output whole.
/// - all_to_all: the input is whole along `view` and piece `index` along `gathered`; the output is
///   piece `index` along `view` and whole along `gathered`.
struct CollectiveTensor {
  CollectiveView view;
  // all_to_all: the local input is [a, view.extent, b, gathered piece, c] or with the two dims in
  // the other order; extents of the dims before, between and behind.
  int64_t before = 1, between = 1, behind = 1;
  bool cut_first = true;  // the cut dim comes before the gathered one
  std::vector<CutPiece> gathered;
};

struct CollectiveSpec {
  CollectiveKind kind{};
  DType dtype = DType::f32;
  Reduction reduction = Reduction::sum;
  std::string axis;
  int ways = 1;
  int index = 0;
  std::vector<CollectiveTensor> tensors;
};

/// Reads the attributes and types of a collective kernel; BugError when they disagree.
CollectiveSpec collective_spec(const KernelSpec& spec);
/// Bytes this rank receives from other ranks: what plans and communicators count as traffic.
int64_t received_bytes(const CollectiveSpec& spec);
/// Scratch bytes a communicator may use for the call; bounded (32 MiB up to a few hundred members),
/// since large messages are cut in chunks of at most kCollectiveChunkBytes per member.
int64_t collective_workspace_bytes(const CollectiveSpec& spec);
inline constexpr int64_t kCollectiveChunkBytes = int64_t{4} << 20;

/// "4x6" <-> extents.
std::string extents_attr(const Shape& shape);
Shape parse_extents_attr(std::string_view text);

}  // namespace weft
