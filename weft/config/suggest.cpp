// The nearest valid name for a misspelt or misplaced one.
#include <algorithm>
#include <vector>

#include "weft/config/schema.h"

namespace weft {
namespace {

/// Edits (insert, delete, replace, swap of neighbours) between two names.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] =
          std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

/// Near enough to be what the user meant.
size_t tolerance(std::string_view name) { return name.size() <= 2 ? 1 : (name.size() + 2) / 3; }

constexpr size_t kLongestName = 64;  // longer ones are no misspelling; bounds the work

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string_view>& names) {
  if (name.size() > kLongestName) return "";
  std::string_view best;
  size_t least = tolerance(name) + 1;
  for (const std::string_view candidate : names) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return std::string(best);
}

std::string nearest_key(std::string_view key) {
  const std::string_view section = section_of(key);
  const std::string_view leaf = leaf_of(key);
  if (leaf.size() > kLongestName) return "";
  // Cost = edits of the last part, plus a little for every way of being further off.
  size_t least = 4 * tolerance(leaf) + 4;
  std::string_view best;
  for (const KeySpec& spec : config_schema()) {
    const size_t elsewhere = section_of(spec.key) == section ? 0 : 2;
    const auto consider = [&](std::string_view name, size_t extra) {
      const size_t distance = edit_distance(leaf, name);
      if (distance > tolerance(leaf)) return;
      const size_t cost = 4 * distance + elsewhere + extra;
      if (cost < least) {
        least = cost;
        best = spec.key;
      }
    };
    consider(leaf_of(spec.key), 0);
    for (const std::string_view alias : spec.aliases) consider(alias, 1);
  }
  return std::string(best);
}

}  // namespace weft
