#include "weft/train/resume.h"

#include <algorithm>
#include <array>

#include "weft/base/check.h"
#include "weft/base/log.h"
#include "weft/optim/optimizer.h"

namespace weft {
namespace {

/// Keys (or tables, with a final dot) that give the saved states or the data position their
/// meaning.
constexpr std::array<std::string_view, 14> kFixed = {"seed",
                                                     "model.",
                                                     "data.train",
                                                     "data.weights",
                                                     "data.tokenizer",
                                                     "data.seq_len",
                                                     "data.shuffle",
                                                     "data.valid_fraction",
                                                     "data.allow_special",
                                                     "data.reset_",
                                                     "data.mask_boundary",
                                                     "train.global_batch",
                                                     "optimizer.name",
                                                     "precision.compute"};

bool is_fixed(const std::string& key) {
  return std::any_of(kFixed.begin(), kFixed.end(), [&](std::string_view fixed) {
    return key == fixed || ((fixed.back() == '.' || fixed.back() == '_') && key.starts_with(fixed));
  });
}

void compare(const std::string& path, const Json* before, const Json* after,
             std::vector<ConfigChange>& changes) {
  const bool tables =
      before != nullptr && after != nullptr && before->is_object() && after->is_object();
  if (!tables) {
    const std::string old_text = before == nullptr ? "(unset)" : before->dump();
    const std::string new_text = after == nullptr ? "(unset)" : after->dump();
    if (old_text != new_text) changes.push_back({path, old_text, new_text, !is_fixed(path)});
    return;
  }
  const std::string prefix = path.empty() ? "" : path + ".";
  for (const auto& [key, value] : before->as_object()) {
    compare(prefix + key, &value, after->find(key), changes);
  }
  for (const auto& [key, value] : after->as_object()) {
    if (before->find(key) == nullptr) compare(prefix + key, nullptr, &value, changes);
  }
}

}  // namespace

std::vector<ConfigChange> config_changes(const Json& before, const Json& after) {
  std::vector<ConfigChange> changes;
  compare("", &before, &after, changes);
  return changes;
}

void check_resume_config(const Json& before, const Config& config) {
  std::string refused;
  for (const ConfigChange& change : config_changes(before, config_json(config))) {
    if (change.allowed) {
      log_info("resume: {} changed from {} to {}", change.key, change.before, change.after);
    } else {
      refused += fmt::format("{}{} (was {}, now {})", refused.empty() ? "" : ", ", change.key,
                             change.before, change.after);
    }
  }
  if (!refused.empty()) {
    throw UsageError(
        "resume", fmt::format("got changed keys that a checkpoint fixes: {}; try the old values, "
                              "or a new run with --weights-from",
                              refused));
  }
}

}  // namespace weft
