#include "tests/layout/harness.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include "tests/layout/assembly.h"
#include "tests/layout/order.h"
#include "weft/backend/backend.h"
#include "weft/base/check.h"
#include "weft/base/rng.h"
#include "weft/comm/launch.h"
#include "weft/compile/late_update.h"
#include "weft/compile/offload.h"
#include "weft/compile/pipeline.h"
#include "weft/compile/step_graph.h"
#include "weft/optim/optimizer.h"
#include "weft/runtime/session.h"
#include "weft/train/pending_update.h"

namespace weft::test {
namespace {

constexpr int32_t kIgnored = -100;

int64_t count_valid(const HostTensor& labels) {
  int64_t valid = 0;
  for (int64_t i = 0; i < labels.size(); ++i) valid += labels.get(i) == kIgnored ? 0 : 1;
  return valid;
}

CompileOptions rank_options(const LayoutJob& job, int rank) {
  CompileOptions options;
  options.rank = rank;
  options.eval = job.evaluate;
  options.all_logits = true;
  if (job.evaluate) options.logits_seq_len = job.batches.at(0).tokens.type.shape[1];
  return options;
}

ColdOptions cold_options(const Config& config) {
  ColdOptions options;
  options.folders = config.memory.nvme;
  options.run = fmt::format("layout-{}", getpid());
  return options;
}

/// Gradients that wait for a late update and pieces that lie ready are no part of the model.
bool is_pending(const PlanState& state) {
  return state.name.ends_with(kPendingSuffix) || state.name.find(kAheadMark) != std::string::npos;
}

/// What one rank saw.
struct RankResult {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<std::vector<double>> router_stats;
  double eval_loss = 0;
  std::vector<double> row_logits;
  std::vector<HostTensor> before;  // per state of the plan
  std::vector<HostTensor> after;
  Plan plan;
  std::map<std::string, int64_t> received;
  std::vector<std::string> faults;
};

class RankRun {
 public:
  RankRun(const LayoutJob& job, const Config& config, Communicator& ranks)
      : job_(job), config_(config), backend_(make_backend(job.backend, {})), ranks_(ranks) {
    result_.plan = compile(config, job.spec, *backend_, rank_options(job, ranks.rank()));
    const ColdOptions cold = cold_options(config);
    session_ = std::make_unique<Session>(result_.plan, *backend_, &ranks,
                                         cold.folders.empty() ? nullptr : &cold);
    session_->init_states(job.seed);
    if (job.initial != nullptr) write_initial();
    pending_ = std::make_unique<PendingUpdate>(*session_);
    check_memory();
  }

  RankResult run(int64_t steps) {
    result_.before = read_states();
    const TierTraffic before = session_->tier_traffic();
    for (int64_t i = 0; i < steps; ++i) step(i);
    check_traffic(before, steps);
    result_.received = ranks_.received();
    pending_->flush();
    result_.after = read_states();
    if (job_.evaluate) evaluate(job_.batches.at(0));
    session_.reset();
    return std::move(result_);
  }

 private:
  void write_initial() {
    for (size_t i = 0; i < result_.plan.states.size(); ++i) {
      const PlanState& state = result_.plan.states[i];
      if (!state.slot.empty()) continue;
      const HostTensor piece = take_piece(job_.initial->at(state.logical.name), state);
      session_->write_state(static_cast<int>(i), piece.bytes.data());
    }
  }

  /// Planned bytes are used bytes.
  void check_memory() {
    for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
      const int64_t planned = result_.plan.tiers[static_cast<size_t>(tier)].peak_bytes;
      if (session_->used_bytes(tier) == planned) continue;
      result_.faults.push_back(fmt::format("rank {} uses {} bytes of tier {}, planned {}",
                                           ranks_.rank(), session_->used_bytes(tier),
                                           tier_name(tier), planned));
    }
  }

