#include "weft/runtime/state_init.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

#include "weft/base/check.h"
#include "weft/base/rng.h"

namespace weft {

void parallel_pieces(int64_t count, const std::function<void(int64_t, int64_t)>& body) {
  constexpr int64_t kSmallest = 1 << 14;  // below this a thread costs more than it brings
  const auto cores = static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  const int64_t pieces = std::clamp<int64_t>(count / kSmallest, 1, cores);
  const int64_t step = (count + pieces - 1) / pieces;
  std::vector<std::exception_ptr> errors(static_cast<size_t>(pieces));
  const auto run = [&](int64_t piece) {
    try {
      body(piece * step, std::min(count, (piece + 1) * step));
    } catch (...) {
      errors[static_cast<size_t>(piece)] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int64_t piece = 1; piece * step < count; ++piece) threads.emplace_back(run, piece);
    run(0);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

namespace {

/// The box whose flattening the elements of a state are a range of, and where that begins.
struct Range {
  const Shape& extent;
  int64_t begin = 0;
};

Range range_of(const PlanState& state) {
  const LogicalSlice& logical = state.logical;
  if (logical.flat_begin < 0) return {state.type.shape, 0};
  return {logical.extent, logical.flat_begin};
}

/// Length of the runs of elements that are consecutive in the logical tensor too.
int64_t contiguous_run(const PlanState& state) {
  const Shape& shape = range_of(state).extent;
  if (state.logical.shape.empty() || shape.empty())
    return std::max<int64_t>(1, num_elements(shape));
  size_t dim = shape.size() - 1;
  int64_t run = shape[dim];
  for (; dim > 0 && shape[dim] == state.logical.shape[dim]; --dim) run *= shape[dim - 1];
  return std::max<int64_t>(1, run);
}

}  // namespace

int64_t logical_index(const PlanState& state, int64_t index) {
  const LogicalSlice& logical = state.logical;
  const Range range = range_of(state);
  const Shape& shape = range.extent;
  index += range.begin;
  if (logical.shape.empty()) return index;
  WEFT_CHECK(logical.shape.size() == shape.size() && logical.begin.size() == shape.size(),
             "init_states", "state {} {} is a piece of {} {}", state.name, shape_text(shape),
             logical.name, shape_text(logical.shape));
  int64_t result = 0;
  int64_t stride = 1;
  for (size_t dim = shape.size(); dim-- > 0;) {
    result += (index % shape[dim] + logical.begin[dim]) * stride;
    index /= shape[dim];
    stride *= logical.shape[dim];
  }
  return result;
}

PlanState drawn_for_copy(const PlanState& copy, const PlanState& source) {
  WEFT_CHECK(source.init.kind != StateInit::Kind::copy && !copy.logical.name.empty() &&
                 source.logical.name == copy.logical.name &&
                 source.logical.shape == copy.logical.shape,
             "init_states", "state {} copies {}, expected a piece of the same logical tensor",
             copy.name, source.name);
  PlanState drawn = copy;
  drawn.type.dtype = source.type.dtype;
  drawn.init = source.init;
  return drawn;
}

void fill_state(const PlanState& state, uint64_t seed, int64_t begin, int64_t count,
                std::byte* out) {
  const DType dtype = state.type.dtype;
  const StateInit::Kind kind = state.init.kind;
  WEFT_CHECK(kind != StateInit::Kind::copy, "init_states", "state {} is a copy", state.name);
  if (kind == StateInit::Kind::zeros) {
    std::memset(out, 0, static_cast<size_t>(count * dtype_size(dtype)));
    return;
  }
  WEFT_CHECK(is_floating(dtype), "init_states", "state {} has dtype {}, expected a floating one",
             state.name, dtype_name(dtype));
  if (kind == StateInit::Kind::ones) {
    for (int64_t i = 0; i < count; ++i) store_element(out, dtype, i, 1.0);
    return;
  }
  const RngStream stream(seed, state.logical.name.empty() ? state.name : state.logical.name);
  const double stddev = state.init.stddev;
  const int64_t run = contiguous_run(state);
  const int64_t first = range_of(state).begin + begin;
  double drawn[512];
  for (int64_t i = 0; i < count;) {
    const auto element = static_cast<uint64_t>(logical_index(state, begin + i));
    const int64_t size = std::min({count - i, run - (first + i) % run, int64_t{512}});
    stream.normals(element, size, drawn);
    for (int64_t k = 0; k < size; ++k) drawn[k] *= stddev;
    if (dtype == DType::f32) {
      float* to = reinterpret_cast<float*>(out) + i;
      for (int64_t k = 0; k < size; ++k) to[k] = static_cast<float>(drawn[k]);
    } else {
      convert_elements(drawn, DType::f64, out + i * dtype_size(dtype), dtype, size);
    }
    i += size;
  }
}

}  // namespace weft
