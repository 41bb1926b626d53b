// What the ranks of a save or a load settle among themselves, so that all of them go on or all of
// them report the same error at the same call.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/shape.h"
#include "weft/checkpoint/logical.h"
#include "weft/comm/communicator.h"

namespace weft {

/// What rank 0 answers to the messages of all ranks, in their order.
using Answer = std::function<std::string(const std::vector<std::string>& messages)>;

/// One round: every rank gives a message, or the failure it had, and gets the answer of rank 0.
/// Collective on Channel::checkpoint. When any rank failed, or `answer` throws, every rank throws
/// that error with its exit code: the first in rank order, those that blame another rank last. Its
/// text names the rank. Without a communicator the one rank throws its own failure as it is.
std::string agree(Communicator* communicator, const std::exception_ptr& failure,
                  std::string_view message, const Answer& answer);
/// A round without message or answer.
void agree(Communicator* communicator, const std::exception_ptr& failure);

/// The failure of `body`, or nothing.
std::exception_ptr failure_of(const std::function<void()>& body);

/// Name -> shape of the logical tensors that any rank has states of. Collective.
std::map<std::string, Shape> all_tensors(Communicator* communicator,
                                         const std::exception_ptr& failure,
                                         const std::vector<LogicalGroup>& groups);

}  // namespace weft