  void check_traffic(const TierTraffic& before, int64_t steps) {
    const TierTraffic now = session_->tier_traffic();
    const PlanProgram& train = result_.plan.program("train");
    const auto check = [&](Lane lane, int64_t moved) {
      // What the first step finds ready was read before it.
      const int64_t primed = steps > 0 ? lane_bytes_of("prime", lane) : 0;
      const int64_t planned = lane_bytes(train, lane) * steps + primed;
      if (moved == planned) return;
      result_.faults.push_back(fmt::format("rank {} moved {} bytes over {}, planned {}",
                                           ranks_.rank(), moved, lane_name(lane), planned));
    };
    check(Lane::nvme_read, now.nvme_read - before.nvme_read);
    check(Lane::nvme_write, now.nvme_write - before.nvme_write);
  }

  int64_t lane_bytes_of(std::string_view name, Lane lane) const {
    for (const PlanProgram& program : result_.plan.programs) {
      if (program.name == name) return lane_bytes(program, lane);
    }
    return 0;
  }

  std::vector<HostTensor> read_states() {
    std::vector<HostTensor> values;
    for (size_t i = 0; i < result_.plan.states.size(); ++i) {
      HostTensor value(result_.plan.states[i].type);
      session_->read_state(static_cast<int>(i), value.bytes.data());
      values.push_back(std::move(value));
    }
    return values;
  }

  void step(int64_t index) {
    const Batch& batch = job_.batches[static_cast<size_t>(index)];
    const auto valid = static_cast<double>(std::max<int64_t>(1, count_valid(batch.labels)));
    for (int64_t i = 0; i < config_.train.accumulation; ++i) {
      feed_micro("train", fmt::format(".{}", i), batch, first_row(i));
    }
    set_scalars("grad_scale", {1.0 / valid});
    set_scalars("inv_scale", {1.0});
    if (session_->has_input("train", "aux_scale")) {
      set_scalars("aux_scale", {aux_share(job_.spec, config_.train.global_batch)});
    }
    pending_->feed(update_hyper(config_, index), index + 1);
    if (session_->has_input("train", "step")) {
      const int64_t number = index + 1;
      session_->set_input("train", "step", &number, sizeof(number));
    }
    session_->run("train");
    WEFT_CHECK(job_.may_skip || output("apply").get(0) == 1, "layout", "step {} was not applied",
               index + 1);
    double loss = 0;
    for (int64_t i = 0; i < config_.train.accumulation; ++i) {
      loss += output(fmt::format("loss.{}", i)).get(0);
    }
    result_.losses.push_back(loss / valid);
    result_.norms.push_back(output("norm").get(0));
    result_.router_stats.clear();
    for (int64_t layer = 0; layer < job_.spec.num_layers; ++layer) {
      if (!is_sparse(job_.spec, layer)) continue;
      result_.router_stats.push_back(output(router_stats_output(layer)).values());
    }
  }

  void evaluate(const Batch& batch) {
    for (int64_t i = 0; i < config_.train.accumulation; ++i) {
      feed_micro("eval", "", batch, first_row(i));
      session_->run("eval");
      result_.eval_loss += output("loss", "eval").get(0);
    }
    result_.eval_loss /= static_cast<double>(count_valid(batch.labels));
    feed_micro("logits", "", batch, 0);
    session_->run("logits");
    result_.row_logits = output("logits", "logits").values();
    result_.row_logits.resize(static_cast<size_t>(config_.data.seq_len * job_.spec.vocab_size));
  }

  /// A micro-batch has micro_batch rows of each data coordinate, in their order.
  int64_t first_row(int64_t micro) const {
    const auto& coords = result_.plan.coords;
    const int64_t coordinate = coords.at("data") * config_.parallel.expert + coords.at("expert");
    return (micro * config_.parallel.data + coordinate) * config_.train.micro_batch;
  }

  void feed_micro(const std::string& program, const std::string& suffix, const Batch& batch,
                  int64_t first) {
    const int64_t rows = config_.train.micro_batch;
    const int64_t seq_len = config_.data.seq_len;
    const TensorType type{DType::i32, {rows, seq_len}};
    HostTensor positions(type);
    for (int64_t i = 0; i < positions.size(); ++i) {
      positions.set(i, static_cast<double>(i % seq_len));
    }
    const auto set = [&](const std::string& name, const void* data, int64_t bytes) {
      if (!session_->has_input(program, name + suffix)) return;
      session_->set_input(program, name + suffix, data, bytes);
    };
    const HostTensor tokens = cut(batch.tokens, {first, 0}, type);
    const HostTensor labels = cut(batch.labels, {first, 0}, type);
    set("tokens", tokens.bytes.data(), type.bytes());
    set("labels", labels.bytes.data(), type.bytes());
    set("positions", positions.bytes.data(), type.bytes());
    std::vector<int32_t> lengths = batch.lengths;
    lengths.resize(batch.samples.size(), static_cast<int32_t>(seq_len));
    set("lengths", lengths.data() + first, rows * static_cast<int64_t>(sizeof(int32_t)));
    set("samples", batch.samples.data() + first, rows * static_cast<int64_t>(sizeof(int64_t)));
  }

