#include "weft/runtime/session.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "weft/base/check.h"
#include "weft/plan/kernel_key.h"
#include "weft/runtime/lanes.h"
#include "weft/runtime/state_init.h"
#include "weft/runtime/tier_memory.h"

namespace weft {
namespace {

/// Elements that initialisation and conversion work on at a time: small enough for the cache.
constexpr int64_t kChunkElements = 1 << 15;

using KernelMap =
    std::unordered_map<KernelSpec, std::unique_ptr<Kernel>, KernelSpecHash, KernelSpecEqual>;

size_t at(int32_t index) { return static_cast<size_t>(index); }

}  // namespace

struct Session::Impl {
  Impl(const Plan& the_plan, Backend& the_backend, Communicator* the_communicator,
       const ColdOptions* cold)
      : plan(the_plan),
        backend(the_backend),
        communicator(the_communicator),
        memory(the_plan, the_backend, cold),
        executor(the_plan, the_communicator) {}

  std::byte* address(int32_t buffer) const { return memory.address(buffer); }

  /// One kernel per distinct description and lane: lanes may run at the same time.
  Kernel* prepare(const PlanStep& step) {
    KernelMap& kernels = kernels_of_lane[static_cast<size_t>(step.lane)];
    KernelSpec spec{step.op, step.attrs, step.input_types, step.output_types};
    const auto found = kernels.find(spec);
    if (found != kernels.end()) return found->second.get();
    const bool collective = op_def(step.op).collective;
    std::unique_ptr<Kernel> kernel = collective ? prepare_collective(spec) : backend.prepare(spec);
    WEFT_CHECK(kernel != nullptr, "session", "{} {} prepared no kernel for {}",
               collective ? "communicator" : "backend",
               collective ? communicator->name() : backend.name(), op_def(step.op).name);
    return kernels.emplace(std::move(spec), std::move(kernel)).first->second.get();
  }

  std::unique_ptr<Kernel> prepare_collective(const KernelSpec& spec) {
    const std::string axis = spec.attrs.get_string("axis");
    WEFT_CHECK(communicator != nullptr, "session",
               "the plan has {} over axis {}, expected a communicator", op_def(spec.op).name, axis);
    WEFT_CHECK(communicator->rank() == plan.rank && communicator->world() == plan.world, "session",
               "got the plan of rank {} of {}, expected that of rank {} of {}", plan.rank,
               plan.world, communicator->rank(), communicator->world());
    const auto group = plan.groups.find(axis);
    WEFT_CHECK(group != plan.groups.end(), "session", "the plan has no group of axis {}", axis);
    return communicator->prepare(spec, group->second);
  }

  void bind(const PlanProgram& program, BoundProgram& bound) {
    bound.program = &program;
    size_t num_inputs = 0;
    size_t num_outputs = 0;
    for (const PlanStep& step : program.steps) {
      num_inputs += step.inputs.size();
      num_outputs += step.outputs.size();
    }
    // Reserved in full, so that the spans below stay valid.
    bound.inputs.reserve(num_inputs);
    bound.outputs.reserve(num_outputs);
    for (size_t i = 0; i < program.steps.size(); ++i) {
      const PlanStep& step = program.steps[i];
      BoundStep entry;
      if (op_def(step.op).transfer) {
        transfers.push_back(memory.transfer(step));
        entry.transfer = transfers.back().get();
        entry.kernel = entry.transfer;
      } else {
        entry.kernel = prepare(step);
      }
      const size_t first_input = bound.inputs.size();
      for (int32_t id : step.inputs) bound.inputs.push_back(id < 0 ? nullptr : address(id));
      const size_t first_output = bound.outputs.size();
      for (int32_t id : step.outputs) bound.outputs.push_back(id < 0 ? nullptr : address(id));
      entry.args.inputs = {bound.inputs.data() + first_input, step.inputs.size()};
      entry.args.outputs = {bound.outputs.data() + first_output, step.outputs.size()};
      entry.args.workspace = step.workspace < 0 ? nullptr : address(step.workspace);
      entry.waits = step.waits;
      entry.index = static_cast<int32_t>(i);
      entry.lane = step.lane;
      entry.is_collective = op_def(step.op).collective;
      entry.is_update = step.phase == Phase::update || step.phase == Phase::verdict;
      bound.lanes[static_cast<size_t>(step.lane)].push_back(entry);
    }
  }

