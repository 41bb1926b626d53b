#include "weft/train/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/base/check.h"
#include "weft/base/rng.h"

namespace weft {
namespace {

/// Logits of the position after `ids` (at most the window's length of them).
std::vector<float> next_logits(Job& job, const std::vector<int32_t>& ids) {
  Session& session = *job.session;
  const PlanProgram& program = job.plan.program("logits");
  const auto& tokens_type = job.plan.buffers[static_cast<size_t>(program.inputs.at("tokens"))].type;
  const int64_t seq_len = tokens_type.shape[1];
  const auto visible = std::min<int64_t>(seq_len, static_cast<int64_t>(ids.size()));
  std::vector<int32_t> tokens(static_cast<size_t>(seq_len), 0);
  std::vector<int32_t> positions(static_cast<size_t>(seq_len));
  std::copy(ids.end() - visible, ids.end(), tokens.begin());
  std::iota(positions.begin(), positions.end(), 0);
  const auto last = static_cast<int32_t>(visible - 1);
  session.set_input("logits", "tokens", tokens.data(), tokens_type.bytes());
  session.set_input("logits", "positions", positions.data(), tokens_type.bytes());
  session.set_input("logits", "last", &last, sizeof(last));
  if (session.has_input("logits", "lengths")) {
    const auto length = static_cast<int32_t>(visible);
    session.set_input("logits", "lengths", &length, sizeof(length));
  }
  session.run("logits");
  const auto& type = job.plan.buffers[static_cast<size_t>(program.outputs.at("logits"))].type;
  std::vector<std::byte> raw(static_cast<size_t>(type.bytes()));
  session.get_output("logits", "logits", raw.data(), type.bytes());
  std::vector<float> logits(static_cast<size_t>(type.elements()));
  convert_elements(raw.data(), type.dtype, logits.data(), DType::f32, type.elements());
  return logits;
}

}  // namespace

int64_t sample_token(const std::vector<float>& logits, double temperature, int64_t top_k,
                     double random) {
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  if (temperature == 0.0) return order.front();
  if (top_k > 0 && top_k < static_cast<int64_t>(order.size())) {
    order.resize(static_cast<size_t>(top_k));
  }
  const double top = logits[static_cast<size_t>(order.front())];
  std::vector<double> weights;
  double sum = 0;
  for (const int64_t id : order) {
    weights.push_back(std::exp((logits[static_cast<size_t>(id)] - top) / temperature));
    sum += weights.back();
  }
  double left = random * sum;
  for (size_t i = 0; i < order.size(); ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order.back();
}

void generate(Job& job, const std::vector<int32_t>& prompt, const GenerateOptions& options,
              const std::function<void(int32_t)>& emit) {
  std::vector<int32_t> ids = prompt;
  if (ids.empty()) ids.push_back(job.tokenizer->eod_id());
  const RngStream random(options.seed, "generate");
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    std::vector<float> logits = next_logits(job, ids);
    // A vocabulary padded beyond the tokenizer has ids without text.
    logits.resize(std::min<size_t>(logits.size(), static_cast<size_t>(job.text_ids)));
    const auto id = static_cast<int32_t>(sample_token(logits, options.temperature, options.top_k,
                                                      random.uniform(static_cast<uint64_t>(i))));
    if (id == job.tokenizer->eod_id()) return;
    ids.push_back(id);
    emit(id);
  }
}

}  // namespace weft
