// Attention in blocks (FlashAttention: Dao et al., 2022; Dao, 2023), compiled once per instruction
// set. Scores exist for kQueries x kKeys positions at a time. Only tiles that some query of the
// tile can see are computed; the softmax is kept online in f32.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/backend/cpu/attention_isa.cpp"
#include "weft/backend/cpu/attention_isa.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "hwy/foreach_target.h"
#include "weft/backend/cpu/tile-inl.h"
#include "weft/base/check.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kKeys = 96;  // per block; a multiple of kTileCols
constexpr int64_t kQueries = (96 + kTileRows - 1) / kTileRows * kTileRows;
static_assert(kKeys % kTileCols == 0);
constexpr int64_t kPad = 64;  // floats after score blocks: a tile may read past the last row
constexpr float kMasked = -std::numeric_limits<float>::infinity();

/// Hands out pieces of the scratch memory.
struct Scratch {
  float* next;
  float* take(int64_t floats) {
    float* piece = next;
    next += round_up(floats, 16);
    return piece;
  }
};

/// to[i][j] = scale * from[i][j]; rows [rows, up to the next tile) become 0.
template <class T>
void copy_rows(const T* from, int64_t stride, int64_t rows, int64_t width, float scale, float* to) {
  const VF factor = set(scale);
  for (int64_t i = 0; i < rows; ++i) {
    const T* row = from + i * stride;
    float* put_row = to + i * width;
    for_vectors(width,
                [&](auto get, auto put) HWY_ATTR { put(hn::Mul(get(row), factor), put_row); });
  }
  std::memset(to + rows * width, 0,
              static_cast<size_t>((round_up(rows, kTileRows) - rows) * width) * sizeof(float));
}

/// to[i][j] = scale * from[i][j] in the operand's dtype.
template <class T>
void store_rows(const float* from, int64_t from_stride, int64_t rows, int64_t width, float scale,
                T* to, int64_t stride) {
  const VF factor = set(scale);
  for (int64_t i = 0; i < rows; ++i) {
    const float* row = from + i * from_stride;
    T* put_row = to + i * stride;
    for_vectors(width,
                [&](auto get, auto put) HWY_ATTR { put(hn::Mul(get(row), factor), put_row); });
  }
}

/// One block of queries [query, query + queries) against keys [key, key + keys).
struct Block {
  int64_t query, queries, key, keys;
  int64_t window;
  const int32_t* segments;

  /// Keys of this block that query row `i` may see, by position: [first, last).
  int64_t first(int64_t i) const {
    return window > 0 ? std::clamp<int64_t>(query + i - window + 1 - key, 0, keys) : 0;
  }
  int64_t last(int64_t i) const { return std::clamp<int64_t>(query + i - key + 1, 0, keys); }
  /// No query and key of the block have a segment in common.
  bool apart() const {
    if (segments == nullptr) return false;
    const auto q = std::minmax_element(segments + query, segments + query + queries);
    const auto k = std::minmax_element(segments + key, segments + key + keys);
    return *q.second < *k.first || *k.second < *q.first;
  }
  /// Writes `value` over what row `i` of a score block must not see, columns [0, cols).
  void mask(int64_t i, int64_t cols, float value, float* row) const {
    const int64_t begin = first(i), end = last(i);
    for (int64_t j = 0; j < std::min(begin, cols); ++j) row[j] = value;
    for (int64_t j = end; j < cols; ++j) row[j] = value;
    if (segments == nullptr) return;
    const int32_t own = segments[query + i];
    for (int64_t j = begin; j < end; ++j) row[j] = segments[key + j] == own ? row[j] : value;
  }
};

/// First and last (exclusive) key block that some query of [query, query + queries) sees.
inline int64_t first_key_block(const AttentionShape& shape, int64_t query) {
  return shape.window > 0 ? std::max<int64_t>(0, query - shape.window + 1) / kKeys : 0;
}
inline int64_t last_key_block(int64_t query, int64_t queries) {
  return (query + queries - 1) / kKeys + 1;
}

/// scores[i][j] = a[i] . b[j] for the tiles of the block that are not wholly in the future.
/// `panels` holds B by panels of kTileCols keys, D deep, from the block's first key.
HWY_NOINLINE void score_tiles(const Block& block, int64_t depth, const float* a,
                              const float* panels, float* scores) {
  for (int64_t i = 0; i < block.queries; i += kTileRows) {
    const int64_t seen = block.last(std::min(i + kTileRows, block.queries) - 1);
    for (int64_t j = 0; j < seen; j += kTileCols) {
      multiply_tile<0, 1>(depth, a + i * depth, depth, 1, panels + j * depth, nullptr, 0,
                          scores + i * kKeys + j, kKeys);
    }
  }
}

