// Losses known by hand, on compiled plans: models that are written for the test, every label and
// every micro-batch counted.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/hf_fixture.h"
#include "tests/support/model_run.h"
#include "weft/base/error.h"
#include "weft/io/test_folder.h"

namespace weft::test {
namespace {

constexpr int32_t kIgnored = -100;

HostTensor rows(const std::vector<std::vector<double>>& values) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<double> flat;
  for (const auto& row : values) flat.insert(flat.end(), row.begin(), row.end());
  return HostTensor({DType::i32, {count, static_cast<int64_t>(values[0].size())}}, flat);
}

Config config_for(int64_t rows, int64_t accumulation, int64_t seq_len, const std::string& backend) {
  Config config = golden_config("sgd", 1, backend, "fp32");
  config.data.seq_len = seq_len;
  config.train.accumulation = accumulation;
  config.train.micro_batch = rows / accumulation;
  config.train.global_batch = rows;
  config.optimizer.lr = 0.5;
  config.optimizer.momentum = 0.0;
  return config;
}

ModelSpec spec_of(const TinyLlama& shape) {
  return model_spec_from_hf(tiny_llama_config(shape), "test");
}

/// Token 0 is followed by anything with equal odds, token 1 almost surely by 1.
const BigramColumns kColumns = {{}, {0.0, 3.5355339}};

TEST(KnownLoss, ZeroModelCostsLogOfTheVocabulary) {
  for (const int64_t vocab : {8, 16, 256}) {
    const TestFolder temp;
    const TinyLlama shape{.vocab = vocab};
    write_zero_model(temp.path(), shape);
    ModelRun run(spec_of(shape), temp.path(), config_for(1, 1, 4, "cpu"));
    const HostTensor tokens = rows({{0, 3, 7, 1}});
    const HostTensor labels = rows({{3, 7, 1, 2}});
    EXPECT_NEAR(run.eval_loss_sum(tokens, labels) / 4, std::log(static_cast<double>(vocab)), 1e-6);
  }
}

TEST(KnownLoss, BigramModelCostsWhatItsColumnsSay) {
  const TestFolder temp;
  const TinyLlama shape;
  write_bigram_model(temp.path(), shape, kColumns);
  EXPECT_NEAR(bigram_loss(shape, kColumns, 0, 5), 2.079442, 1e-6);
  EXPECT_NEAR(bigram_loss(shape, kColumns, 1, 1), 0.000318, 1e-6);
  for (const char* backend : {"ref", "cpu"}) {
    ModelRun run(spec_of(shape), temp.path(), config_for(1, 1, 4, backend));
    const HostTensor tokens = rows({{0, 1, 1, 0}});
    EXPECT_NEAR(run.eval_loss_sum(tokens, rows({{5, kIgnored, kIgnored, kIgnored}})), 2.079442,
                2e-6);
    EXPECT_NEAR(run.eval_loss_sum(tokens, rows({{kIgnored, 1, 1, kIgnored}})), 2 * 0.000318, 2e-6);
  }
}

TEST(KnownLoss, B02_MeanOverTheTokensOfTheWholeBatch) {
  const TestFolder temp;
  const TinyLlama shape;
  write_bigram_model(temp.path(), shape, kColumns);
  // One valid label that costs 2.079442, seven that cost 0.000318 each.
  const HostTensor tokens = rows({{0, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 0}});
  HostTensor labels(tokens.type);
  for (int64_t i = 0; i < labels.size(); ++i) labels.set(i, i == 0 || i / 8 == 1 ? 1 : kIgnored);
  labels.set(15, kIgnored);
  const auto with_ignored_rows = [](const HostTensor& two, double fill) {
    HostTensor four({DType::i32, {4, 8}});
    for (int64_t i = 0; i < four.size(); ++i) four.set(i, i < 16 ? two.get(i) : fill);
    return four;
  };
  ModelRun whole(spec_of(shape), temp.path(), config_for(2, 1, 8, "cpu"));
  ModelRun split(spec_of(shape), temp.path(), config_for(2, 2, 8, "cpu"));
  ModelRun padded(spec_of(shape), temp.path(), config_for(4, 4, 8, "cpu"));
  EXPECT_NEAR(whole.step(1, tokens, labels), 0.260208, 1e-6);
  EXPECT_NEAR(split.step(1, tokens, labels), 0.260208, 1e-6);
  EXPECT_NEAR(padded.step(1, with_ignored_rows(tokens, 2), with_ignored_rows(labels, kIgnored)),
              0.260208, 1e-6);
  const double norm = whole.norm();
  EXPECT_GT(norm, 0.1);
  EXPECT_NEAR(split.norm(), norm, 1e-6 * norm);
  EXPECT_NEAR(padded.norm(), norm, 1e-6 * norm);
  for (const auto& [name, tensor] : whole.weights()) {
    EXPECT_LE(relative_error(split.weights().at(name), tensor), 1e-6) << name;
    EXPECT_LE(relative_error(padded.weights().at(name), tensor), 1e-6) << name;
  }
}

TEST(KnownLoss, B02_AllLabelsIgnoredIsZeroLossAndZeroGradient) {
  const TestFolder temp;
  const TinyLlama shape;
  write_bigram_model(temp.path(), shape, kColumns);
  ModelRun run(spec_of(shape), temp.path(), config_for(2, 2, 4, "cpu"));
  const Tensors before = run.weights();
  const HostTensor labels({DType::i32, {2, 4}}, {kIgnored, kIgnored, kIgnored, kIgnored, kIgnored,
                                                 kIgnored, kIgnored, kIgnored});
  EXPECT_EQ(run.step(1, rows({{0, 1, 2, 3}, {1, 1, 1, 1}}), labels), 0.0);
  EXPECT_EQ(run.norm(), 0.0);
  for (const auto& [name, tensor] : run.weights()) {
    EXPECT_TRUE(tensor.bytes == before.at(name).bytes) << name;
  }
}

TEST(KnownLoss, B76_EpsilonOfTheFileIsUsed) {
  const TestFolder temp;
  const TinyLlama shape{.eps = 0.5};
  write_bigram_model(temp.path(), shape, kColumns);
  // 3.5355339 / sqrt(1/8 + 1/2) = 4.472136; ln(e^4.472136 + 7) - 4.472136.
  const double expected = std::log(std::exp(4.472136) + 7.0) - 4.472136;
  EXPECT_NEAR(bigram_loss(shape, kColumns, 1, 1), expected, 1e-6);
  ModelRun run(spec_of(shape), temp.path(), config_for(1, 1, 4, "cpu"));
  const HostTensor labels = rows({{1, kIgnored, kIgnored, kIgnored}});
  EXPECT_NEAR(run.eval_loss_sum(rows({{1, 0, 0, 0}}), labels), expected, 1e-6);
}

/// Logits of the golden model under a changed config.json.
HostTensor logits_with(const Golden& golden, const std::vector<std::pair<std::string, Json>>& edits,
                       const std::vector<std::string>& removed) {
  const Json original = read_json_file(golden.folder + "/config.json");
  Json hf = Json::object();
  for (const auto& [key, value] : original.as_object()) {
    bool keep = true;
    for (const std::string& name : removed) keep = keep && name != key;
    if (keep) hf.set(key, value);
  }
  for (const auto& [key, value] : edits) hf.set(key, value);
  const ModelSpec spec = model_spec_from_hf(hf, "test");
  ModelRun run(spec, golden.folder, golden_config("adamw", 1, "cpu", "fp32"));
  return run.logits(golden.at("input_ids"));
}

TEST(KnownLoss, B75_WindowCountsOnlyWhenItsSwitchIsOn) {
  const Golden golden = load_golden("qwen2_window");  // window 4 from layer 1 on
  const HostTensor off = logits_with(golden, {{"use_sliding_window", false}}, {"layer_types"});
  const HostTensor null = logits_with(golden, {{"sliding_window", nullptr}}, {"layer_types"});
  const HostTensor absent =
      logits_with(golden, {}, {"layer_types", "sliding_window", "use_sliding_window"});
  const HostTensor on = logits_with(golden, {}, {"layer_types"});
  EXPECT_TRUE(off.bytes == null.bytes);
  EXPECT_TRUE(off.bytes == absent.bytes);
  EXPECT_LE(relative_error(on, golden.at("logits")), 1e-5);
  EXPECT_GT(relative_error(off, golden.at("logits")), 1e-3);
  const int64_t vocab = golden.spec.vocab_size;
  for (int64_t position = 0; position < 4; ++position) {
    for (int64_t v = 0; v < vocab; ++v) {
      const int64_t i = position * vocab + v;
      EXPECT_NEAR(on.get(i), off.get(i), 1e-5) << position;
    }
  }
}

TEST(KnownLoss, B76_TheTwoGelusAreToldApart) {
  const Golden golden = load_golden("gpt2_erf_layer_scale");
  const HostTensor tanh = logits_with(golden, {{"activation_function", "gelu_new"}}, {});
  const double error = relative_error(tanh, golden.at("logits"));
  EXPECT_GT(error, 1e-5);
  EXPECT_LT(error, 1e-2);
  EXPECT_THROW(logits_with(golden, {{"activation_function", "mish"}}, {}), Error);
}

}  // namespace
}  // namespace weft::test
