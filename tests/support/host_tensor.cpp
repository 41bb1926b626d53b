#include "tests/support/host_tensor.h"

#include "weft/base/check.h"

namespace weft::test {

HostTensor::HostTensor(TensorType tensor_type)
    : type(std::move(tensor_type)), bytes(static_cast<size_t>(type.bytes())) {}

HostTensor::HostTensor(TensorType tensor_type, const std::vector<double>& values)
    : HostTensor(std::move(tensor_type)) {
  WEFT_CHECK(static_cast<int64_t>(values.size()) == size(), "HostTensor", "{} values for {}",
             values.size(), shape_text(type.shape));
  for (int64_t i = 0; i < size(); ++i) set(i, values[static_cast<size_t>(i)]);
}

double HostTensor::get(int64_t i) const {
  if (type.dtype == DType::i32) {
    return reinterpret_cast<const int32_t*>(bytes.data())[i];
  }
  if (type.dtype == DType::i64) {
    return static_cast<double>(reinterpret_cast<const int64_t*>(bytes.data())[i]);
  }
  return load_element(bytes.data(), type.dtype, i);
}

void HostTensor::set(int64_t i, double value) {
  if (type.dtype == DType::i32) {
    reinterpret_cast<int32_t*>(bytes.data())[i] = static_cast<int32_t>(value);
  } else if (type.dtype == DType::i64) {
    reinterpret_cast<int64_t*>(bytes.data())[i] = static_cast<int64_t>(value);
  } else {
    store_element(bytes.data(), type.dtype, i, value);
  }
}

std::vector<double> HostTensor::values() const {
  std::vector<double> result;
  for (int64_t i = 0; i < size(); ++i) result.push_back(get(i));
  return result;
}

HostTensor converted(const HostTensor& tensor, DType dtype) {
  if (!tensor.present() || !is_floating(tensor.type.dtype)) return tensor;
  return HostTensor({dtype, tensor.type.shape}, tensor.values());
}

}  // namespace weft::test
