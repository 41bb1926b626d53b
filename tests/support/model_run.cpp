#include "tests/support/model_run.h"

#include <fmt/core.h>

#include <algorithm>

#include "weft/base/check.h"
#include "weft/checkpoint/session_store.h"
#include "weft/compile/pipeline.h"
#include "weft/optim/optimizer.h"
#include "weft/train/expert_stats.h"

namespace weft::test {
namespace {

void place(Tensors& whole, const PlanState& state, const HostTensor& piece) {
  const TensorType type{DType::f64, state.logical.shape};
  const auto found = whole.try_emplace(state.logical.name, type).first;
  paste(found->second, state.logical.begin, piece);
}

int64_t count_valid(const HostTensor& labels) {
  int64_t valid = 0;
  for (int64_t i = 0; i < labels.size(); ++i) valid += labels.get(i) == -100 ? 0 : 1;
  return valid;
}

}  // namespace

ModelRun::ModelRun(const ModelSpec& spec, const std::string& folder, const Config& config)
    : config_(config), spec_(spec), backend_(make_backend(config.device.backend, {})) {
  CompileOptions options;
  options.eval = true;
  options.logits_seq_len = config.data.seq_len;
  options.all_logits = true;
  options.keep_gradients = true;
  plan_ = std::make_unique<Plan>(compile(config, spec, *backend_, options));
  session_ = std::make_unique<Session>(*plan_, *backend_);
  session_->init_states(config.seed);
  SessionStore store(*session_);
  report_ = import_hf_weights(posix_files(), store, folder);
}

double ModelRun::step(int64_t number, const HostTensor& tokens, const HostTensor& labels) {
  const auto valid = static_cast<double>(std::max<int64_t>(1, count_valid(labels)));
  for (int64_t i = 0; i < config_.train.accumulation; ++i) {
    set_rows("train", fmt::format(".{}", i), i, tokens, &labels);
  }
  set_scalars("grad_scale", {1.0 / valid});
  set_scalars("inv_scale", {1.0});
  if (session_->has_input("train", "aux_scale")) {
    set_scalars("aux_scale", {aux_share(spec_, config_.train.global_batch)});
  }
  set_scalars("hyper", update_hyper(config_, number - 1));
  if (session_->has_input("train", "update_step")) {
    session_->set_input("train", "update_step", &number, sizeof(number));
  }
  session_->run("train");
  WEFT_CHECK(output("train", "apply").get(0) == 1, "ModelRun", "step {} was not applied", number);
  double loss = 0;
  for (int64_t i = 0; i < config_.train.accumulation; ++i) {
    loss += output("train", fmt::format("loss.{}", i)).get(0);
  }
  return loss / valid;
}

StepRecord ModelRun::experts() {
  StepRecord record;
  read_expert_stats(*session_, spec_, config_.train.global_batch, record);
  return record;
}

double ModelRun::norm() { return output("train", "norm").get(0); }

Tensors ModelRun::gradients() {
  Tensors result;
  for (const PlanState& state : plan_->states) {
    const std::string name = state.name + "@grad";
    if (!plan_->program("train").outputs.contains(name)) continue;
    place(result, state, output("train", name));
  }
  return result;
}

Tensors ModelRun::weights() {
  Tensors result;
  for (size_t i = 0; i < plan_->states.size(); ++i) {
    const PlanState& state = plan_->states[i];
    if (!state.slot.empty() || !is_stored(state)) continue;
    HostTensor value(state.type);
    session_->read_state(static_cast<int>(i), value.bytes.data());
    place(result, state, value);
  }
  return result;
}

double ModelRun::eval_loss_sum(const HostTensor& tokens, const HostTensor& labels) {
  double sum = 0;
  for (int64_t i = 0; i < config_.train.accumulation; ++i) {
    set_rows("eval", "", i, tokens, &labels);
    session_->run("eval");
    sum += output("eval", "loss").get(0);
  }
  return sum;
}

HostTensor ModelRun::logits(const HostTensor& tokens) {
  HostTensor all;
  for (int64_t i = 0; i < config_.train.accumulation; ++i) {
    set_rows("logits", "", i, tokens, nullptr);
    session_->run("logits");
    const HostTensor piece = output("logits", "logits");
    if (!all.present()) {
      const Shape& tokens_shape = tokens.type.shape;
      all = HostTensor({DType::f64, {tokens_shape[0], tokens_shape[1], piece.type.shape[2]}});
    }
    paste(all, {i * config_.train.micro_batch, 0, 0}, piece);
  }
  return all;
}

void ModelRun::set(std::string_view program, const std::string& input, const HostTensor& value) {
  session_->set_input(program, input, value.bytes.data(), value.type.bytes());
}

void ModelRun::set_scalars(const std::string& input, const std::vector<double>& values) {
  const DType dtype = config_.precision.compute == "fp64" ? DType::f64 : DType::f32;
  set("train", input, HostTensor({dtype, {static_cast<int64_t>(values.size())}}, values));
}

void ModelRun::set_rows(std::string_view program, const std::string& suffix, int64_t micro,
                        const HostTensor& tokens, const HostTensor* labels) {
  const TensorType type{DType::i32, {config_.train.micro_batch, config_.data.seq_len}};
  const Shape begin = {micro * config_.train.micro_batch, 0};
  HostTensor positions(type);
  for (int64_t i = 0; i < positions.size(); ++i) {
    positions.set(i, static_cast<double>(i % config_.data.seq_len));
  }
  if (session_->has_input(program, "lengths" + suffix)) {
    const TensorType rows{DType::i32, {config_.train.micro_batch}};
    set(program, "lengths" + suffix,
        HostTensor(rows, std::vector<double>(static_cast<size_t>(config_.train.micro_batch),
                                             static_cast<double>(config_.data.seq_len))));
  }
  set(program, "tokens" + suffix, cut(tokens, begin, type));
  set(program, "positions" + suffix, positions);
  if (labels != nullptr) set(program, "labels" + suffix, cut(*labels, begin, type));
}

HostTensor ModelRun::output(std::string_view program, const std::string& name) {
  const int32_t buffer = plan_->program(program).outputs.at(name);
  HostTensor value(plan_->buffers[static_cast<size_t>(buffer)].type);
  session_->get_output(program, name, value.bytes.data(), value.type.bytes());
  return value;
}

}  // namespace weft::test
