#include <gtest/gtest.h>

#include <random>

#include "weft/plan/passes.h"

namespace weft {
namespace {

void expect_apart(const std::vector<ArenaItem>& items, int64_t peak) {
  for (size_t i = 0; i < items.size(); ++i) {
    EXPECT_EQ(items[i].offset % kBufferAlignment, 0);
    EXPECT_LE(items[i].offset + items[i].bytes, peak);
    for (size_t j = i + 1; j < items.size(); ++j) {
      const bool together = items[i].first <= items[j].last && items[j].first <= items[i].last;
      if (!together) continue;
      EXPECT_TRUE(items[i].offset + items[i].bytes <= items[j].offset ||
                  items[j].offset + items[j].bytes <= items[i].offset)
          << i << " and " << j;
    }
  }
}

/// The lifetimes of a transformer step: per micro-batch and layer, activations kept for backward,
/// temporaries, and gradients that live from their first use to the end.
std::vector<ArenaItem> transformer_items(int layers, int micros) {
  constexpr int64_t kBlock = 3 << 20;
  std::vector<ArenaItem> items;
  const int steps_per_layer = 10;
  const int forward = layers * steps_per_layer;
  const int per_micro = 3 * forward + 3;
  const int end = micros * per_micro;
  for (int micro = 0; micro < micros; ++micro) {
    const int begin = micro * per_micro;
    for (int layer = 0; layer < layers; ++layer) {
      const int f = begin + layer * steps_per_layer;
      const int b = begin + 3 * forward + 2 - 2 * layer * steps_per_layer;
      // norm, q, k, v, o, residual, norm, up, act: saved until their gradient step.
      const int64_t sizes[] = {1, 1, 1, 1, 1, 1, 1, 4, 4};
      for (int i = 0; i < 9; ++i) {
        items.push_back({sizes[i] * kBlock, f + i, b - 2 * i, 0});
      }
      items.push_back({kBlock / 64, f + 3, b - 7, 0});  // log sum exp
      for (int i = 0; i < 2 * steps_per_layer; ++i) {
        items.push_back({(i % 5 == 0 ? 4 : 1) * kBlock, b - i - 1, b - i, 0});
      }
      if (micro == 0) {
        for (int i = 0; i < 4; ++i) {
          items.push_back({(i < 2 ? 9 : 4) * (kBlock / 4), b - 4 * i, end, 0});
        }
      }
    }
    items.push_back({40 * kBlock, begin + forward, begin + forward + 2, 0});  // logits
  }
  return items;
}

TEST(Arena, LivePeakIsTheLargestSum) {
  const std::vector<ArenaItem> items{{100, 0, 2, 0}, {50, 2, 3, 0}, {120, 3, 3, 0}};
  int32_t step = -1;
  EXPECT_EQ(live_peak(items, &step), 170);
  EXPECT_EQ(step, 3);
}

TEST(Arena, NothingToPlace) {
  std::vector<ArenaItem> none;
  EXPECT_EQ(place_items(none), 0);
  std::vector<ArenaItem> empty{{0, 0, 0, 0}};
  EXPECT_EQ(place_items(empty), 0);
}

TEST(Arena, MemoryIsUsedAgainOnceFree) {
  std::vector<ArenaItem> items{{128, 0, 1, 0}, {128, 2, 3, 0}, {64, 1, 2, 0}};
  EXPECT_EQ(place_items(items), 192);
  expect_apart(items, 192);
}

TEST(Arena, RandomBlocksStayApart) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 20; ++round) {
    std::vector<ArenaItem> items;
    for (int i = 0; i < 300; ++i) {
      const auto first = static_cast<int32_t>(random() % 500);
      const auto span = static_cast<int32_t>(random() % (i % 10 == 0 ? 400 : 20));
      items.push_back({static_cast<int64_t>(random() % 5000), first, first + span, 0});
    }
    const int64_t bound = live_peak(items);
    const int64_t draft = place_items(items, Effort::draft);
    const int64_t peak = place_items(items);
    EXPECT_LE(peak, draft);
    expect_apart(items, peak);
    EXPECT_LE(static_cast<double>(peak), 1.15 * static_cast<double>(bound)) << "round " << round;
  }
}

TEST(Arena, TransformerStepsWasteLittle) {
  for (const auto& [layers, micros] : {std::pair{2, 1}, {12, 1}, {12, 4}, {30, 2}}) {
    std::vector<ArenaItem> items = transformer_items(layers, micros);
    const int64_t bound = live_peak(items);
    const int64_t peak = place_items(items);
    EXPECT_LE(static_cast<double>(peak), 1.05 * static_cast<double>(bound))
        << layers << " layers, " << micros << " micro-batches";
  }
}

TEST(Arena, ManyMicroBatchesArePlacedAlike) {
  std::vector<ArenaItem> few = transformer_items(12, 3);
  std::vector<ArenaItem> many = transformer_items(12, 250);
  ASSERT_GT(many.size(), 80'000u);
  const int64_t few_peak = place_items(few);
  const int64_t many_peak = place_items(many);
  EXPECT_LE(static_cast<double>(many_peak), 1.05 * static_cast<double>(live_peak(many)));
  EXPECT_LE(static_cast<double>(many_peak), 1.05 * static_cast<double>(few_peak));
}

}  // namespace
}  // namespace weft