  void set_scalars(const std::string& input, const std::vector<double>& values) {
    const DType dtype = config_.precision.compute == "fp64" ? DType::f64 : DType::f32;
    const HostTensor value({dtype, {static_cast<int64_t>(values.size())}}, values);
    session_->set_input("train", input, value.bytes.data(), value.type.bytes());
  }

  HostTensor output(const std::string& name, const std::string& program = "train") {
    const int32_t buffer = result_.plan.program(program).outputs.at(name);
    HostTensor value(result_.plan.buffers[static_cast<size_t>(buffer)].type);
    session_->get_output(program, name, value.bytes.data(), value.type.bytes());
    return value;
  }

  const LayoutJob& job_;
  const Config& config_;
  std::unique_ptr<Backend> backend_;
  Communicator& ranks_;
  RankResult result_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<PendingUpdate> pending_;
};

void join_states(const std::vector<RankResult>& ranks, LayoutResult& result) {
  Assembly initial;
  Assembly trained;
  Assembly copies;
  Assembly slots;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const Plan& plan = ranks[r].plan;
    for (size_t i = 0; i < plan.states.size(); ++i) {
      const PlanState& state = plan.states[i];
      if (is_pending(state)) continue;
      const std::string& name = state.logical.name;
      const HostTensor& value = ranks[r].after[i];
      if (!state.slot.empty()) {
        slots.add(name + "@" + state.slot, state, value, r);
      } else if (state.init.kind == StateInit::Kind::copy) {
        copies.add(name, state, value, r);
      } else {
        trained.add(name, state, value, r);
        initial.add(name, state, ranks[r].before[i], r);
      }
    }
  }
  result.initial = initial.finish(result.faults);
  result.trained = trained.finish(result.faults);
  result.copies = copies.finish(result.faults);
  result.slots = slots.finish(result.faults);
}

void check_ranks(const std::vector<RankResult>& ranks, int64_t steps, LayoutResult& result) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    result.faults.insert(result.faults.end(), ranks[r].faults.begin(), ranks[r].faults.end());
    if (ranks[r].losses != ranks[0].losses) {
      result.faults.push_back(fmt::format("rank {} reads other losses than rank 0", r));
    }
    if (ranks[r].norms != ranks[0].norms) {
      result.faults.push_back(fmt::format("rank {} reads other norms than rank 0", r));
    }
    if (ranks[r].router_stats != ranks[0].router_stats) {
      result.faults.push_back(fmt::format("rank {} reads other loads of experts than rank 0", r));
    }
    if (ranks[r].eval_loss != ranks[0].eval_loss || ranks[r].row_logits != ranks[0].row_logits) {
      result.faults.push_back(fmt::format("rank {} evaluates another model than rank 0", r));
    }
    for (const auto& [axis, bytes] : ranks[r].plan.traffic) {
      const auto found = ranks[r].received.find(axis);
      const int64_t received = found == ranks[r].received.end() ? 0 : found->second;
      if (received != bytes * steps) {
        result.faults.push_back(
            fmt::format("rank {} received {} bytes over {} in {} steps, "
                        "planned {} per step",
                        r, received, axis, steps, bytes));
      }
    }
    for (const auto& [axis, bytes] : ranks[r].received) {
      if (bytes > 0 && !ranks[r].plan.traffic.contains(axis)) {
        result.faults.push_back(
            fmt::format("rank {} received {} bytes over {}, planned none", r, bytes, axis));
      }
    }
  }
}

}  // namespace

std::string layout_name(const Layout& layout) {
  return fmt::format("d{}{}o{}{}_z{}_a{}", layout.data,
                     layout.expert > 1 ? fmt::format("e{}", layout.expert) : "", layout.op,
                     layout.sequence ? "s" : "", layout.zero, layout.accumulation);
}

