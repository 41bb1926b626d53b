#include "weft/data/blend.h"

#include <fmt/core.h>

#include <cmath>

#include "weft/base/check.h"
#include "weft/base/error.h"

namespace weft {

Blend::Blend(std::vector<double> weights)
    : weights_(std::move(weights)), counts_(weights_.size(), 0) {
  size_t active = 0;
  for (const double weight : weights_) active += weight > 0 ? 1 : 0;
  WEFT_CHECK(active > 0, "Blend", "got no positive weight");
  bound_ = active > 1 ? 1.0 - 1.0 / (2.0 * static_cast<double>(active) - 2.0) : 0.0;
}

Blend::Pick Blend::advance() {
  // Among the sources that may give sample n without running ahead, the one that must give soonest.
  const double number = static_cast<double>(next_ + 1);
  constexpr double kRounding = 1e-9;  // weights are decimal fractions, ties should look like ties
  size_t best = weights_.size();
  double best_deadline = 0;
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] <= 0) continue;
    const double count = static_cast<double>(counts_[i]);
    const double behind = weights_[i] * number - count;
    if (behind + kRounding < 1.0 - bound_) continue;
    const double deadline = (count + bound_) / weights_[i];
    if (best == weights_.size() || deadline < best_deadline - kRounding) {
      best = i;
      best_deadline = deadline;
    }
  }
  if (best == weights_.size()) {
    // Only rounding can bring us here: take the source that is furthest behind.
    double furthest = -INFINITY;
    for (size_t i = 0; i < weights_.size(); ++i) {
      const double behind = weights_[i] * number - static_cast<double>(counts_[i]);
      if (weights_[i] > 0 && behind > furthest) {
        best = i;
        furthest = behind;
      }
    }
  }
  ++next_;
  return {static_cast<int64_t>(best), counts_[best]++};
}

Blend::Pick Blend::at(int64_t number) {
  if (number < next_) {
    next_ = 0;
    counts_.assign(weights_.size(), 0);
  }
  while (next_ < number) advance();
  return advance();
}

std::vector<double> normalize_weights(std::span<const double> weights, size_t sources) {
  if (weights.size() != sources) {
    throw UsageError("data.weights", fmt::format("got {} weights, expected one for each of the {} "
                                                 "entries of data.train",
                                                 weights.size(), sources));
  }
  double sum = 0;
  for (const double weight : weights) {
    if (!std::isfinite(weight) || weight < 0) {
      throw UsageError("data.weights",
                       fmt::format("got weight {}, expected a number of 0 or more", weight));
    }
    sum += weight;
  }
  if (!(sum > 0) || !std::isfinite(sum)) {
    throw UsageError("data.weights",
                     fmt::format("got weights with the sum {}, expected a positive one", sum));
  }
  std::vector<double> scaled(weights.begin(), weights.end());
  for (double& weight : scaled) weight /= sum;
  return scaled;
}

}  // namespace weft
