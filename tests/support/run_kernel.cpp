#include "tests/support/run_kernel.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "weft/base/check.h"
#include "weft/ir/graph.h"

namespace weft::test {
namespace {

constexpr int64_t kGuard = 256;  // bytes on both sides of every buffer
constexpr std::byte kGuardByte{0xA5};
constexpr std::byte kUnwritten{0xFF};  // NaN in every floating dtype

struct Slot {
  std::string name;
  int64_t offset = -1;  // -1 = absent
  int64_t bytes = 0;
};

class Layout {
 public:
  Slot place(std::string name, int64_t bytes) {
    Slot slot{std::move(name), end_ + kGuard, bytes};
    end_ = round_up(slot.offset + bytes + kGuard, 64);
    return slot;
  }
  int64_t bytes() const { return end_; }

 private:
  int64_t end_ = 0;
};

}  // namespace

KernelSpec make_spec(OpKind op, const Attrs& attrs, const std::vector<HostTensor>& inputs) {
  KernelSpec spec;
  spec.op = op;
  spec.attrs = attrs;
  for (const HostTensor& input : inputs) spec.inputs.push_back(input.type);
  spec.outputs = op_def(op).infer(spec.inputs, attrs);
  return spec;
}

KernelRun run_kernel(Backend& backend, const KernelSpec& spec,
                     const std::vector<HostTensor>& inputs, const std::vector<Alias>& aliases) {
  std::vector<int> source(spec.outputs.size(), -1);  // input whose memory an output uses
  for (const OpAlias& alias : op_def(spec.op).aliases) {
    if (alias.required) source[static_cast<size_t>(alias.output)] = alias.input;
  }
  for (const auto& [input, output] : aliases) source[static_cast<size_t>(output)] = input;

  Layout layout;
  std::vector<Slot> in_slots, out_slots;
  for (size_t i = 0; i < inputs.size(); ++i) {
    in_slots.push_back(inputs[i].present()
                           ? layout.place(fmt::format("input {}", i), inputs[i].type.bytes())
                           : Slot{});
  }
  for (size_t i = 0; i < spec.outputs.size(); ++i) {
    const TensorType& type = spec.outputs[i];
    if (!type.present()) {
      out_slots.push_back(Slot{});
    } else if (source[i] >= 0) {
      const auto from = static_cast<size_t>(source[i]);
      WEFT_CHECK(inputs[from].type.bytes() == type.bytes(), "run_kernel",
                 "output {} does not fit the memory of input {}", i, from);
      out_slots.push_back(in_slots[from]);
    } else {
      out_slots.push_back(layout.place(fmt::format("output {}", i), type.bytes()));
    }
  }
  const Slot workspace = layout.place("workspace", backend.workspace_bytes(spec));

  std::vector<std::byte> image(static_cast<size_t>(layout.bytes()), kGuardByte);
  const auto fill = [&](const Slot& slot, const std::byte* from) {
    if (slot.offset < 0 || slot.bytes == 0) return;
    std::byte* at = image.data() + slot.offset;
    if (from != nullptr) {
      std::memcpy(at, from, static_cast<size_t>(slot.bytes));
    } else {
      std::fill(at, at + slot.bytes, kUnwritten);
    }
  };
  for (const Slot& slot : out_slots) fill(slot, nullptr);
  fill(workspace, nullptr);
  for (size_t i = 0; i < inputs.size(); ++i) fill(in_slots[i], inputs[i].bytes.data());

  const std::unique_ptr<DeviceArena> arena = backend.allocate(layout.bytes());
  backend.copy_to_device(arena->data(), image.data(), layout.bytes());
  const auto address = [&](const Slot& slot) -> std::byte* {
    return slot.offset < 0 ? nullptr : arena->data() + slot.offset;
  };
  std::vector<const void*> in_pointers;
  std::vector<void*> out_pointers;
  for (const Slot& slot : in_slots) in_pointers.push_back(address(slot));
  for (const Slot& slot : out_slots) out_pointers.push_back(address(slot));
  backend.prepare(spec)->run(
      {in_pointers, out_pointers, workspace.bytes > 0 ? address(workspace) : nullptr});

  const std::vector<std::byte> before = std::move(image);
  image.assign(before.size(), std::byte{});
  backend.copy_to_host(image.data(), arena->data(), layout.bytes());

  KernelRun result;
  std::vector<bool> writable(image.size(), false);
  const auto allow = [&](const Slot& slot) {
    for (int64_t i = 0; i < slot.bytes; ++i) writable[static_cast<size_t>(slot.offset + i)] = true;
  };
  for (const Slot& slot : out_slots) {
    if (slot.offset >= 0) allow(slot);
  }
  allow(workspace);
  const auto check = [&](const Slot& slot) {
    if (slot.offset < 0) return;
    const auto begin = static_cast<size_t>(slot.offset - kGuard);
    const auto end = static_cast<size_t>(slot.offset + slot.bytes + kGuard);
    for (size_t i = begin; i < end; ++i) {
      if (writable[i] || image[i] == before[i]) continue;
      result.faults.push_back(fmt::format("{} ({} bytes): byte {} was changed", slot.name,
                                          slot.bytes, static_cast<int64_t>(i) - slot.offset));
      return;
    }
  };
  for (const Slot& slot : in_slots) check(slot);
  for (const Slot& slot : out_slots) check(slot);
  check(workspace);
  for (size_t i = 0; i < spec.outputs.size(); ++i) {
    HostTensor output(spec.outputs[i]);
    if (out_slots[i].offset >= 0 && out_slots[i].bytes > 0) {
      std::memcpy(output.bytes.data(), image.data() + out_slots[i].offset, output.bytes.size());
    }
    result.outputs.push_back(std::move(output));
  }
  return result;
}

}  // namespace weft::test
