// How a kernel of ref sees one execution: operands by index, floating elements as double. Kernels
// here are plain loops written for reading; they accumulate in double and round each result once.
#pragma once

#include <cstdint>
#include <string_view>

#include "weft/base/check.h"
#include "weft/base/dtype.h"
#include "weft/ir/kernel.h"

namespace weft::ref {

/// A floating operand to read; element i as double whatever its dtype.
class In {
 public:
  In() = default;
  In(const void* data, DType dtype) : data_(data), dtype_(dtype) {}

  double operator[](int64_t i) const {
    if (dtype_ == DType::f32) return static_cast<const float*>(data_)[i];
    if (dtype_ == DType::f64) return static_cast<const double*>(data_)[i];
    return load_element(data_, dtype_, i);
  }

 private:
  const void* data_ = nullptr;
  DType dtype_ = DType::none;
};

/// A floating operand to write; rounds to nearest even. set() on an absent one does nothing.
class Out {
 public:
  Out() = default;
  Out(void* data, DType dtype) : data_(data), dtype_(dtype) {}

  void set(int64_t i, double value) const {
    if (data_ == nullptr) return;
    store_element(data_, dtype_, i, value);
  }

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::none;
};

class Call {
 public:
  Call(const KernelSpec& spec, const KernelArgs& args) : spec_(spec), args_(args) {}

  const Attrs& attrs() const { return spec_.attrs; }
  /// Is optional input / output `i` given? Trailing absent operands may be left out altogether.
  bool has(size_t i) const { return i < spec_.inputs.size() && spec_.inputs[i].present(); }
  bool has_out(size_t i) const { return i < spec_.outputs.size() && spec_.outputs[i].present(); }
  size_t num_inputs() const { return spec_.inputs.size(); }
  size_t num_outputs() const { return spec_.outputs.size(); }

  const Shape& shape(size_t i) const { return spec_.inputs.at(i).shape; }
  const Shape& out_shape(size_t i) const { return spec_.outputs.at(i).shape; }
  int64_t elements(size_t i) const { return spec_.inputs.at(i).elements(); }
  const TensorType& type(size_t i) const { return spec_.inputs.at(i); }
  const TensorType& out_type(size_t i) const { return spec_.outputs.at(i); }

  In in(size_t i) const { return has(i) ? In(args_.inputs[i], type(i).dtype) : In(); }
  Out out(size_t i) const { return has_out(i) ? Out(args_.outputs[i], out_type(i).dtype) : Out(); }
  /// Input or output `i` as plain memory, for kernels with a fixed element type.
  template <class T>
  const T* data(size_t i) const {
    return has(i) ? static_cast<const T*>(args_.inputs[i]) : nullptr;
  }
  template <class T>
  T* out_data(size_t i) const {
    return has_out(i) ? static_cast<T*>(args_.outputs[i]) : nullptr;
  }
  double* workspace() const { return static_cast<double*>(args_.workspace); }

 private:
  const KernelSpec& spec_;
  const KernelArgs& args_;
};

struct RefKernel {
  void (*run)(const Call& call) = nullptr;
  /// Doubles of scratch memory; nullptr = none.
  int64_t (*workspace)(const KernelSpec& spec) = nullptr;
};

#define WEFT_REF_KERNEL(name) RefKernel name##_kernel();
#include "weft/backend/ref/kernels.def"
#undef WEFT_REF_KERNEL

}  // namespace weft::ref