/// out[i][:] += p[i][0 .. seen) . rows of B, for all queries; B by panels of kTileCols columns,
/// `keys` deep.
HWY_NOINLINE void add_weighted(const Block& block, const float* p, const float* panels,
                               int64_t width, float* out) {
  for (int64_t j = 0; j < width; j += kTileCols) {
    for (int64_t i = 0; i < block.queries; i += kTileRows) {
      const int64_t seen = block.last(std::min(i + kTileRows, block.queries) - 1);
      float* at = out + i * width + j;
      multiply_tile<0, 1>(seen, p + i * kKeys, kKeys, 1, panels + j * block.keys, at, width, at,
                          width);
    }
  }
}

/// out[key][:] += sum over queries of p[query][key] * B[query][:]; B by panels of kTileCols
/// columns, `queries` deep.
HWY_NOINLINE void add_transposed(const Block& block, const float* p, const float* panels,
                                 int64_t width, float* out) {
  alignas(64) float tile[kTileRows * kTileCols];
  for (int64_t j = 0; j < width; j += kTileCols) {
    for (int64_t i = 0; i < block.keys; i += kTileRows) {
      // Queries before the first key of the tile see none of it.
      const int64_t from = std::clamp<int64_t>(block.key + i - block.query, 0, block.queries);
      const float* a = p + from * kKeys + i;
      const float* b = panels + j * block.queries + from * kTileCols;
      float* at = out + i * width + j;
      const int64_t rows = std::min(kTileRows, block.keys - i);
      if (rows == kTileRows) {
        multiply_tile<1, kKeys>(block.queries - from, a, 0, 0, b, at, width, at, width);
        continue;
      }
      multiply_tile<1, kKeys>(block.queries - from, a, 0, 0, b, nullptr, 0, tile, kTileCols);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < kTileCols; ++c) at[r * width + c] += tile[r * kTileCols + c];
      }
    }
  }
}

/// One row of a forward block: masks, updates the running maximum and sum, turns scores into
/// weights and scales what `out` holds so far. Columns [0, cols) are whole tiles.
HWY_NOINLINE void softmax_row(const Block& block, int64_t i, int64_t cols, float* row,
                              float* maximum, float* sum, float* out, int64_t width) {
  block.mask(i, cols, kMasked, row);
  VF top = set(kMasked);
  for (int64_t j = 0; j < cols; j += kLanes) top = hn::Max(top, load(row + j));
  const float before = *maximum;
  const float now = std::max(before, max_lanes(top));
  if (now == kMasked) {  // nothing seen yet
    std::memset(row, 0, static_cast<size_t>(cols) * sizeof(float));
    return;
  }
  const VF shift = set(now);
  VF total = hn::Zero(DF());
  for (int64_t j = 0; j < cols; j += kLanes) {
    const VF weight = exp_fast(hn::Sub(load(row + j), shift));
    total = hn::Add(total, weight);
    store(weight, row + j);
  }
  *maximum = now;
  if (now == before) {
    *sum += sum_lanes(total);
    return;
  }
  const float shrink = before == kMasked ? 0.0f : std::exp(before - now);
  *sum = *sum * shrink + sum_lanes(total);
  const VF factor = set(shrink);
  for (int64_t j = 0; j < width; j += kLanes) store(hn::Mul(load(out + j), factor), out + j);
}

int64_t forward_floats(const AttentionShape& s) {
  const int64_t positions = round_up(s.positions, kKeys), width = round_up(s.head_dim, kTileCols);
  return round_up(positions * s.head_dim, 16) + round_up(positions * width, 16) +
         round_up(kQueries * s.head_dim, 16) + round_up(kQueries * kKeys + kPad, 16) +
         round_up(kQueries * width, 16) + 2 * round_up(kQueries, 16);
}

