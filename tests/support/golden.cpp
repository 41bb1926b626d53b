#include "tests/support/golden.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "weft/base/check.h"
#include "weft/io/hf_folder.h"

namespace weft::test {
namespace {

constexpr int64_t kBatch = 3;
constexpr int64_t kSeqLen = 16;

/// Calls visit(offset in whole, offset in piece) for every element of the piece.
template <class Visit>
void for_each_element(const Shape& whole, const Shape& begin, const Shape& piece, Visit visit) {
  WEFT_CHECK(whole.size() == piece.size() && begin.size() == piece.size(), "cut",
             "ranks differ: {} and {}", shape_text(whole), shape_text(piece));
  const int64_t count = num_elements(piece);
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i;
    int64_t offset = 0;
    int64_t stride = 1;
    for (size_t d = piece.size(); d-- > 0;) {
      const int64_t index = begin[d] + rest % piece[d];
      WEFT_CHECK(index < whole[d], "cut", "dim {}: index {} of {}", d, index, shape_text(whole));
      offset += index * stride;
      stride *= whole[d];
      rest /= piece[d];
    }
    visit(offset, i);
  }
}

}  // namespace

Tensors read_tensors(const std::string& path) {
  HfTensors file(posix_files(), path);
  Tensors result;
  for (const HfTensors::Item& item : file.tensors()) {
    HostTensor tensor({item.entry.dtype, item.entry.shape});
    file.read(item, 0, tensor.bytes.data(), item.entry.bytes);
    result[item.entry.name] = std::move(tensor);
  }
  return result;
}

const HostTensor& Golden::at(const std::string& name) const {
  const auto found = expected.find(name);
  WEFT_CHECK(found != expected.end(), "golden", "{} has no tensor {}", folder, name);
  return found->second;
}

double Golden::number(const std::string& name, int64_t index) const { return at(name).get(index); }

std::string golden_folder(const std::string& name) {
  return std::string(WEFT_SOURCE_DIR) + "/tests/golden/models/" + name;
}

Golden load_golden(const std::string& name) {
  Golden golden;
  golden.folder = golden_folder(name);
  const std::string config = golden.folder + "/config.json";
  golden.spec = model_spec_from_hf(read_json_file(config), config);
  golden.weights = read_tensors(golden.folder + "/model.safetensors");
  golden.expected = read_tensors(golden.folder + "/golden.safetensors");
  return golden;
}

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_folder(""))) {
    if (std::filesystem::exists(entry.path() / "golden.safetensors")) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

Config golden_config(const std::string& optimizer, int64_t accumulation, const std::string& backend,
                     const std::string& compute) {
  Config config;
  config.data.seq_len = kSeqLen;
  config.train.steps = 10;
  config.train.accumulation = accumulation;
  config.train.micro_batch = div_exact(kBatch, accumulation);
  config.train.global_batch = kBatch;
  config.schedule.name = "constant";
  config.optimizer.name = optimizer;
  if (optimizer == "adamw") {
    config.optimizer.lr = 1e-3;
    config.optimizer.beta1 = 0.9;
    config.optimizer.beta2 = 0.95;
    config.optimizer.eps = 1e-8;
    config.optimizer.weight_decay = 0.1;
    config.train.grad_clip = 1.0;
  } else {
    config.optimizer.lr = 0.1;
    config.optimizer.momentum = 0.9;
    config.optimizer.weight_decay = 0.0;
    config.train.grad_clip = 0.0;
  }
  config.precision.compute = compute;
  config.device.backend = backend;
  config.device.threads = 1;
  return config;
}

HostTensor cut(const HostTensor& whole, const Shape& begin, const TensorType& piece) {
  HostTensor result(piece);
  for_each_element(whole.type.shape, begin, piece.shape,
                   [&](int64_t from, int64_t to) { result.set(to, whole.get(from)); });
  return result;
}

void paste(HostTensor& whole, const Shape& begin, const HostTensor& piece) {
  for_each_element(whole.type.shape, begin, piece.type.shape,
                   [&](int64_t to, int64_t from) { whole.set(to, piece.get(from)); });
}

double relative_error(const HostTensor& got, const HostTensor& expected) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (got.type.shape != expected.type.shape) return kInfinite;
  double difference = 0;
  double size = 0;
  for (int64_t i = 0; i < got.size(); ++i) {
    const double a = got.get(i);
    const double b = expected.get(i);
    if (!std::isfinite(a) || !std::isfinite(b)) return kInfinite;
    difference = std::max(difference, std::abs(a - b));
    size = std::max(size, std::abs(b));
  }
  if (difference == 0) return 0;
  return size == 0 ? kInfinite : difference / size;
}

}  // namespace weft::test
