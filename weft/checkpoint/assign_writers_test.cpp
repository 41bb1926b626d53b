// Who writes which piece.
#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/checkpoint/ranks.h"

namespace weft {
namespace {

TEST(AssignWriters, PiecesNameTheirBox) {
  EXPECT_EQ(piece_name("w", {4, 6}, {{0, 0}, {4, 6}}), "w");
  EXPECT_EQ(piece_name("w", {4, 6}, {{1, 0}, {2, 6}}), "w[1:3, 0:6]");
  EXPECT_EQ(piece_name("w@m", {}, {}), "w@m");
  EXPECT_EQ(rank_file_name(2), "rank-00002.safetensors");
}

std::vector<HeldPiece> held(const std::vector<Box>& boxes, const Shape& shape = {4, 2},
                            DType dtype = DType::f32) {
  std::vector<HeldPiece> pieces;
  for (const Box& box : boxes) pieces.push_back({"w", dtype, shape, {box}, 0});
  return pieces;
}

TEST(AssignWriters, EveryDistinctPieceHasOneWriter) {
  const Box top{{0, 0}, {2, 2}};
  const Box bottom{{2, 0}, {2, 2}};
  EXPECT_EQ(assign_writers({held({top}), held({top, bottom}), held({bottom})}),
            (std::vector<std::vector<int>>{{0}, {1}, {}}));
  EXPECT_EQ(assign_writers({held({}), held({top, bottom, bottom})}),
            (std::vector<std::vector<int>>{{}, {0, 1}}));
  EXPECT_EQ(assign_writers({held({}), held({})}), (std::vector<std::vector<int>>{{}, {}}));
}

TEST(AssignWriters, LayoutsThatDoNotFitTogetherAreRefused) {
  const Box top{{0, 0}, {2, 2}};
  const Box bottom{{2, 0}, {2, 2}};
  const Box most{{0, 0}, {3, 2}};
  EXPECT_THROW(assign_writers({held({top}), held({top})}), BugError);             // a gap
  EXPECT_THROW(assign_writers({held({most}), held({bottom})}), BugError);         // an overlap
  EXPECT_THROW(assign_writers({held({top}), held({bottom}, {5, 2})}), BugError);  // shapes
  EXPECT_THROW(assign_writers({held({top}), held({bottom}, {4, 2}, DType::bf16)}), BugError);
}

TEST(AssignWriters, ListsSurviveTheirText) {
  std::vector<HeldPiece> pieces = held({{{0, 0}, {1, 2}}, {{1, 0}, {2, 2}}});
  pieces[1].boxes.push_back({{3, 0}, {1, 1}});
  pieces.push_back({"scalar@m", DType::bf16, {}, {{}}, 3});
  pieces.push_back({"none", DType::f32, {0, 4}, {}, 4});
  const std::vector<HeldPiece> read = parse_held(held_text(pieces));
  ASSERT_EQ(read.size(), pieces.size());
  for (size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].tensor, pieces[i].tensor);
    EXPECT_EQ(read[i].dtype, pieces[i].dtype);
    EXPECT_EQ(read[i].shape, pieces[i].shape);
    EXPECT_EQ(read[i].bytes(), pieces[i].bytes());
    ASSERT_EQ(read[i].boxes.size(), pieces[i].boxes.size());
    for (size_t k = 0; k < read[i].boxes.size(); ++k) {
      EXPECT_EQ(read[i].boxes[k].begin, pieces[i].boxes[k].begin);
      EXPECT_EQ(read[i].boxes[k].extent, pieces[i].boxes[k].extent);
    }
  }
}

}  // namespace
}  // namespace weft