template <class T>
void forward(const AttentionShape& s, const AttentionArgs& args, int64_t group, int64_t first,
             int64_t step, float* memory) {
  const int64_t D = s.head_dim, width = round_up(D, kTileCols),
                positions = round_up(s.positions, kKeys);
  const int64_t q_stride = s.num_heads * D, kv_stride = s.num_kv_heads * D;
  Scratch scratch{memory};
  float* k_panels = scratch.take(positions * D);
  float* v_panels = scratch.take(positions * width);
  float* q_rows = scratch.take(kQueries * D);
  float* scores = scratch.take(kQueries * kKeys + kPad);
  float* sums = scratch.take(kQueries * width);
  float* maxima = scratch.take(kQueries);
  float* totals = scratch.take(kQueries);

  const T* k = static_cast<const T*>(args.k) + group * D;
  const T* v = static_cast<const T*>(args.v) + group * D;
  pack_panels<kTileCols>(k, kv_stride, 1, s.positions, D, k_panels);
  for (int64_t key = 0; key < s.positions; key += kKeys) {
    pack_panels<kTileCols>(v + key * kv_stride, 1, kv_stride, D, std::min(kKeys, s.positions - key),
                           v_panels + key * width);
  }
  const int64_t heads = s.num_heads / s.num_kv_heads;
  const int64_t blocks = (s.positions + kQueries - 1) / kQueries;
  for (int64_t head = group * heads; head < (group + 1) * heads; ++head) {
    for (int64_t q_block = first; q_block < blocks; q_block += step) {
      Block block{.query = q_block * kQueries,
                  .queries = 0,
                  .key = 0,
                  .keys = 0,
                  .window = s.window,
                  .segments = args.segments};
      block.queries = std::min(kQueries, s.positions - block.query);
      copy_rows(static_cast<const T*>(args.q) + block.query * q_stride + head * D, q_stride,
                block.queries, D, s.scale, q_rows);
      std::memset(sums, 0, static_cast<size_t>(kQueries * width) * sizeof(float));
      std::fill(maxima, maxima + kQueries, kMasked);
      std::fill(totals, totals + kQueries, 0.0f);
      const int64_t end = last_key_block(block.query, block.queries);
      for (int64_t kb = first_key_block(s, block.query); kb < end; ++kb) {
        block.key = kb * kKeys;
        block.keys = std::min(kKeys, s.positions - block.key);
        if (block.apart()) continue;
        score_tiles(block, D, q_rows, k_panels + block.key * D, scores);
        for (int64_t i = 0; i < round_up(block.queries, kTileRows); ++i) {
          float* row = scores + i * kKeys;
          const int64_t tile_end = std::min(round_up(i + 1, kTileRows), block.queries);
          const int64_t cols = round_up(block.last(tile_end - 1), kTileCols);
          if (i < block.queries) {
            softmax_row(block, i, cols, row, maxima + i, totals + i, sums + i * width, width);
          } else {
            std::memset(row, 0, static_cast<size_t>(cols) * sizeof(float));
          }
        }
        add_weighted(block, scores, v_panels + block.key * width, width, sums);
      }
      for (int64_t i = 0; i < block.queries; ++i) {
        const int64_t at = block.query + i;
        store_rows(sums + i * width, 0, 1, D, 1.0f / totals[i],
                   static_cast<T*>(args.o) + at * q_stride + head * D, 0);
        args.lse[head * s.positions + at] = maxima[i] + std::log(totals[i]);
      }
    }
  }
}

int64_t backward_floats(const AttentionShape& s) {
  const int64_t positions = round_up(s.positions, kKeys), width = round_up(s.head_dim, kTileCols);
  return 2 * round_up(positions * s.head_dim, 16) + 3 * round_up(positions * width, 16) +
         2 * round_up(kQueries * s.head_dim, 16) + 3 * round_up(kQueries * width, 16) +
         2 * round_up(kQueries * kKeys + kPad, 16) + round_up(kQueries, 16);
}

/// p = exp(scores - lse) and dscores = p * (dp - delta) for one row; masked columns become 0.
HWY_NOINLINE void softmax_grad_row(const Block& block, int64_t i, int64_t cols, float lse,
                                   float delta, float* row, float* grad) {
  block.mask(i, cols, kMasked, row);
  const VF shift = set(lse), minus = set(delta);
  for (int64_t j = 0; j < cols; j += kLanes) {
    const VF weight = exp_fast(hn::Sub(load(row + j), shift));
    store(weight, row + j);
    store(hn::Mul(weight, hn::Sub(load(grad + j), minus)), grad + j);
  }
}