std::vector<Batch> uneven_batches(int64_t steps, int64_t rows, int64_t seq_len, int64_t vocab) {
  const RngStream random(11, "layout tests");
  uint64_t drawn = 0;
  const auto below = [&](int64_t end) {
    return static_cast<double>(random.below(drawn++, static_cast<uint64_t>(end)));
  };
  std::vector<Batch> batches;
  for (int64_t step = 0; step < steps; ++step) {
    Batch batch{
        HostTensor({DType::i32, {rows, seq_len}}), HostTensor({DType::i32, {rows, seq_len}}), {}};
    for (int64_t row = 0; row < rows; ++row) {
      batch.samples.push_back(step * rows + row);
      const int64_t valid = row * 5 % (seq_len + 1);  // from none to all
      for (int64_t i = 0; i < seq_len; ++i) {
        batch.tokens.set(row * seq_len + i, below(vocab));
        const double label = below(vocab);
        batch.labels.set(row * seq_len + i, i < valid ? label : kIgnored);
      }
    }
    batches.push_back(std::move(batch));
  }
  return batches;
}

Config layout_config(const LayoutJob& job, const Layout& layout) {
  const Shape& shape = job.batches.at(0).tokens.type.shape;
  Config config;
  config.seed = job.seed;
  config.model.family = job.spec.family == Family::gpt2  ? "gpt2"
                        : job.spec.family == Family::moe ? "moe"
                                                         : "llama";
  config.data.seq_len = shape[1];
  config.train.steps = static_cast<int64_t>(job.batches.size());
  config.train.global_batch = shape[0];
  config.train.accumulation = layout.accumulation;
  config.train.grad_clip = job.clip;
  config.schedule.name = "constant";
  config.optimizer.name = job.optimizer;
  config.optimizer.lr = job.lr;
  config.optimizer.momentum = job.momentum;
  config.optimizer.weight_decay = job.weight_decay;
  // Where a gradient is nothing but rounding noise, Adam must not make steps of it.
  config.optimizer.eps = 1e-5;
  config.precision.compute = job.compute;
  config.device.backend = job.backend;
  config.device.threads = 1;
  config.parallel.data = layout.data;
  config.parallel.op = layout.op;
  config.parallel.expert = layout.expert;
  config.parallel.sequence = layout.sequence;
  config.parallel.zero = layout.zero;
  config.parallel.shard = job.shard;
  config.recompute = job.recompute;
  config.train.microbatch_order = job.microbatch_order;
  if (job.tune) job.tune(config);
  validate_config(config);
  return config;
}

LayoutResult run_layout(const LayoutJob& job, const Layout& layout, int64_t steps) {
  const Config config = layout_config(job, layout);
  if (steps < 0) steps = static_cast<int64_t>(job.batches.size());
  std::vector<RankResult> ranks(static_cast<size_t>(layout.world()));
  run_ranks({.world = static_cast<int>(layout.world())}, [&](Communicator& communicator) {
    ranks[static_cast<size_t>(communicator.rank())] = RankRun(job, config, communicator).run(steps);
    return 0;
  });
  LayoutResult result;
  result.losses = ranks[0].losses;
  result.norms = ranks[0].norms;
  result.router_stats = ranks[0].router_stats;
  result.eval_loss = ranks[0].eval_loss;
  result.row_logits = ranks[0].row_logits;
  join_states(ranks, result);
  check_ranks(ranks, steps, result);
  for (RankResult& rank : ranks) {
    result.received.push_back(std::move(rank.received));
    result.plans.push_back(std::move(rank.plan));
  }
  for (std::string& fault : order_faults(result.plans)) result.faults.push_back(std::move(fault));
  return result;
}

std::vector<Plan> plan_layout(const LayoutJob& job, const Layout& layout) {
  const Config config = layout_config(job, layout);
  const auto backend = make_backend(job.backend, {});
  std::vector<Plan> plans;
  for (int rank = 0; rank < layout.world(); ++rank) {
    plans.push_back(compile(config, job.spec, *backend, rank_options(job, rank)));
  }
  return plans;
}

}  // namespace weft::test
