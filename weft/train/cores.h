// Which cores a rank runs on: its own where there are enough, near each other, so that its threads
// do not fight with those of other ranks and its memory, which they touch first, lies beside them.
#pragma once

#include <sched.h>

#include <string>
#include <vector>

#include "weft/comm/communicator.h"

namespace weft {

/// Cores that this thread may use.
std::vector<int> usable_cores();

struct CoreSite {
  int core = 0;
  int node = 0;      // NUMA node
  int physical = 0;  // lowest number of the hardware threads that share its physical core
};

/// Where each of `cores` lies, as `root` ("/sys/devices/system") says; where it says nothing, on
/// node 0 and alone. Sorted by node, physical core, core.
std::vector<CoreSite> locate_cores(const std::string& root, const std::vector<int>& cores);

/// Disjoint cores per rank, equally many, within one node where the nodes hold whole ranks. Empty
/// when there are fewer cores than `ranks` * `threads`. `sites` as locate_cores sorts them.
std::vector<std::vector<int>> deal_cores(const std::vector<CoreSite>& sites, int ranks,
                                         int threads);

/// Keeps the calling thread, and threads that it starts from then on, on some cores; the
/// destructor, in the same thread, lets it go again.
class CoreBinding {
 public:
  /// No cores: nothing is bound. A system that refuses is noted in the log.
  explicit CoreBinding(const std::vector<int>& cores);
  ~CoreBinding();
  CoreBinding(const CoreBinding&) = delete;
  CoreBinding& operator=(const CoreBinding&) = delete;

 private:
  cpu_set_t before_{};
  bool bound_ = false;
};

/// The cores of this rank when it shares them with other ranks of its machine and there are at
/// least `threads` for each; empty = leave it where it is (alone, bound by a launcher, or more
/// ranks than cores). Called by all ranks.
std::vector<int> agree_cores(int threads, Communicator& ranks);

}  // namespace weft
