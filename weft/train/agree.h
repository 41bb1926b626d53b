// What the ranks of a job decide together through the control plane (Channel::train). Every
// function here is called by all ranks in the same order.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>

#include "weft/base/raise.h"
#include "weft/comm/communicator.h"

namespace weft {

/// Whose fault an error of some ranks is.
enum class Blame : uint8_t {
  /// Of the rank that met it: it throws its error, the others PeerErrors that name it. An error
  /// that every rank met with the same exit code is thrown by each as its own.
  rank,
  /// Of the job: the configuration asks for what one rank cannot give. All throw the error of the
  /// first rank that met one.
  job,
};

/// Runs `work`, which must not wait for other ranks, on every rank and returns when all have done
/// it without an error.
void on_all_ranks(Communicator& ranks, Blame fault, const std::function<void()>& work);

/// Runs `work` on rank 0; all ranks get its result or throw its error.
std::string on_first_rank(Communicator& ranks, const std::function<std::string()>& work);

/// Rank 0 makes one answer out of the messages of all ranks; everybody gets it. An error of
/// `answer` is thrown on all ranks.
std::string ask_first_rank(
    Communicator& ranks, const std::string& message,
    const std::function<std::string(const std::vector<std::string>&)>& answer);

/// How a piece of work ended on this rank; empty = well.
std::string outcome_text(const std::exception_ptr& error);
/// What follows from the outcomes of all ranks, on rank 0; empty = all went well.
std::string judge_outcomes(const std::vector<std::string>& outcomes, Blame fault);
/// Throws what `verdict` (of judge_outcomes) says on this rank, whose own error is `mine`.
void throw_verdict(Communicator& ranks, const std::string& verdict, const std::exception_ptr& mine);

/// Before all ranks end with the same error: returns when every rank knows it (or some rank has
/// ended), so that none of them takes the end of another for a failure.
void await_all(Communicator& ranks) noexcept;

}  // namespace weft
