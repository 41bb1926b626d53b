#include "weft/checkpoint/hf_names.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

std::vector<const Box*> boxes_of(const std::vector<HfPart>& parts) {
  std::vector<const Box*> boxes;
  for (const HfPart& part : parts) boxes.push_back(&part.box);
  return boxes;
}

TEST(HfNames, StackedExpertsAreOneTensorPerMatrixAndExpert) {
  const Shape shape = {3, 8, 5};
  const std::string name = "model.layers.4.mlp.experts.gate_up_proj";
  const std::vector<HfPart> qwen = hf_parts(name, shape, "qwen3_moe");
  ASSERT_EQ(qwen.size(), 6u);
  EXPECT_EQ(qwen[2].name, "model.layers.4.mlp.experts.1.gate_proj.weight");
  EXPECT_EQ(qwen[3].name, "model.layers.4.mlp.experts.1.up_proj.weight");
  EXPECT_EQ(qwen[3].shape, (Shape{4, 5}));
  EXPECT_EQ(qwen[3].box.begin, (Shape{1, 4, 0}));
  EXPECT_EQ(qwen[3].box.extent, (Shape{1, 4, 5}));
  const std::vector<HfPart> mixtral = hf_parts(name, shape, "mixtral");
  EXPECT_EQ(mixtral[4].name, "model.layers.4.block_sparse_moe.experts.2.w1.weight");
  EXPECT_EQ(mixtral[5].name, "model.layers.4.block_sparse_moe.experts.2.w3.weight");
  const std::string down = "model.layers.4.mlp.experts.down_proj";
  EXPECT_EQ(hf_parts(down, {3, 5, 4}, "mixtral")[1].name,
            "model.layers.4.block_sparse_moe.experts.1.w2.weight");
  EXPECT_EQ(hf_parts(down, {3, 5, 4}, "deepseek")[1].name,
            "model.layers.4.mlp.experts.1.down_proj.weight");
}

TEST(HfNames, EverySpellingCoversTheTensor) {
  for (const char* tail : {"experts.gate_up_proj", "experts.down_proj"}) {
    const Shape shape = {3, 8, 5};
    const auto all = hf_spellings(std::string("model.layers.0.mlp.") + tail, shape);
    EXPECT_EQ(all.size(), 3u);
    for (const std::vector<HfPart>& parts : all) EXPECT_TRUE(boxes_cover(boxes_of(parts), shape));
  }
}

TEST(HfNames, OtherTensorsKeepTheirNames) {
  for (const char* name : {"model.layers.0.mlp.gate_proj.weight", "lm_head.weight",
                           "model.layers.0.mlp.gate.e_score_correction_bias",
                           "model.layers.0.mlp.shared_experts.down_proj.weight"}) {
    EXPECT_EQ(hf_parts(name, {4, 2}, "mixtral")[0].name, name);
    EXPECT_EQ(hf_spellings(name, {4, 2}).size(), 1u);
  }
  const std::string router = "model.layers.0.mlp.gate.weight";
  EXPECT_EQ(hf_parts(router, {4, 2}, "mixtral")[0].name,
            "model.layers.0.block_sparse_moe.gate.weight");
  EXPECT_EQ(hf_parts(router, {4, 2}, "dots1")[0].name, router);
}

}  // namespace
}  // namespace weft
