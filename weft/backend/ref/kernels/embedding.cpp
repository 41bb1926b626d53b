// embedding, its gradient, and select_rows.
#include <algorithm>
#include <cstring>

#include "weft/backend/ref/ref_kernel.h"

namespace weft::ref {
namespace {

/// The rows of the whole table that this call has: all of them, or with first_row a piece.
struct Rows {
  int64_t first, count;
  bool piece;

  Rows(const Attrs& attrs, int64_t rows)
      : first(attrs.get_int("first_row", 0)), count(rows), piece(attrs.contains("first_row")) {}

  /// Local row of an id, or -1 when another piece has it.
  int64_t of(int64_t id) const {
    const bool here = id >= first && id - first < count;
    WEFT_CHECK(id >= 0 && (here || piece), "ref.embedding", "id {} outside a table of {} rows", id,
               count);
    return here ? id - first : -1;
  }
};

// y[t] = table[ids[t]], or 0 when another piece has the row.
void embedding(const Call& call) {
  const int32_t* ids = call.data<int32_t>(0);
  const auto* table = call.data<std::byte>(1);
  auto* y = call.out_data<std::byte>(0);
  const Rows rows(call.attrs(), call.shape(1)[0]);
  const auto row_bytes = static_cast<size_t>(call.shape(1)[1] * dtype_size(call.type(1).dtype));
  for (int64_t t = 0; t < call.elements(0); ++t) {
    std::byte* to = y + static_cast<size_t>(t) * row_bytes;
    const int64_t row = rows.of(ids[t]);
    if (row < 0) {
      std::memset(to, 0, row_bytes);
    } else {
      std::memcpy(to, table + static_cast<size_t>(row) * row_bytes, row_bytes);
    }
  }
}

// dtable[v] = acc[v] + sum of dy[t] over ids[t] == first_row + v. Workspace: one row of sums.
void embedding_grad(const Call& call) {
  const int32_t* ids = call.data<int32_t>(0);
  const In dy = call.in(1), acc = call.in(2);
  const Out dtable = call.out(0);
  const int64_t V = call.out_shape(0)[0], H = call.out_shape(0)[1];
  double* sum = call.workspace();
  const Rows rows(call.attrs(), V);
  for (int64_t v = 0; v < V; ++v) {
    std::fill(sum, sum + H, 0.0);
    for (int64_t t = 0; t < call.elements(0); ++t) {
      if (rows.of(ids[t]) != v) continue;
      for (int64_t h = 0; h < H; ++h) sum[h] += dy[t * H + h];
    }
    for (int64_t h = 0; h < H; ++h) {
      dtable.set(v * H + h, (call.has(2) ? acc[v * H + h] : 0.0) + sum[h]);
    }
  }
}

int64_t embedding_grad_workspace(const KernelSpec& spec) { return spec.outputs[0].shape[1]; }

// y[b, 0] = x[b, index[b]]
void select_rows(const Call& call) {
  const auto* x = call.data<std::byte>(0);
  const int32_t* index = call.data<int32_t>(1);
  auto* y = call.out_data<std::byte>(0);
  const int64_t B = call.shape(0)[0], S = call.shape(0)[1], H = call.shape(0)[2];
  const auto row_bytes = static_cast<size_t>(H * dtype_size(call.type(0).dtype));
  for (int64_t b = 0; b < B; ++b) {
    WEFT_CHECK(index[b] >= 0 && index[b] < S, "ref.select_rows", "row {} of {}", index[b], S);
    std::memcpy(y + static_cast<size_t>(b) * row_bytes,
                x + static_cast<size_t>(b * S + index[b]) * row_bytes, row_bytes);
  }
}

}  // namespace

RefKernel embedding_kernel() { return {&embedding}; }
RefKernel embedding_grad_kernel() { return {&embedding_grad, &embedding_grad_workspace}; }
RefKernel select_rows_kernel() { return {&select_rows}; }

}  // namespace weft::ref
