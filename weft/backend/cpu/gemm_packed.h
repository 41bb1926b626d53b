// The per-instruction-set part of the packed matmul, as function pointers.
#pragma once

#include <cstdint>

#include "weft/backend/cpu/float_table.h"

namespace weft::cpu {

/// Where the sums of one block go. Intermediate sums (not `last`) go to `sums` alone.
struct GemmStore {
  float* sums = nullptr;  // f32 partial sums of this block, or nullptr when one pass is enough
  int64_t sums_stride = 0;
  bool first = false;  // no partial sums exist yet
  bool last = false;   // write C with bias and addend
  void* c = nullptr;   // all pointers below: element (0, 0) of the block
  const void* addend = nullptr;
  const float* bias = nullptr;
  int64_t ldc = 0;
  int dtype = 0;  // float_index of C and addend
};

using GemmPack = void (*)(const void* from, int64_t lane_stride, int64_t k_stride, int64_t lanes,
                          int64_t depth, float* to);

struct GemmIsa {
  bool avx512;  // vectors of 512 bits
  int64_t tile_rows;
  int64_t tile_cols;
  /// Packs `lanes` rows (A) or columns (B) of `depth` values into panels of tile_rows / tile_cols.
  /// Index: float_index of `from`.
  GemmPack pack_a[kFloats];
  GemmPack pack_b[kFloats];
  /// One block: `rows` x `cols` outputs from packed A panels and packed B panels that are
  /// `panel_depth` deep, of which values [b_offset, b_offset + depth) are used.
  void (*block)(int64_t rows, int64_t cols, int64_t depth, const float* a, const float* b,
                int64_t panel_depth, const GemmStore& store);
};

/// For the CPU this process runs on.
const GemmIsa& gemm_isa();

}  // namespace weft::cpu
