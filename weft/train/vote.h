// The one exchange of a training step: every rank says how its step went and what it was asked to
// do, and all go on with the same answer.
#pragma once

#include <exception>
#include <string>

#include "weft/comm/communicator.h"
#include "weft/train/metrics.h"

namespace weft {

/// What this rank contributes.
struct Ballot {
  int signal = 0;                 // SIGINT or SIGTERM that this process received
  bool save_by_time = false;      // rank 0 decides
  std::exception_ptr next_batch;  // why this rank cannot get its next batch
  bool overflowed = false;        // it brought in what is not finite
};

struct Decision {
  int signal = 0;  // stop after this step
  bool save_by_time = false;
  std::string next_batch;      // verdict of agree.h; not empty: the next step cannot be made
  int64_t overflow_rank = -1;  // the first rank that brought in what is not finite
};

/// Replaces the numbers of this rank in `record` by those of the job: times become the mean over
/// the ranks, sizes the largest of any rank, bytes moved the sum. Loss, norm and verdict come out
/// of the step equal on all ranks; a difference is a BugError.
Decision vote(Communicator& ranks, StepRecord& record, const Ballot& ballot);

/// The signal that some process received, 0 for none: between the votes of steps.
int vote_signal(Communicator& ranks, int received);

}  // namespace weft
