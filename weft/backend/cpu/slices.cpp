// slice and concat: ranges of bytes along one dim, for every dtype.
#include <cstring>

#include "weft/backend/cpu/cpu_kernel.h"
#include "weft/backend/cpu/parallel.h"

namespace weft::cpu {
namespace {

constexpr int64_t kGrainBytes = 4096;
constexpr int64_t kLeastBytes = 65536;  // bytes per worker that pay for waking it

/// A tensor seen as [outer, extent, inner] with `dim` in the middle; inner in bytes.
struct Extents {
  int64_t outer = 1, extent = 0, inner = 0;

  Extents(const TensorType& type, int64_t dim) : inner(dtype_size(type.dtype)) {
    if (dim < 0) {
      extent = type.elements();
      return;
    }
    const auto at = static_cast<size_t>(dim);
    for (size_t i = 0; i < at; ++i) outer *= type.shape[i];
    extent = type.shape.at(at);
    for (size_t i = at + 1; i < type.shape.size(); ++i) inner *= type.shape[i];
  }
};

/// Copies `count` runs of `bytes`, whose beginnings are strides apart.
void copy_runs(int threads, int64_t count, int64_t bytes, const char* from, int64_t from_stride,
               char* to, int64_t to_stride) {
  parallel_range(threads, count * bytes, kGrainBytes, kLeastBytes, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t run = begin / bytes, skip = begin % bytes;
      const int64_t step = std::min(bytes - skip, end - begin);
      std::memcpy(to + run * to_stride + skip, from + run * from_stride + skip,
                  static_cast<size_t>(step));
      begin += step;
    }
  });
}

// y = x[…, begin : begin + size, …] along dim; dim -1 is the flattening.
class Slice final : public CpuKernel {
 public:
  Slice(const KernelSpec& spec, int threads)
      : x_(spec.inputs.at(0), spec.attrs.get_int("dim")),
        begin_(spec.attrs.get_int("begin")),
        size_(spec.attrs.get_int("size")),
        threads_(threads) {}
  void run(const KernelArgs& args) override {
    const int64_t bytes = size_ * x_.inner;
    copy_runs(threads_, x_.outer, bytes, in<char>(args, 0) + begin_ * x_.inner,
              x_.extent * x_.inner, out<char>(args, 0), bytes);
  }

 private:
  Extents x_;
  int64_t begin_, size_;
  int threads_;
};

// y = inputs one behind the other along dim.
class Concat final : public CpuKernel {
 public:
  Concat(const KernelSpec& spec, int threads)
      : y_(spec.outputs.at(0), spec.attrs.get_int("dim")), threads_(threads) {
    for (const TensorType& type : spec.inputs) {
      extents_.push_back(type.shape.at(static_cast<size_t>(spec.attrs.get_int("dim"))));
    }
  }
  void run(const KernelArgs& args) override {
    char* y = out<char>(args, 0);
    for (size_t i = 0; i < extents_.size(); ++i) {
      const int64_t bytes = extents_[i] * y_.inner;
      copy_runs(threads_, y_.outer, bytes, in<char>(args, i), bytes, y, y_.extent * y_.inner);
      y += bytes;
    }
  }

 private:
  Extents y_;
  Shape extents_;
  int threads_;
};

}  // namespace

KernelPtr make_slice(const KernelSpec& spec, int threads) {
  return std::make_unique<Slice>(spec, threads);
}
KernelPtr make_concat(const KernelSpec& spec, int threads) {
  return std::make_unique<Concat>(spec, threads);
}

}  // namespace weft::cpu
