#include "weft/train/feed.h"

#include "weft/base/check.h"

namespace weft {
namespace {

const PlanBuffer& operand(const Session& session, std::string_view program, std::string_view name,
                          bool input) {
  const PlanProgram& p = session.plan().program(program);
  const auto& table = input ? p.inputs : p.outputs;
  const auto at = table.find(std::string(name));
  WEFT_CHECK(at != table.end(), "feed", "program {} has no operand {}", program, name);
  return session.plan().buffers[static_cast<size_t>(at->second)];
}

int64_t axis_size(const Plan& plan, const std::string& axis) {
  const auto found = plan.mesh.find(axis);
  return found == plan.mesh.end() ? 1 : found->second;
}

int64_t axis_coordinate(const Plan& plan, const std::string& axis) {
  const auto found = plan.coords.find(axis);
  return found == plan.coords.end() ? 0 : found->second;
}

}  // namespace

void feed_rows(Session& session, std::string_view program, const GlobalBatch& global, int64_t first,
               int64_t batch, const std::string& suffix) {
  WEFT_CHECK(first + batch <= global.sequences, "feed", "rows {} to {} of {}", first, first + batch,
             global.sequences);
  const auto ids = [&](const char* name, const std::vector<int32_t>& values) {
    if (!session.has_input(program, name + suffix)) return;
    session.set_input(program, name + suffix, values.data() + first * global.seq_len,
                      batch * global.seq_len * static_cast<int64_t>(sizeof(int32_t)));
  };
  ids("tokens", global.tokens);
  ids("labels", global.labels);
  ids("positions", global.positions);
  ids("segments", global.segments);
  if (session.has_input(program, "lengths" + suffix)) {
    session.set_input(program, "lengths" + suffix, global.lengths.data() + first,
                      batch * static_cast<int64_t>(sizeof(int32_t)));
  }
  if (session.has_input(program, "samples" + suffix)) {
    session.set_input(program, "samples" + suffix, global.samples.data() + first,
                      batch * static_cast<int64_t>(sizeof(int64_t)));
  }
}

int64_t data_ways(const Plan& plan) { return axis_size(plan, "data") * axis_size(plan, "expert"); }

int64_t first_row(const Plan& plan, int64_t micro, int64_t rows) {
  const int64_t coordinate =
      axis_coordinate(plan, "data") * axis_size(plan, "expert") + axis_coordinate(plan, "expert");
  return (micro * data_ways(plan) + coordinate) * rows;
}

void feed_scalars(Session& session, std::string_view program, std::string_view input,
                  const std::vector<double>& values) {
  const TensorType& type = operand(session, program, input, true).type;
  std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
  WEFT_CHECK(type.elements() == static_cast<int64_t>(values.size()), "feed",
             "{} has {} elements, got {}", input, type.elements(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    store_element(bytes.data(), type.dtype, static_cast<int64_t>(i), values[i]);
  }
  session.set_input(program, input, bytes.data(), type.bytes());
}

std::vector<double> read_values(Session& session, std::string_view program,
                                std::string_view output) {
  const TensorType& type = operand(session, program, output, false).type;
  std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
  session.get_output(program, output, bytes.data(), type.bytes());
  std::vector<double> values;
  for (int64_t i = 0; i < type.elements(); ++i) {
    values.push_back(load_element(bytes.data(), type.dtype, i));
  }
  return values;
}

double read_scalar(Session& session, std::string_view program, std::string_view output) {
  const TensorType& type = operand(session, program, output, false).type;
  std::byte bytes[8] = {};
  WEFT_CHECK(type.elements() == 1, "feed", "{} is not a scalar", output);
  session.get_output(program, output, bytes, type.bytes());
  if (type.dtype == DType::i32) {
    int32_t value = 0;
    std::memcpy(&value, bytes, sizeof(value));
    return value;
  }
  return load_element(bytes, type.dtype, 0);
}

}  // namespace weft
