// Pieces of extents and of placed values: they tile the whole, whatever divides what.
#include "weft/shard/pieces.h"

#include <gtest/gtest.h>

#include <map>

#include "weft/base/error.h"
#include "weft/shard/shard_test_util.h"

namespace weft {
namespace {

TEST(CutPiece, PiecesTileTheExtentInWholeBlocksLargerFirst) {
  for (const int64_t block : {1, 2, 3, 8}) {
    for (int64_t blocks = 0; blocks <= 9; ++blocks) {
      for (int64_t ways = 1; ways <= 12; ++ways) {
        int64_t end = 0;
        int64_t previous = INT64_MAX;
        for (int64_t i = 0; i < ways; ++i) {
          const CutPiece piece = cut_piece(blocks * block, block, ways, i);
          EXPECT_EQ(piece.begin, end);
          EXPECT_EQ(piece.size % block, 0);
          EXPECT_LE(piece.size, previous);
          EXPECT_GE(piece.size, blocks / ways * block);
          EXPECT_LE(piece.size, (blocks / ways + 1) * block);
          end += piece.size;
          previous = piece.size;
        }
        EXPECT_EQ(end, blocks * block) << blocks << " blocks of " << block << " over " << ways;
      }
    }
  }
}

TEST(CutPiece, KnownPieces) {
  EXPECT_EQ(cut_piece(11, 1, 4, 0), (CutPiece{0, 3}));
  EXPECT_EQ(cut_piece(11, 1, 4, 3), (CutPiece{9, 2}));
  EXPECT_EQ(cut_piece(6, 2, 2, 0), (CutPiece{0, 4}));
  EXPECT_EQ(cut_piece(6, 2, 2, 1), (CutPiece{4, 2}));
  EXPECT_EQ(cut_piece(2, 1, 4, 3), (CutPiece{2, 0}));
  EXPECT_EQ(cut_piece(0, 1, 3, 1), (CutPiece{0, 0}));
}

TEST(CutPiece, RefusesWhatIsNoPiece) {
  EXPECT_THROW(cut_piece(7, 2, 2, 0), BugError);  // half a block
  EXPECT_THROW(cut_piece(8, 2, 2, 2), BugError);
  EXPECT_THROW(cut_piece(8, 2, 2, -1), BugError);
  EXPECT_THROW(cut_piece(8, 0, 2, 0), BugError);
  EXPECT_THROW(cut_piece(8, 1, 0, 0), BugError);
}

TEST(Mesh, LastAxisIsTheFastest) {
  const Mesh mesh({{"data", 3}, {"op", 4}});
  EXPECT_EQ(mesh.world(), 12);
  EXPECT_EQ(mesh.find("op"), 1);
  EXPECT_EQ(mesh.find("pipeline"), -1);
  EXPECT_EQ(mesh.coord(7, 0), 1);
  EXPECT_EQ(mesh.coord(7, 1), 3);
  EXPECT_EQ(mesh.group(7, 1), (std::vector<int32_t>{4, 5, 6, 7}));
  EXPECT_EQ(mesh.group(7, 0), (std::vector<int32_t>{3, 7, 11}));
  EXPECT_THROW(mesh.coord(12, 0), BugError);
  EXPECT_THROW(Mesh({{"op", 0}}), BugError);
}

TEST(Pieces, EveryElementIsHeldOncePerReplica) {
  Draws draws(1);
  for (int trial = 0; trial < 400; ++trial) {
    const Mesh mesh = random_mesh(draws);
    const Shape shape = random_shape(draws);
    const Placement placement = random_cuts(draws, shape, mesh, 0);
    SCOPED_TRACE(shape_text(shape) + " " + placement_text(placement, mesh));
    int64_t replicas = 1;
    for (AxisId axis = 0; axis < mesh.num_axes(); ++axis) {
      if (!placement.cuts(axis)) replicas *= mesh.size(axis);
    }
    std::map<int64_t, int64_t> holders;
    for (int64_t rank = 0; rank < mesh.world(); ++rank) {
      const std::vector<int64_t> held = held_elements(shape, placement, mesh, rank);
      EXPECT_EQ(num_elements(local_shape(shape, placement, mesh, rank)),
                static_cast<int64_t>(held.size()));
      for (const int64_t element : held) ++holders[element];
    }
    ASSERT_EQ(static_cast<int64_t>(holders.size()), num_elements(shape));
    for (const auto& [element, count] : holders) EXPECT_EQ(count, replicas) << element;
  }
}

TEST(Pieces, CanonicalFormHoldsTheSamePieces) {
  Draws draws(2);
  for (int trial = 0; trial < 400; ++trial) {
    const Mesh mesh = random_mesh(draws);
    const Shape shape = random_shape(draws);
    const Placement placement = random_cuts(draws, shape, mesh, 0);
    const Placement other = canonical(placement, shape, mesh);
    SCOPED_TRACE(shape_text(shape) + " " + placement_text(placement, mesh));
    EXPECT_EQ(canonical(other, shape, mesh), other);
    for (int64_t rank = 0; rank < mesh.world(); ++rank) {
      EXPECT_EQ(held_elements(shape, placement, mesh, rank),
                held_elements(shape, other, mesh, rank));
    }
  }
}

TEST(Pieces, CanonicalFormDropsWhatChangesNothing) {
  const Mesh mesh({{"data", 1}, {"op", 2}});
  Placement placement = whole_placement(2);
  placement.dims[0] = {{0}, 4};
  placement.dims[1] = {{1}, 4};
  placement.flat = {0};
  placement.partial = 1;
  placement.reduction = Reduction::logsumexp;
  const Placement simple = canonical(placement, {8, 16}, mesh);
  EXPECT_EQ(simple.dims[0], DimCut{});
  EXPECT_EQ(simple.dims[1], (DimCut{{1}, 1}));
  EXPECT_TRUE(simple.flat.empty());
  EXPECT_EQ(simple.partial, 0u);
  EXPECT_EQ(simple.reduction, Reduction::sum);
  // 12 columns in blocks of 4 are 8 and 4: the block counts.
  EXPECT_EQ(canonical(placement, {8, 12}, mesh).dims[1], (DimCut{{1}, 4}));
}

TEST(Pieces, TextNamesAxesBlocksAndPartialSums) {
  const Mesh mesh({{"data", 2}, {"op", 2}, {"expert", 2}});
  Placement placement = whole_placement(2);
  placement.dims[1] = {{1, 2}, 64};
  placement.flat = {0};
  EXPECT_EQ(placement_text(placement, mesh), "[., op+expert/64] flat(data)");
  placement = whole_placement(1);
  placement.partial = 2;
  EXPECT_EQ(placement_text(placement, mesh), "[.] partial(op)");
  placement.reduction = Reduction::logsumexp;
  EXPECT_EQ(placement_text(placement, mesh), "[.] logsumexp(op)");
}

}  // namespace
}  // namespace weft