  const BoundProgram& find(std::string_view name) const {
    for (const BoundProgram& bound : programs) {
      if (bound.program->name == name) return bound;
    }
    throw BugError("session", fmt::format("got program {}, which the plan does not have", name));
  }

  /// The buffer of a named input or output, after a check of its size.
  int32_t named_buffer(const std::map<std::string, int32_t>& names, std::string_view program,
                       std::string_view name, int64_t bytes) const {
    const auto found = names.find(std::string(name));
    WEFT_CHECK(found != names.end(), "session", "program {} has no value {}", program, name);
    const int64_t expected = plan.buffers[at(found->second)].type.bytes();
    WEFT_CHECK(bytes == expected, "session", "got {} bytes for {} of program {}, expected {}",
               bytes, name, program, expected);
    return found->second;
  }

  const PlanState& source_of(const PlanState& state) const {
    const PlanState* source = plan.find_state(state.init.source);
    WEFT_CHECK(source != nullptr && source->init.kind != StateInit::Kind::copy, "session",
               "state {} copies {}, expected a state with a value of its own", state.name,
               state.init.source);
    return *source;
  }

  /// Runs body over ranges of elements, in parallel where both states allow it: the cold tier takes
  /// one reader and one writer.
  template <class Body>
  void in_pieces(const PlanState& a, const PlanState& b, const Body& body) {
    const bool cold = memory.tier(a.buffer) == Tier::nvme || memory.tier(b.buffer) == Tier::nvme;
    if (cold) {
      body(int64_t{0}, a.type.elements());
    } else {
      parallel_pieces(a.type.elements(), body);
    }
  }

  /// Fills `state` with the initial value of `drawn`, the same piece in another dtype or itself.
  void init_state(const PlanState& state, const PlanState& drawn, uint64_t seed) {
    const DType from = drawn.type.dtype;
    const int64_t size = dtype_size(state.type.dtype);
    in_pieces(state, state, [&](int64_t first, int64_t last) {
      std::vector<std::byte> chunk(static_cast<size_t>(kChunkElements * size));
      std::vector<std::byte> draw(static_cast<size_t>(kChunkElements * dtype_size(from)));
      for (int64_t begin = first; begin < last; begin += kChunkElements) {
        const int64_t count = std::min(kChunkElements, last - begin);
        if (drawn.init.kind == StateInit::Kind::normal || begin == first) {
          if (from == state.type.dtype) {
            fill_state(drawn, seed, begin, count, chunk.data());
          } else {
            fill_state(drawn, seed, begin, count, draw.data());
            convert_elements(draw.data(), from, chunk.data(), state.type.dtype, count);
          }
        }
        memory.write(state.buffer, begin * size, chunk.data(), count * size);
      }
    });
  }

  void refresh_copy(const PlanState& state, const PlanState& source) {
    const DType from_dtype = source.type.dtype;
    const DType to_dtype = state.type.dtype;
    const int64_t from_size = dtype_size(from_dtype);
    const int64_t to_size = dtype_size(to_dtype);
    in_pieces(state, source, [&](int64_t first, int64_t last) {
      std::vector<std::byte> from(static_cast<size_t>(kChunkElements * from_size));
      std::vector<std::byte> to(static_cast<size_t>(kChunkElements * to_size));
      for (int64_t begin = first; begin < last; begin += kChunkElements) {
        const int64_t count = std::min(kChunkElements, last - begin);
        memory.read(source.buffer, begin * from_size, from.data(), count * from_size);
        convert_elements(from.data(), from_dtype, to.data(), to_dtype, count);
        memory.write(state.buffer, begin * to_size, to.data(), count * to_size);
      }
    });
  }

