// Faults of other trainers that depend on the layout, by the numbers of their reports.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/layout/assembly.h"
#include "tests/layout/models.h"
#include "tests/support/hf_fixture.h"

namespace weft::test {
namespace {

constexpr double kIgnored = -100;

const std::vector<Layout> kLayouts = {
    {.op = 2},
    {.op = 2, .sequence = true},
    {.op = 4, .sequence = true},
    {.data = 2},
    {.data = 2, .zero = 2},
    {.data = 3, .zero = 3},
    {.data = 2, .op = 2, .zero = 1},
    {.data = 2, .op = 2, .sequence = true, .zero = 3},
};

TEST(Layouts, B01_NormCountsEveryElementOnce) {
  for (const char* model : {"gpt2", "qwen3"}) {
    LayoutJob job = tiny_job(tiny_model(model, true, 10), "sgd", "ref", "fp64");
    job.batches.resize(3);
    const LayoutResult one = run_layout(job, {});
    for (const Layout& layout : kLayouts) {
      SCOPED_TRACE(std::string(model) + " " + layout_name(layout));
      const LayoutResult got = run_layout(job, layout);
      EXPECT_NEAR(got.norms[0], 2 * job.clip, 1e-12 * job.clip);
      expect_one_model(job, got, one, kTight);
    }
  }
}

/// Row 0 has one valid label that costs 2.079442, row 1 seven that cost 0.000318; the other rows
/// have none.
Batch bigram_batch(int64_t rows) {
  Batch batch{HostTensor({DType::i32, {rows, 8}}), HostTensor({DType::i32, {rows, 8}}), {}};
  for (int64_t row = 0; row < rows; ++row) {
    batch.samples.push_back(row);
    for (int64_t i = 0; i < 8; ++i) {
      batch.tokens.set(row * 8 + i, row == 0 && i == 0 ? 0 : 1);
      const bool valid = (row == 0 && i == 0) || (row == 1 && i < 7);
      batch.labels.set(row * 8 + i, valid ? 1 : kIgnored);
    }
  }
  return batch;
}

TEST(Layouts, B02_MeanOverTheTokensOfAllRanks) {
  const TinyLlama shape{.kv_heads = 2};
  const Tensors weights = bigram_tensors(shape, {{}, {0.0, 3.5355339}});
  LayoutJob job;
  job.spec = model_spec_from_hf(tiny_llama_config(shape), "test");
  job.initial = &weights;
  job.batches = {bigram_batch(2)};
  const LayoutResult one = run_layout(job, {});
  LayoutJob padded = job;
  padded.batches = {bigram_batch(4)};
  const auto expect_same = [&](const LayoutJob& tested, const Layout& layout) {
    SCOPED_TRACE(layout_name(layout));
    const LayoutResult got = run_layout(tested, layout);
    expect_no_faults(got);
    EXPECT_NEAR(got.losses[0], 0.260208, 1e-6);
    EXPECT_NEAR(got.norms[0], one.norms[0], 1e-6 * one.norms[0]);
    expect_same_tensors(got.trained, one.trained, 1e-6);
  };
  expect_same(job, {});
  expect_same(job, {.accumulation = 2});
  expect_same(job, {.data = 2});
  expect_same(job, {.data = 2, .zero = 3});
  expect_same(job, {.op = 2, .sequence = true});
  expect_same(job, {.data = 2, .op = 2});
  // Ranks and micro-batches without a single valid label.
  expect_same(padded, {.data = 4});
  expect_same(padded, {.data = 4, .zero = 2});
  expect_same(padded, {.data = 2, .accumulation = 2});
  expect_same(padded, {.accumulation = 4});
}

/// Two rows of one repeated token each, every label 1: rows of different ranks with data 2.
Batch two_rows(int64_t first, int64_t second) {
  Batch batch{HostTensor({DType::i32, {2, 8}}), HostTensor({DType::i32, {2, 8}}), {0, 1}};
  for (int64_t i = 0; i < 16; ++i) {
    batch.tokens.set(i, static_cast<double>(i < 8 ? first : second));
    batch.labels.set(i, 1);
  }
  return batch;
}

TEST(Layouts, B86_TheLossIsThatOfTheJob) {
  const TinyLlama shape{.kv_heads = 2};
  const Tensors weights = bigram_tensors(shape, {{}, {0.0, 3.5355339}});
  LayoutJob job;
  job.spec = model_spec_from_hf(tiny_llama_config(shape), "test");
  job.initial = &weights;
  job.batches = {two_rows(0, 1)};  // 2.079442 on rank 0, 0.000318 on rank 1
  for (const Layout& layout :
       {Layout{}, Layout{.data = 2}, Layout{.data = 2, .op = 2, .zero = 2}}) {
    SCOPED_TRACE(layout_name(layout));
    const LayoutResult got = run_layout(job, layout);
    EXPECT_NEAR(got.losses[0], 1.039880, 1e-6);
    expect_no_faults(got);
  }
}

TEST(Layouts, B55_AnOverflowOnOneRankSkipsTheStepOnAll) {
  const TinyLlama shape{.kv_heads = 2};
  // The logits after token 2, which only the second row has, are beyond fp32.
  const Tensors weights = bigram_tensors(shape, {{}, {0.0, 3.5355339}, {3e38, 3e38}});
  LayoutJob job;
  job.spec = model_spec_from_hf(tiny_llama_config(shape), "test");
  job.initial = &weights;
  job.batches = {two_rows(1, 2)};
  job.may_skip = true;
  for (const Layout& layout : {Layout{}, Layout{.data = 2}, Layout{.data = 2, .zero = 2},
                               Layout{.data = 2, .op = 2, .sequence = true, .zero = 1}}) {
    SCOPED_TRACE(layout_name(layout));
    const LayoutResult got = run_layout(job, layout);
    EXPECT_FALSE(std::isfinite(got.norms[0]));
    expect_same_tensors(got.trained, got.initial, 0.0);
    for (const std::string& fault : got.faults) {
      EXPECT_NE(fault.find("reads other"), std::string::npos) << fault;  // NaN is not NaN
    }
  }
}

TEST(Layouts, B24_DropoutMasksDoNotDependOnTheLayout) {
  ModelSpec spec = tiny_model("gpt2", false, 10);
  spec.dropout = 0.5;
  LayoutJob job = tiny_job(spec, "sgd", "ref", "fp64");
  job.lr = 0.02;
  const std::vector<Batch> batches = job.batches;
  while (job.batches.size() < 20) {
    job.batches.push_back(batches[job.batches.size() % batches.size()]);
  }
  const LayoutResult one = run_layout(job, {});
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(layout_name(layout));
    expect_one_model(job, run_layout(job, layout), one, {1e-12, 1e-9, 1e-8, 1e-8});
  }
}

TEST(Layouts, B24_DropoutMasksDifferBetweenSamplesAndSteps) {
  ModelSpec spec = tiny_model("gpt2", false, 10);
  spec.dropout = 0.5;
  LayoutJob job;
  job.spec = spec;
  job.lr = 0;
  // The same two rows, twice: both ranks and both steps see the same tokens.
  Batch batch = uneven_batches(1, 2, 6, 10)[0];
  for (int64_t i = 0; i < 6; ++i) {
    batch.tokens.set(6 + i, batch.tokens.get(i));
    batch.labels.set(i, 3);
    batch.labels.set(6 + i, 3);
  }
  job.batches = {batch, batch};
  const LayoutResult own = run_layout(job, {.data = 2});
  EXPECT_NE(own.losses[0], own.losses[1]) << "both steps have one mask";
  for (Batch& b : job.batches) b.samples[1] = b.samples[0];
  const LayoutResult shared = run_layout(job, {.data = 2});
  EXPECT_NE(own.losses[0], shared.losses[0]) << "both ranks have one mask";
}

TEST(Layouts, B60_DecayFollowsTheLogicalTensor) {
  for (const char* model : {"gpt2", "qwen3"}) {
    LayoutJob job = tiny_job(tiny_model(model, true, 10), "adamw", "ref", "fp64");
    job.batches.resize(1);
    job.lr = 0.1;
    std::vector<Layout> layouts = kLayouts;
    layouts.push_back({});
    for (const Layout& layout : layouts) {
      SCOPED_TRACE(std::string(model) + " " + layout_name(layout));
      job.weight_decay = 0;
      const LayoutResult without = run_layout(job, layout);
      job.weight_decay = 0.1;
      const LayoutResult with = run_layout(job, layout);
      int matrices = 0;
      for (const auto& [name, start] : with.initial) {
        const bool matrix = start.type.shape.size() == 2;
        matrices += matrix ? 1 : 0;
        for (int64_t i = 0; i < start.size(); ++i) {
          const double change = with.trained.at(name).get(i) - without.trained.at(name).get(i);
          ASSERT_NEAR(change, matrix ? -0.01 * start.get(i) : 0.0, matrix ? 1e-14 : 0.0)
              << name << " " << i;
        }
      }
      EXPECT_GT(matrices, 8);
    }
  }
}

TEST(Layouts, B63_EveryMicroBatchCountsOnEveryRank) {
  LayoutJob job = tiny_job(tiny_model("llama", true, 10), "sgd", "ref", "fp64");
  job.batches.resize(3);
  const LayoutResult one = run_layout(job, {});
  LayoutJob reversed = job;
  for (Batch& batch : reversed.batches) {
    const Batch old = batch;
    for (int64_t i = 0; i < 12 * 6; ++i) {
      const int64_t from = (11 - i / 6) * 6 + i % 6;
      batch.tokens.set(i, old.tokens.get(from));
      batch.labels.set(i, old.labels.get(from));
    }
  }
  std::vector<Layout> layouts = {{}, {.op = 2}};
  for (int64_t zero = 0; zero <= 3; ++zero) layouts.push_back({.data = 2, .zero = zero});
  for (Layout layout : layouts) {
    for (const int64_t accumulation : {1, 2, 6}) {
      layout.accumulation = accumulation;
      SCOPED_TRACE(layout_name(layout));
      expect_one_model(job, run_layout(job, layout), one, kTight);
      expect_one_model(reversed, run_layout(reversed, layout), one, kTight);
    }
  }
}

TEST(Layouts, B64_EvaluationAndLogitsAreThoseOfOneRank) {
  for (const char* model : {"gpt2_dropout", "qwen3"}) {
    LayoutJob job = tiny_job(tiny_model(model, true, 11), "sgd", "ref", "fp64");
    job.batches.resize(2);
    job.evaluate = true;
    const LayoutResult one = run_layout(job, {});
    EXPECT_NE(one.eval_loss, one.losses[0]);
    std::vector<Layout> layouts = kLayouts;
    layouts.push_back({.accumulation = 4});
    layouts.push_back({.op = 3});
    for (const Layout& layout : layouts) {
      SCOPED_TRACE(std::string(model) + " " + layout_name(layout));
      const LayoutResult got = run_layout(job, layout);
      expect_no_faults(got);
      EXPECT_NEAR(got.eval_loss, one.eval_loss, 1e-12);
      ASSERT_EQ(got.row_logits.size(), one.row_logits.size());
      for (size_t i = 0; i < one.row_logits.size(); ++i) {
        ASSERT_NEAR(got.row_logits[i], one.row_logits[i], 1e-11) << i;
      }
    }
  }
}

/// Gains 1, embeddings small, biases of row-cut projections `bias` (with a pattern, since a layer
/// norm does not see what all features share), everything else 0.
Tensors biases_only(const Tensors& like, double bias) {
  Tensors weights = like;
  for (auto& [name, tensor] : weights) {
    const bool row_bias = name.ends_with("c_proj.bias") || name.ends_with("o_proj.bias") ||
                          name.ends_with("down_proj.bias");
    const bool gain = name.ends_with("norm.weight") || name.find(".ln_") != std::string::npos;
    const bool table = name.ends_with("embed_tokens.weight") || name.ends_with("wte.weight") ||
                       name.ends_with("lm_head.weight");
    for (int64_t i = 0; i < tensor.size(); ++i) {
      double value = 0;
      if (row_bias) value = bias * static_cast<double>(1 + i % 3);
      if (gain && name.ends_with("weight")) value = 1;
      if (table) value = 0.3 * std::sin(1 + static_cast<double>(i));
      tensor.set(i, value);
    }
  }
  return weights;
}

TEST(Layouts, B65_BiasOfARowCutProjectionIsAddedOnce) {
  for (const char* model : {"gpt2", "llama"}) {
    LayoutJob job;
    job.spec = tiny_model(model, false, 10);
    job.spec.qkv_bias = job.spec.o_bias = job.spec.mlp_bias = true;
    job.backend = "ref";
    job.compute = "fp64";
    job.batches = uneven_batches(1, 12, 6, 10);
    const Tensors drawn = run_layout(job, {}, 0).trained;
    const Tensors twice = biases_only(drawn, 2);
    job.initial = &twice;
    const double other_loss = run_layout(job, {}).losses[0];
    const Tensors weights = biases_only(drawn, 1);
    job.initial = &weights;
    const LayoutResult one = run_layout(job, {});
    EXPECT_GT(std::abs(other_loss - one.losses[0]), 1e-3) << "the loss does not see the biases";
    for (const Layout& layout : kLayouts) {
      SCOPED_TRACE(std::string(model) + " " + layout_name(layout));
      const LayoutResult got = run_layout(job, layout);
      expect_no_faults(got);
      EXPECT_NEAR(got.losses[0], one.losses[0], 1e-13);
      int biases = 0;
      for (const auto& [name, tensor] : one.trained) {
        if (!name.ends_with("_proj.bias")) continue;
        EXPECT_LE(relative_error(got.trained.at(name), tensor), 1e-13) << name;
        biases += got.trained.at(name).bytes == weights.at(name).bytes ? 0 : 1;
      }
      EXPECT_GE(biases, 3) << "biases that the step moved";
    }
  }
}

TEST(Layouts, B66_PiecesAreNotCopiesOfEachOther) {
  LayoutJob job;
  job.spec = tiny_model("llama", false, 257);
  job.batches = uneven_batches(1, 12, 6, 257);
  const LayoutResult one = run_layout(job, {}, 0);
  std::vector<Layout> layouts = kLayouts;
  layouts.push_back({.op = 4});
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(layout_name(layout));
    const LayoutResult got = run_layout(job, layout, 0);
    expect_no_faults(got);
    EXPECT_TRUE(same_bits(got.initial, one.initial));
  }
  // The pieces that two ranks hold of one matrix.
  const LayoutResult halves = run_layout(job, {.op = 2}, 0);
  int cut = 0;
  for (size_t i = 0; i < halves.plans[0].states.size(); ++i) {
    const PlanState& a = halves.plans[0].states[i];
    const PlanState& b = halves.plans[1].states[i];
    if (!a.slot.empty() || a.logical.begin == b.logical.begin) continue;
    ++cut;
    const HostTensor& whole = one.initial.at(a.logical.name);
    const HostTensor first = take_piece(whole, a);
    const HostTensor second = take_piece(whole, b);
    const size_t bytes = std::min(first.bytes.size(), second.bytes.size());
    EXPECT_FALSE(std::equal(first.bytes.begin(),
                            first.bytes.begin() + static_cast<std::ptrdiff_t>(bytes),
                            second.bytes.begin()))
        << a.name;
  }
  EXPECT_EQ(cut, 2 + 2 * 7);  // embedding, head, and the matrices of two layers
  const auto at = [&](const std::string& name) -> const HostTensor& {
    return one.initial.at(name);
  };
  EXPECT_FALSE(at("model.layers.0.mlp.up_proj.weight").bytes ==
               at("model.layers.1.mlp.up_proj.weight").bytes);
  EXPECT_FALSE(at("model.layers.0.mlp.up_proj.weight").bytes ==
               at("model.layers.0.mlp.gate_proj.weight").bytes);
  const HostTensor& table = at("model.embed_tokens.weight");
  double squares = 0;
  for (const double value : table.values()) squares += value * value;
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(table.size())), 0.2, 0.01);
  job.seed = 8;
  EXPECT_FALSE(run_layout(job, {}, 0).initial.at("model.embed_tokens.weight").bytes == table.bytes);
}

TEST(Layouts, B68_NormGradientsAreSummedOverSequencePieces) {
  for (const char* model : {"llama", "gpt2", "qwen3"}) {
    for (const int64_t seq_len : {8, 6}) {
      LayoutJob job;
      job.spec = tiny_model(model, false, 10);
      job.backend = "ref";
      job.compute = "fp64";
      job.lr = 0.5;
      job.batches = uneven_batches(3, 4, seq_len, 10);
      const LayoutResult one = run_layout(job, {});
      for (const bool sequence : {false, true}) {
        for (const int64_t op : {2, 4}) {
          const Layout layout{.op = op, .sequence = sequence};
          SCOPED_TRACE(std::string(model) + " " + layout_name(layout));
          const LayoutResult got = run_layout(job, layout);
          expect_no_faults(got);
          int norms = 0;
          for (const auto& [name, tensor] : one.trained) {
            const bool norm =
                name.find("norm") != std::string::npos || name.find(".ln_") != std::string::npos;
            if (!norm) continue;
            ++norms;
            EXPECT_FALSE(tensor.bytes == one.initial.at(name).bytes) << name;
            EXPECT_LE(relative_error(got.trained.at(name), tensor), 1e-12) << name;
          }
          EXPECT_GE(norms, 5);
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::test
