// A model folder compiled and loaded into a session: the shortest way from a Hugging Face folder to
// losses, gradients and weights.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/golden.h"
#include "weft/backend/backend.h"
#include "weft/checkpoint/hf_import.h"
#include "weft/plan/plan.h"
#include "weft/runtime/session.h"
#include "weft/train/metrics.h"

namespace weft::test {

class ModelRun {
 public:
  /// Compiles "train" (with every gradient as output), "eval" and "logits" (all positions) for
  /// micro-batches of config.train.micro_batch x config.data.seq_len and imports the weights of
  /// `folder`.
  ModelRun(const ModelSpec& spec, const std::string& folder, const Config& config);

  const Plan& plan() const { return *plan_; }
  Session& session() { return *session_; }
  const ImportReport& import_report() const { return report_; }

  /// One optimizer step, number from 1, on accumulation x micro_batch rows ([rows, seq_len] i32,
  /// labels already shifted). Returns the loss: sum / valid labels of the whole batch, 0 without
  /// one.
  double step(int64_t number, const HostTensor& tokens, const HostTensor& labels);
  /// What the routers of the last step said; without experts an empty record.
  StepRecord experts();
  /// Global gradient norm of the last step.
  double norm();
  /// Gradients of the last step and current weights, as whole f64 tensors by Hugging Face name.
  Tensors gradients();
  Tensors weights();
  /// Sum of token losses over the same rows; no state changes.
  double eval_loss_sum(const HostTensor& tokens, const HostTensor& labels);
  /// [rows, seq_len, vocab] f64.
  HostTensor logits(const HostTensor& tokens);

 private:
  void set(std::string_view program, const std::string& input, const HostTensor& value);
  void set_scalars(const std::string& input, const std::vector<double>& values);
  /// Rows of micro-batch `micro`.
  void set_rows(std::string_view program, const std::string& suffix, int64_t micro,
                const HostTensor& tokens, const HostTensor* labels);
  HostTensor output(std::string_view program, const std::string& name);

  Config config_;
  ModelSpec spec_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<Session> session_;
  ImportReport report_;
};

}  // namespace weft::test
