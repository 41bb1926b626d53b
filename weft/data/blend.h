// Which source gives sample n when sources are mixed by weight: after n samples each source has
// given within 1 of weight * n (Tijdeman, "The chairman assignment problem", Discrete Mathematics
// 32, 1980). Deterministic; going backwards starts over.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weft {

class Blend {
 public:
  /// `weights` sum to 1; a source of weight 0 is never taken.
  explicit Blend(std::vector<double> weights);

  struct Pick {
    int64_t source = 0;
    int64_t index = 0;  // how many samples this source gave before
  };
  /// Pick of sample `number`. Fast when called with ascending numbers.
  Pick at(int64_t number);
  /// Samples each source gave before the next pick.
  const std::vector<int64_t>& counts() const { return counts_; }

 private:
  Pick advance();

  std::vector<double> weights_;
  std::vector<int64_t> counts_;
  int64_t next_ = 0;
  double bound_ = 0;
};

/// Weights scaled to sum 1. Throws UsageError unless there are `sources` of them, all finite and
/// none negative, with a positive sum.
std::vector<double> normalize_weights(std::span<const double> weights, size_t sources);

}  // namespace weft
