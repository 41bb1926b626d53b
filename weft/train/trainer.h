// The training run: data, steps, evaluation, checkpoints, records, alarms.
#pragma once

#include <optional>
#include <string>

#include "weft/config/config.h"
#include "weft/io/cold/cold_options.h"

namespace weft {

struct TrainOptions {
  std::string out;                    // run folder
  std::optional<std::string> resume;  // "" = newest complete checkpoint in `out`, else a checkpoint
                                      // or run folder
  std::string weights_from;           // checkpoint, run or Hugging Face folder; "" = none
  std::string command;                // command line, for the report
  ColdOptions cold;                   // see ColdSetup::options
};

/// Trains to the end of the configuration, on as many ranks as it asks for. Returns 0, or throws:
/// AlarmError after an alarm rule stopped the run, Interrupted after a signal and a complete save.
int train(const Config& config, const TrainOptions& options);

}  // namespace weft
