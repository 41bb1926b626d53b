// A tensor in test memory: type and bytes, with elements read and written as double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/base/dtype.h"
#include "weft/ir/op_def.h"

namespace weft::test {

struct HostTensor {
  TensorType type;
  std::vector<std::byte> bytes;

  HostTensor() = default;
  /// Zeros of `tensor_type`; absent for dtype none.
  explicit HostTensor(TensorType tensor_type);
  /// Integers and floating values alike are given as doubles and must be exact for integers.
  HostTensor(TensorType tensor_type, const std::vector<double>& values);

  bool present() const { return type.present(); }
  int64_t size() const { return type.elements(); }
  double get(int64_t i) const;
  void set(int64_t i, double value);
  std::vector<double> values() const;
};

/// The same values in another dtype, rounded; integers stay as they are.
HostTensor converted(const HostTensor& tensor, DType dtype);

}  // namespace weft::test
