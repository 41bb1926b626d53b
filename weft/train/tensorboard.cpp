#include "weft/train/tensorboard.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <cstring>

#include "weft/base/host_name.h"
#include "weft/train/crc32c.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little, "records are little-endian");

constexpr std::string_view kPrefix = "events.out.tfevents.";

// Field numbers of tensorflow's event.proto and summary.proto.
namespace event_field {
constexpr int wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7;
}
namespace summary_field {
constexpr int value = 1, tag = 1, simple_value = 2;
}
constexpr int kSessionStatus = 1, kSessionStart = 1;

template <class T>
std::string raw_bytes(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
  return out;
}

enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
std::string key(int field, WireType type) {
  return varint(static_cast<uint64_t>(field << 3 | type));
}

std::string int_field(int field, int64_t value) {
  return key(field, kVarint) + varint(static_cast<uint64_t>(value));
}
std::string double_field(int field, double value) {
  return key(field, kFixed64) + raw_bytes(value);
}
std::string float_field(int field, float value) { return key(field, kFixed32) + raw_bytes(value); }
std::string bytes_field(int field, std::string_view value) {
  return key(field, kBytes) + varint(value.size()) + std::string(value);
}

std::string event_head(double wall_time, int64_t step) {
  std::string out = double_field(event_field::wall_time, wall_time);
  if (step != 0) out += int_field(event_field::step, step);  // proto3 leaves zeros out
  return out;
}

std::string masked_crc(std::string_view data) {
  const uint32_t crc = crc32c(data);
  return raw_bytes(((crc >> 15) | (crc << 17)) + 0xa282ead8u);
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Readers take the files of a folder in the order of their names: a new one must come last, also
/// when the clock stands still or was set back.
std::string new_file_path(const std::string& folder, FileSystem& files) {
  int64_t second = static_cast<int64_t>(unix_seconds());
  for (const std::string& name : files.list(folder)) {
    if (!name.starts_with(kPrefix)) continue;
    int64_t other = 0;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), other);
    second = std::max(second, other + 1);
  }
  return join_path(folder,
                   fmt::format("{}{:010}.{}.{}.0", kPrefix, second, host_name(), ::getpid()));
}

File make_file(const std::string& folder, FileSystem& files) {
  files.make_folders(folder);
  return files.open(new_file_path(folder, files), OpenMode::create);
}

}  // namespace

std::string tensorboard_record(std::string_view data) {
  const std::string length = raw_bytes(static_cast<uint64_t>(data.size()));
  return length + masked_crc(length) + std::string(data) + masked_crc(data);
}

std::string tensorboard_version_event(double wall_time) {
  return event_head(wall_time, 0) + bytes_field(event_field::file_version, "brain.Event:2");
}

std::string tensorboard_restart_event(double wall_time, int64_t step) {
  return event_head(wall_time, step) +
         bytes_field(event_field::session_log, int_field(kSessionStatus, kSessionStart));
}

std::string tensorboard_scalar_event(double wall_time, int64_t step, std::string_view tag,
                                     float value) {
  const std::string entry =
      bytes_field(summary_field::tag, tag) + float_field(summary_field::simple_value, value);
  return event_head(wall_time, step) +
         bytes_field(event_field::summary, bytes_field(summary_field::value, entry));
}

TensorBoardWriter::TensorBoardWriter(const std::string& folder, int64_t first_step,
                                     FileSystem& files)
    : file_(make_file(folder, files)) {
  const double now = unix_seconds();
  std::string head = tensorboard_record(tensorboard_version_event(now));
  if (first_step > 1) head += tensorboard_record(tensorboard_restart_event(now, first_step));
  append(head);
}

void TensorBoardWriter::scalar(int64_t step, std::string_view tag, double value) {
  append(tensorboard_record(
      tensorboard_scalar_event(unix_seconds(), step, tag, static_cast<float>(value))));
}

void TensorBoardWriter::step(const StepRecord& r) {
  struct Scalar {
    std::string_view tag;
    double value;
  };
  const std::array scalars = {
      Scalar{"train/loss", r.loss},
      Scalar{"train/grad_norm", r.grad_norm},
      Scalar{"train/lr", r.lr},
      Scalar{"train/tokens_per_s", r.tokens_per_s},
      Scalar{"train/step_ms", r.step_ms},
      Scalar{"train/mfu", r.mfu},
      Scalar{"train/loss_scale", r.loss_scale},
      Scalar{"train/epoch", static_cast<double>(r.epoch)},
      Scalar{"memory/device_bytes", static_cast<double>(r.device_peak_bytes)},
      Scalar{"memory/host_bytes", static_cast<double>(r.host_bytes)},
      Scalar{"memory/nvme_bytes", static_cast<double>(r.nvme_bytes)}};
  const double now = unix_seconds();
  std::string records;
  const auto add = [&](std::string_view tag, double value) {
    records +=
        tensorboard_record(tensorboard_scalar_event(now, r.step, tag, static_cast<float>(value)));
  };
  for (const Scalar& scalar : scalars) add(scalar.tag, scalar.value);
  if (r.has_experts) {
    add("train/aux_loss", r.aux_loss);
    add("train/dropped_tokens", static_cast<double>(r.dropped_tokens));
  }
  append(records);
}

void TensorBoardWriter::eval(const EvalRecord& r) {
  scalar(r.step, "eval/loss", r.loss);
  scalar(r.step, "eval/perplexity", r.perplexity);
}

void TensorBoardWriter::append(std::string_view bytes) {
  file_.write_at(end_, bytes.data(), static_cast<int64_t>(bytes.size()));
  end_ += static_cast<int64_t>(bytes.size());
}

}  // namespace weft
