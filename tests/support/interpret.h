// Runs a Graph node by node on a backend, each value in memory of its own: the slowest and
// plainest executor, against which plans and gradients are checked.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/support/host_tensor.h"
#include "weft/backend/backend.h"
#include "weft/ir/graph.h"

namespace weft::test {

/// Values by the name of the graph input or state.
using Feeds = std::map<std::string, HostTensor>;

/// Runs every node in order. Every input and every state that a node reads must be in `feeds` with
/// its type (BugError otherwise). Returns one tensor per ValueId; values that nothing produced are
/// absent. Throws BugError when a kernel writes outside its outputs.
std::vector<HostTensor> interpret(const Graph& graph, Backend& backend, const Feeds& feeds);

/// States after the run: the value of `result`, or the fed value where it is unchanged.
Feeds state_results(const Graph& graph, const std::vector<HostTensor>& values);

}  // namespace weft::test
