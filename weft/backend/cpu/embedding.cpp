// embedding, its gradient and select_rows.
#include <cstring>

#include "weft/backend/cpu/cpu_kernel.h"
#include "weft/backend/cpu/norm_isa.h"
#include "weft/backend/cpu/parallel.h"

namespace weft::cpu {
namespace {

constexpr int64_t kLeastBytes = 32768;  // bytes per worker that pay for waking it

/// The rows of the whole table that a call has: all of them, or with first_row a piece.
struct Rows {
  int64_t first, count;
  bool piece;

  Rows(const Attrs& attrs, int64_t rows)
      : first(attrs.get_int("first_row", 0)), count(rows), piece(attrs.contains("first_row")) {}

  /// BugError for ids that no piece can have.
  void check(const int32_t* ids, int64_t tokens) const {
    for (int64_t i = 0; i < tokens; ++i) {
      WEFT_CHECK(ids[i] >= 0 && (piece || ids[i] < count), "cpu.embedding",
                 "id {} outside a table of {} rows", ids[i], count);
    }
  }
  /// Local row of an id, or -1 when another piece has it.
  int64_t of(int32_t id) const {
    const int64_t row = id - first;
    return row >= 0 && row < count ? row : -1;
  }
};

// y[t] = table[ids[t]], or 0 when another piece has the row.
class Embedding final : public CpuKernel {
 public:
  Embedding(const KernelSpec& spec, int threads)
      : tokens_(spec.inputs.at(0).elements()),
        rows_(spec.attrs, spec.inputs.at(1).shape.at(0)),
        row_bytes_(spec.inputs[1].shape.at(1) * dtype_size(spec.inputs[1].dtype)),
        threads_(threads) {}
  void run(const KernelArgs& args) override {
    const int32_t* ids = in<int32_t>(args, 0);
    rows_.check(ids, tokens_);
    const char* table = in<char>(args, 1);
    char* y = out<char>(args, 0);
    parallel_range(threads_, tokens_, 1, std::max<int64_t>(1, kLeastBytes / (row_bytes_ + 1)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t t = begin; t < end; ++t) {
                       const int64_t row = rows_.of(ids[t]);
                       const auto bytes = static_cast<size_t>(row_bytes_);
                       if (row < 0) {
                         std::memset(y + t * row_bytes_, 0, bytes);
                       } else {
                         std::memcpy(y + t * row_bytes_, table + row * row_bytes_, bytes);
                       }
                     }
                   });
  }

 private:
  int64_t tokens_;
  Rows rows_;
  int64_t row_bytes_;
  int threads_;
};

// dtable[v] = acc[v] + sum of dy[t] over ids[t] == first_row + v, in the order of t. Each worker
// owns a slice of the columns.
class EmbeddingGrad final : public CpuKernel {
 public:
  EmbeddingGrad(const KernelSpec& spec, int threads)
      : tokens_(spec.inputs.at(0).elements()),
        rows_(spec.attrs, spec.outputs.at(0).shape.at(0)),
        width_(spec.outputs[0].shape.at(1)),
        float_(float_index(spec.inputs.at(1).dtype)),
        threads_(threads) {}
  void run(const KernelArgs& args) override {
    const int32_t* ids = in<int32_t>(args, 0);
    rows_.check(ids, tokens_);
    const char* dy = in<char>(args, 1);
    const float* acc = in<float>(args, 2);
    float* dtable = out<float>(args, 0);
    if (acc != dtable) {
      parallel_range(threads_, rows_.count * width_, 1024, kLeastBytes,
                     [&](int64_t begin, int64_t end) {
                       const auto bytes = static_cast<size_t>(end - begin) * 4;
                       if (acc == nullptr) {
                         std::memset(dtable + begin, 0, bytes);
                       } else {
                         std::memcpy(dtable + begin, acc + begin, bytes);
                       }
                     });
    }
    const int64_t size = float_ != 0 ? 2 : 4;
    parallel_range(threads_, width_, 16, std::max<int64_t>(16, kLeastBytes / (tokens_ + 1)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t t = 0; t < tokens_; ++t) {
                       const int64_t row = rows_.of(ids[t]);
                       if (row < 0) continue;
                       norm_isa().add_rows[float_](0, 1, end - begin,
                                                   dy + (t * width_ + begin) * size,
                                                   dtable + row * width_ + begin);
                     }
                   });
  }

 private:
  int64_t tokens_;
  Rows rows_;
  int64_t width_;
  int float_;
  int threads_;
};

// y[b, 0] = x[b, index[b]]
class SelectRows final : public CpuKernel {
 public:
  explicit SelectRows(const KernelSpec& spec)
      : sequences_(spec.inputs.at(0).shape.at(0)),
        positions_(spec.inputs[0].shape.at(1)),
        row_bytes_(spec.inputs[0].shape.at(2) * dtype_size(spec.inputs[0].dtype)) {}
  void run(const KernelArgs& args) override {
    const int32_t* index = in<int32_t>(args, 1);
    for (int64_t b = 0; b < sequences_; ++b) {
      WEFT_CHECK(index[b] >= 0 && index[b] < positions_, "cpu.select_rows", "row {} of {}",
                 index[b], positions_);
      std::memcpy(out<char>(args, 0) + b * row_bytes_,
                  in<char>(args, 0) + (b * positions_ + index[b]) * row_bytes_,
                  static_cast<size_t>(row_bytes_));
    }
  }

 private:
  int64_t sequences_, positions_, row_bytes_;
};

}  // namespace

KernelPtr make_embedding(const KernelSpec& spec, int threads) {
  return std::make_unique<Embedding>(spec, threads);
}
KernelPtr make_embedding_grad(const KernelSpec& spec, int threads) {
  return std::make_unique<EmbeddingGrad>(spec, threads);
}
KernelPtr make_select_rows(const KernelSpec& spec, int) {
  return std::make_unique<SelectRows>(spec);
}

}  // namespace weft::cpu
