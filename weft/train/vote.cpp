#include "weft/train/vote.h"

#include <fmt/core.h>

#include <algorithm>

#include "weft/base/check.h"
#include "weft/train/agree.h"

namespace weft {
namespace {

constexpr double StepRecord::*kMeans[] = {
    &StepRecord::compute_ms,      &StepRecord::comm_ms,       &StepRecord::comm_exposed_ms,
    &StepRecord::copy_exposed_ms, &StepRecord::io_exposed_ms, &StepRecord::update_ms,
    &StepRecord::data_ms};
constexpr int64_t StepRecord::*kLargest[] = {&StepRecord::device_peak_bytes,
                                             &StepRecord::host_bytes, &StepRecord::nvme_bytes};
constexpr int64_t StepRecord::*kSums[] = {&StepRecord::nvme_read_bytes,
                                          &StepRecord::nvme_write_bytes};

Json numbers(const StepRecord& record) {
  Json json = Json::array();
  for (const auto member : kMeans) json.push(record.*member);
  for (const auto member : kLargest) json.push(record.*member);
  for (const auto member : kSums) json.push(record.*member);
  return json;
}

void set_numbers(const Json& json, StepRecord& record) {
  size_t at = 0;
  const Json::Array& values = json.as_array();
  for (const auto member : kMeans) record.*member = values.at(at++).as_double();
  for (const auto member : kLargest) record.*member = values.at(at++).as_int();
  for (const auto member : kSums) record.*member = values.at(at++).as_int();
}

/// The numbers of the job in `record`, which holds those of rank 0.
void combine(const std::vector<Json>& ballots, StepRecord& record) {
  for (const auto member : kMeans) record.*member = 0;
  for (const Json& ballot : ballots) {
    StepRecord rank;
    set_numbers(ballot.at("numbers"), rank);
    for (const auto member : kMeans) {
      record.*member += rank.*member / static_cast<double>(ballots.size());
    }
    for (const auto member : kLargest) record.*member = std::max(record.*member, rank.*member);
    for (const auto member : kSums) record.*member += rank.*member;
  }
}

/// Results of the step that must be equal on all ranks, to the bit.
std::string results_text(const StepRecord& record) {
  return fmt::format("step {}, {} labels, loss {}, gradient norm {}, {}", record.step,
                     record.tokens, record.loss, record.grad_norm,
                     record.skipped ? "skipped" : "applied");
}

std::string count(const std::vector<std::string>& messages, StepRecord record) {
  std::vector<Json> ballots;
  std::vector<std::string> outcomes;
  int signal = 0;
  int64_t overflow_rank = -1;
  for (const std::string& message : messages) {
    const Json& ballot = ballots.emplace_back(parse_json(message, "vote"));
    if (overflow_rank < 0 && ballot.at("overflowed").as_bool()) {
      overflow_rank = static_cast<int64_t>(ballots.size()) - 1;
    }
    outcomes.push_back(ballot.at("next_batch").as_string());
    if (signal == 0) signal = static_cast<int>(ballot.at("signal").as_int());
    WEFT_CHECK(ballot.at("results").as_string() == ballots[0].at("results").as_string(), "vote",
               "rank 0 has {}, rank {} has {}", ballots[0].at("results").as_string(),
               ballots.size() - 1, ballot.at("results").as_string());
  }
  for (const auto member : kSums) record.*member = 0;
  combine(ballots, record);
  return Json::object({{"signal", signal},
                       {"save", ballots[0].at("save")},
                       {"next_batch", judge_outcomes(outcomes, Blame::rank)},
                       {"overflow_rank", overflow_rank},
                       {"numbers", numbers(record)}})
      .dump();
}

}  // namespace

Decision vote(Communicator& ranks, StepRecord& record, const Ballot& ballot) {
  if (ranks.world() == 1) {
    const std::string outcome = outcome_text(ballot.next_batch);
    return {ballot.signal, ballot.save_by_time, judge_outcomes({outcome}, Blame::rank), 0};
  }
  const std::string message = Json::object({{"signal", ballot.signal},
                                            {"save", ballot.save_by_time},
                                            {"next_batch", outcome_text(ballot.next_batch)},
                                            {"overflowed", ballot.overflowed},
                                            {"results", results_text(record)},
                                            {"numbers", numbers(record)}})
                                  .dump();
  const std::string answer =
      ask_first_rank(ranks, message, [&](const auto& messages) { return count(messages, record); });
  const Json json = parse_json(answer, "vote");
  set_numbers(json.at("numbers"), record);
  return {static_cast<int>(json.at("signal").as_int()), json.at("save").as_bool(),
          json.at("next_batch").as_string(), json.at("overflow_rank").as_int()};
}

int vote_signal(Communicator& ranks, int received) {
  const std::string answer =
      ask_first_rank(ranks, std::to_string(received), [](const auto& messages) {
        const auto first = std::find_if(messages.begin(), messages.end(),
                                        [](const std::string& text) { return text != "0"; });
        return first == messages.end() ? "0" : *first;
      });
  return std::stoi(answer);
}

}  // namespace weft