  const Plan& plan;
  Backend& backend;
  Communicator* communicator;
  TierMemory memory;
  std::vector<std::unique_ptr<Transfer>> transfers;
  std::array<KernelMap, kNumLanes> kernels_of_lane;
  std::vector<BoundProgram> programs;
  std::vector<TraceEvent>* trace = nullptr;
  bool untouched = true;  // no state was ever written
  LaneExecutor executor;  // last: its threads end before anything they use
};

Session::Session(const Plan& plan, Backend& backend, Communicator* communicator,
                 const ColdOptions* cold)
    : plan_(plan), impl_(std::make_unique<Impl>(plan, backend, communicator, cold)) {
  impl_->programs.resize(plan.programs.size());
  for (size_t i = 0; i < plan.programs.size(); ++i) {
    impl_->bind(plan.programs[i], impl_->programs[i]);
  }
}

Session::~Session() = default;

void Session::set_input(std::string_view program, std::string_view input, const void* data,
                        int64_t bytes) {
  const PlanProgram& entry = *impl_->find(program).program;
  const int32_t buffer = impl_->named_buffer(entry.inputs, program, input, bytes);
  impl_->backend.copy_to_device(impl_->address(buffer), data, bytes);
}

void Session::get_output(std::string_view program, std::string_view output, void* data,
                         int64_t bytes) {
  const PlanProgram& entry = *impl_->find(program).program;
  const int32_t buffer = impl_->named_buffer(entry.outputs, program, output, bytes);
  impl_->backend.copy_to_host(data, impl_->address(buffer), bytes);
}

bool Session::has_input(std::string_view program, std::string_view input) const {
  return impl_->find(program).program->inputs.contains(std::string(input));
}

bool Session::has_output(std::string_view program, std::string_view output) const {
  return impl_->find(program).program->outputs.contains(std::string(output));
}

void Session::read_state(int index, void* data) {
  const PlanState& state = plan_.states.at(static_cast<size_t>(index));
  impl_->memory.read(state.buffer, 0, data, state.type.bytes());
}

void Session::write_state(int index, const void* data) {
  impl_->untouched = false;
  const PlanState& state = plan_.states.at(static_cast<size_t>(index));
  impl_->memory.write(state.buffer, 0, data, state.type.bytes());
}

void Session::init_states(uint64_t seed) {
  for (const PlanState& state : plan_.states) {
    const bool zeroed =
        impl_->untouched && impl_->memory.made_zeroed(impl_->memory.tier(state.buffer));
    if (state.init.kind == StateInit::Kind::zeros && zeroed) continue;
    if (state.init.kind != StateInit::Kind::copy) {
      impl_->init_state(state, state, seed);
      continue;
    }
    const PlanState& source = impl_->source_of(state);
    if (!same_piece(state, source)) {
      impl_->init_state(state, drawn_for_copy(state, source), seed);
    }
  }
  impl_->untouched = false;
  refresh_copies();
}

void Session::refresh_copies() {
  for (const PlanState& state : plan_.states) {
    if (state.init.kind != StateInit::Kind::copy) continue;
    const PlanState& source = impl_->source_of(state);
    if (same_piece(state, source)) impl_->refresh_copy(state, source);
  }
}

RunTimes Session::run(std::string_view program) {
  const BoundProgram& bound = impl_->find(program);
  std::vector<TraceEvent>* trace = impl_->trace;
  impl_->trace = nullptr;
  impl_->untouched = false;
  if (trace != nullptr) trace->assign(bound.program->steps.size(), {});
  return impl_->executor.run(bound, trace);
}

void Session::record_trace(std::vector<TraceEvent>* events) { impl_->trace = events; }

int64_t Session::used_bytes(Tier tier) const { return impl_->memory.used_bytes(tier); }

TierTraffic Session::tier_traffic() const {
  const ColdCounters cold = impl_->memory.cold_counters();
  return {cold.bytes_read, cold.bytes_written};
}

}  // namespace weft