// Per block: S = Q K^T, P = exp(S - lse), dP = dO V^T, dS = P (dP - rowsum(dO O)); then
// dV += P^T dO, dQ += dS K, dK += dS^T Q. Q is scaled beforehand.
template <class T>
void backward(const AttentionShape& s, const AttentionArgs& args, int64_t group, float* memory) {
  const int64_t D = s.head_dim, width = round_up(D, kTileCols),
                positions = round_up(s.positions, kKeys);
  const int64_t q_stride = s.num_heads * D, kv_stride = s.num_kv_heads * D;
  Scratch scratch{memory};
  float* k_panels = scratch.take(positions * D);       // by keys, for S
  float* v_panels = scratch.take(positions * D);       // by keys, for dP
  float* k_columns = scratch.take(positions * width);  // by features, for dQ
  float* dk_sums = scratch.take(positions * width);
  float* dv_sums = scratch.take(positions * width);
  float* q_rows = scratch.take(kQueries * D);
  float* do_rows = scratch.take(kQueries * D);
  float* q_columns = scratch.take(kQueries * width);
  float* do_columns = scratch.take(kQueries * width);
  float* dq_sums = scratch.take(kQueries * width);
  float* scores = scratch.take(kQueries * kKeys + kPad);
  float* dscores = scratch.take(kQueries * kKeys + kPad);
  float* deltas = scratch.take(kQueries);

  const T* k = static_cast<const T*>(args.k) + group * D;
  const T* v = static_cast<const T*>(args.v) + group * D;
  pack_panels<kTileCols>(k, kv_stride, 1, s.positions, D, k_panels);
  pack_panels<kTileCols>(v, kv_stride, 1, s.positions, D, v_panels);
  for (int64_t key = 0; key < s.positions; key += kKeys) {
    pack_panels<kTileCols>(k + key * kv_stride, 1, kv_stride, D, std::min(kKeys, s.positions - key),
                           k_columns + key * width);
  }
  std::memset(dk_sums, 0, static_cast<size_t>(positions * width) * sizeof(float));
  std::memset(dv_sums, 0, static_cast<size_t>(positions * width) * sizeof(float));
  const int64_t heads = s.num_heads / s.num_kv_heads;
  for (int64_t head = group * heads; head < (group + 1) * heads; ++head) {
    for (int64_t query = 0; query < s.positions; query += kQueries) {
      Block block{.query = query,
                  .queries = std::min(kQueries, s.positions - query),
                  .key = 0,
                  .keys = 0,
                  .window = s.window,
                  .segments = args.segments};
      const int64_t at = query * q_stride + head * D;
      copy_rows(static_cast<const T*>(args.q) + at, q_stride, block.queries, D, s.scale, q_rows);
      copy_rows(static_cast<const T*>(args.d_o) + at, q_stride, block.queries, D, 1.0f, do_rows);
      pack_panels<kTileCols>(q_rows, 1, D, D, block.queries, q_columns);
      pack_panels<kTileCols>(do_rows, 1, D, D, block.queries, do_columns);
      for (int64_t i = 0; i < block.queries; ++i) {
        const T* o = static_cast<const T*>(args.o) + at + i * q_stride;
        const float* d_o = do_rows + i * D;
        VF dot = hn::Zero(DF());
        for_vectors(D, [&](auto get, auto) HWY_ATTR { dot = hn::MulAdd(get(o), get(d_o), dot); });
        deltas[i] = sum_lanes(dot);
      }
      std::memset(dq_sums, 0, static_cast<size_t>(kQueries * width) * sizeof(float));
      const float* lse = args.lse + head * s.positions + query;
      const int64_t end = last_key_block(query, block.queries);
      for (int64_t kb = first_key_block(s, query); kb < end; ++kb) {
        block.key = kb * kKeys;
        block.keys = std::min(kKeys, s.positions - block.key);
        if (block.apart()) continue;
        score_tiles(block, D, q_rows, k_panels + block.key * D, scores);
        score_tiles(block, D, do_rows, v_panels + block.key * D, dscores);
        for (int64_t i = 0; i < round_up(block.queries, kTileRows); ++i) {
          float* row = scores + i * kKeys;
          float* grad = dscores + i * kKeys;
          const int64_t tile_end = std::min(round_up(i + 1, kTileRows), block.queries);
          const int64_t cols = round_up(block.last(tile_end - 1), kTileCols);
          if (i < block.queries) {
            softmax_grad_row(block, i, cols, lse[i], deltas[i], row, grad);
          } else {
            std::memset(row, 0, static_cast<size_t>(cols) * sizeof(float));
            std::memset(grad, 0, static_cast<size_t>(cols) * sizeof(float));
          }
          // Columns that add_transposed reads but no tile of this row has written.
          std::memset(row + cols, 0, static_cast<size_t>(kKeys - cols) * sizeof(float));
          std::memset(grad + cols, 0, static_cast<size_t>(kKeys - cols) * sizeof(float));
        }
        add_transposed(block, scores, do_columns, width, dv_sums + block.key * width);
        add_transposed(block, dscores, q_columns, width, dk_sums + block.key * width);
        add_weighted(block, dscores, k_columns + block.key * width, width, dq_sums);
      }
      store_rows(dq_sums, width, block.queries, D, s.scale, static_cast<T*>(args.dq) + at,
                 q_stride);
    }
  }
  store_rows(dk_sums, width, s.positions, D, 1.0f, static_cast<T*>(args.dk) + group * D, kv_stride);
  store_rows(dv_sums, width, s.positions, D, 1.0f, static_cast<T*>(args.dv) + group * D, kv_stride);
}

AttentionIsa isa() {
  return {kQueries, &forward_floats, &backward_floats, WEFT_PER_FLOAT(forward),
          WEFT_PER_FLOAT(backward)};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(isa);

const AttentionIsa& attention_isa() {
  static const AttentionIsa chosen = HWY_DYNAMIC_DISPATCH(isa)();
  return chosen;
}

}  // namespace weft::cpu
#endif
