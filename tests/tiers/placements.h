// Where the classes of a step live, jobs small enough to try many such choices, and what "the same
// run" means for two of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/layout/models.h"

namespace weft::test {

/// A folder of the cold tier, removed at the end.
class ColdFolder {
 public:
  ColdFolder();
  ~ColdFolder();
  ColdFolder(const ColdFolder&) = delete;
  ColdFolder& operator=(const ColdFolder&) = delete;

  std::string path() const { return path_.string(); }
  /// Files in it now.
  int64_t files() const;

 private:
  std::filesystem::path path_;
};

/// One tier per class: 'd' device, 'h' host, 'n' nvme, 's' a quarter on the device, a quarter on
/// the host and the rest on nvme, 'a' auto.
struct Placement {
  std::string classes = "dddd";  // optimizer, weights, gradients, activations
  bool update_on_host = false;
  bool late_update = false;
  std::optional<int64_t> prefetch = {};  // bytes
  std::string recompute = "none";
  bool vertical = false;

  bool uses(Tier tier) const;
};
/// "nhds_host_late_p98304_full_vertical".
std::string placement_name(const Placement& placement);

/// `job` with the placement; `folders` are those of the cold tier.
LayoutJob placed(LayoutJob job, const Placement& placement,
                 const std::vector<std::string>& folders);

struct TierModel {
  std::string family = "llama";  // or "gpt2"; "moe" is dropless, "moe_capacity" drops tokens
  std::string compute = "bf16";
  std::string optimizer = "adamw";
};
std::string tier_model_name(const TierModel& model);

/// Hidden 32, two layers, vocabulary 257; 12 rows of 32 tokens, clipped, with dropout in gpt2 and
/// momentum in sgd. Activations are large enough to be moved in every layout.
LayoutJob tier_job(const TierModel& model, int64_t steps);

/// Layouts for the families of experts, with the experts cut over data.
std::vector<Layout> expert_tier_layouts();
/// {1; data 2; op 2 with sequence; zero 1, 2, 3; data 2 x op 2}, some with accumulation.
std::vector<Layout> tier_layouts();

/// No faults; losses, norms, trained weights, copies and slots equal to the bit.
void expect_same_run(const LayoutResult& got, const LayoutResult& expected);
/// Every class that the placement puts off the device moves in every plan, and plan.txt says why.
void expect_moves(const LayoutResult& result, const Placement& placement);

/// Bytes of states, or of values of `program` (0 = "train"), that lie in `tier`.
int64_t state_bytes_in(const Plan& plan, Tier tier);

}  // namespace weft::test
