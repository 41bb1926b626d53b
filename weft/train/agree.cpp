#include "weft/train/agree.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/base/json.h"

namespace weft {
namespace {

std::string to_text(const ErrorData& error) {
  return Json::object({{"code", static_cast<int>(error.code)}, {"text", error.text}}).dump();
}

ErrorData error_of(const std::string& text) {
  const Json json = parse_json(text, "agree");
  return {static_cast<ExitCode>(json.at("code").as_int()), json.at("text").as_string()};
}

std::exception_ptr caught(const std::function<void()>& work) {
  try {
    work();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

// First letters of messages and verdicts.
constexpr char kResult = 'r';     // the result follows
constexpr char kJobFails = 'j';   // all throw the error that follows
constexpr char kOwnFails = 'o';   // all throw their own error
constexpr char kRankFails = 'n';  // the rank that follows throws its own, the others name it

}  // namespace

std::string outcome_text(const std::exception_ptr& error) {
  return error ? to_text(error_data(error)) : "";
}

std::string judge_outcomes(const std::vector<std::string>& outcomes, Blame fault) {
  const auto first = std::find_if(outcomes.begin(), outcomes.end(),
                                  [](const std::string& text) { return !text.empty(); });
  if (first == outcomes.end()) return "";
  if (fault == Blame::job) return kJobFails + *first;
  const ExitCode code = error_of(*first).code;
  const bool all = std::all_of(outcomes.begin(), outcomes.end(), [&](const std::string& text) {
    return !text.empty() && error_of(text).code == code;
  });
  if (all) return std::string(1, kOwnFails);
  return kRankFails + std::to_string(first - outcomes.begin());
}

void throw_verdict(Communicator& ranks, const std::string& verdict,
                   const std::exception_ptr& mine) {
  if (verdict.empty()) return;
  const std::string rest = verdict.substr(1);
  if (verdict[0] != kRankFails) {
    await_all(ranks);
    if (verdict[0] == kJobFails) raise(error_of(rest));
  } else if (std::to_string(ranks.rank()) != rest) {
    ranks.barrier(Channel::train);  // ends with a PeerError that names the failed rank
    throw BugError("agree", "rank " + rest + " failed and went on");
  }
  WEFT_CHECK(mine != nullptr, "agree", "rank {} is to throw an error it does not have",
             ranks.rank());
  std::rethrow_exception(mine);
}

void await_all(Communicator& ranks) noexcept {
  try {
    ranks.barrier(Channel::train);
  } catch (const std::exception&) {
    // This rank is about to throw what all know; others may have done so already.
  }
}

void on_all_ranks(Communicator& ranks, Blame fault, const std::function<void()>& work) {
  const std::exception_ptr error = caught(work);
  if (ranks.world() == 1) {
    if (error) std::rethrow_exception(error);
    return;
  }
  const auto outcomes = ranks.gather(Channel::train, outcome_text(error));
  const std::string verdict = ranks.rank() == 0 ? judge_outcomes(outcomes, fault) : "";
  throw_verdict(ranks, ranks.broadcast(Channel::train, verdict), error);
}

std::string on_first_rank(Communicator& ranks, const std::function<std::string()>& work) {
  if (ranks.world() == 1) return work();
  std::string message;
  if (ranks.rank() == 0) {
    const std::exception_ptr error = caught([&] { message = kResult + work(); });
    if (error) message = kJobFails + outcome_text(error);
  }
  const std::string answer = ranks.broadcast(Channel::train, message);
  if (answer.starts_with(kResult)) return answer.substr(1);
  await_all(ranks);
  raise(error_of(answer.substr(1)));
}

std::string ask_first_rank(
    Communicator& ranks, const std::string& message,
    const std::function<std::string(const std::vector<std::string>&)>& answer) {
  if (ranks.world() == 1) return answer({message});
  const std::vector<std::string> messages = ranks.gather(Channel::train, message);
  return on_first_rank(ranks, [&] { return answer(messages); });
}

}  // namespace weft
