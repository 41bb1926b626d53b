// The gradient of attention in bf16 on AMX tiles. Weights and gradients of scores are rounded to
// bf16 before they enter a product.
#include <algorithm>

#include "weft/backend/cpu/attention_isa.h"
#include "weft/base/check.h"

#if defined(__x86_64__)
#include "weft/backend/cpu/attention_amx-inl.h"

namespace weft::cpu::amx {
namespace {

constexpr int64_t kSide = 64;  // keys and queries of a block

/// sum over the features of o * d_o for every query.
void output_dots(const BF16* o, const BF16* d_o, int64_t stride, int64_t count, int64_t width,
                 float* dots) {
  for (int64_t i = 0; i < count; ++i) {
    __m512 sum = _mm512_setzero_ps();
    for (int64_t j = 0; j < width; j += 16) {
      const __mmask16 mask = lanes(0, width - j);
      const __m512 a = to_floats(_mm256_maskz_loadu_epi16(mask, o + i * stride + j));
      const __m512 b = to_floats(_mm256_maskz_loadu_epi16(mask, d_o + i * stride + j));
      sum = _mm512_fmadd_ps(a, b, sum);
    }
    dots[i] = _mm512_reduce_add_ps(sum);
  }
}

/// 64 keys x 64 queries of one head, transposed: row = key.
struct SquareBlock {
  int64_t key, query, positions;
  const Visible* visible;
  float scale2;
  const float* lse2;    // log2(e) * lse of the block's queries
  const float* deltas;  // their rowsum(dO O)
};

/// For one pair of keys (rows `row`, row + 1): p = exp(score - lse), ds = p (dp - delta). Stores p
/// and ds as rows of panels of A, and ds as pairs of B.
void softmax_grad_rows(const SquareBlock& block, bool all_seen, int64_t row, const float* scores,
                       const float* dscores, BF16* p, BF16* ds, BF16* ds_pairs) {
  const __m512 factor = _mm512_set1_ps(block.scale2);
  alignas(64) static constexpr uint16_t kLow[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                    37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                    11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i low = _mm512_load_si512(kLow);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  for (int64_t j = 0; j < kSide; j += kPanel) {
    __m512i pair[2];
    for (int64_t r = 0; r < 2; ++r) {
      __m512 weight[2], grad[2];
      const int64_t key = block.key + row + r;
      for (int64_t h = 0; h < 2; ++h) {
        const int64_t col = j + 16 * h, at = (row + r) * kSide + col;
        __mmask16 keep = 0xffff;
        if (!all_seen) {
          const int64_t query = block.query + col, window = block.visible->window;
          const int64_t end = std::min(window > 0 ? key + window : block.positions,
                                       key < block.positions ? block.positions : 0);
          keep = lanes(key - query, end - query);
          if (block.visible->segments != nullptr && keep != 0) {
            const __m512i own = _mm512_set1_epi32(block.visible->segments[key]);
            const __m512i other = _mm512_maskz_loadu_epi32(keep, block.visible->segments + query);
            keep = _mm512_mask_cmpeq_epi32_mask(keep, own, other);
          }
        }
        const __m512 x =
            _mm512_fmsub_ps(_mm512_load_ps(scores + at), factor, _mm512_load_ps(block.lse2 + col));
        weight[h] = _mm512_maskz_mov_ps(keep, exp2_fast(x));
        grad[h] = _mm512_maskz_mul_ps(
            keep, weight[h],
            _mm512_sub_ps(_mm512_load_ps(dscores + at), _mm512_load_ps(block.deltas + col)));
      }
      // Panels of A: [32 keys][tile of 32 queries][2][16][32].
      const int64_t key_row = row + r;
      const int64_t to = key_row / kPanel * kPanel * kSide + j / kPanel * 2 * kTile +
                         key_row % kPanel / 16 * kTile + key_row % 16 * 32;
      _mm512_store_si512(p + to, to_bf16x32(weight[0], weight[1]));
      pair[r] = to_bf16x32(grad[0], grad[1]);
      _mm512_store_si512(ds + to, pair[r]);
    }
    // Panels of B: [32 queries][tile of 32 keys][2][16][16][2].
    BF16* to =
        ds_pairs + j / kPanel * kPanel * kSide + row / kPanel * 2 * kTile + row % kPanel / 2 * 32;
    _mm512_store_si512(to, _mm512_permutex2var_epi16(pair[0], low, pair[1]));
    _mm512_store_si512(to + kTile, _mm512_permutex2var_epi16(pair[0], high, pair[1]));
  }
}

/// out[rows][width] += A . B for whole panels; panels of A and B are `tiles` tiles deep, those of B
/// `b_step` values apart.
void add_product(int64_t rows, int64_t width, int64_t tiles, const BF16* a, int64_t a_step,
                 const BF16* b, int64_t b_step, float* out, int64_t stride) {
  for (int64_t j = 0; j < width; j += kPanel) {
    for (int64_t i = 0; i < rows; i += kPanel) {
      float* at = out + i * stride + j;
      multiply_panels(tiles, Rows::packed(a + i / kPanel * a_step), b + j / kPanel * b_step, at,
                      stride, at, stride, nullptr);
    }
  }
}

/// No query and key of the block have a segment in common.
bool apart(const int32_t* segments, int64_t query, int64_t queries, int64_t key, int64_t keys) {
  if (segments == nullptr) return false;
  const auto q = std::minmax_element(segments + query, segments + query + queries);
  const auto k = std::minmax_element(segments + key, segments + key + keys);
  return *q.second < *k.first || *k.second < *q.first;
}

/// The gradient of 64 queries from [features][64] sums.
void store_transposed(const float* sums, int64_t queries, int64_t width, float scale, BF16* to,
                      int64_t ld) {
  const __m512 factor = _mm512_set1_ps(scale);
  for (int64_t i = 0; i < queries; i += 16) {
    for (int64_t j = 0; j < width; j += 16) {
      __m512i r[16];
      for (int64_t f = 0; f < 16; ++f) {
        r[f] = _mm512_castps_si512(_mm512_load_ps(sums + (j + f) * kSide + i));
      }
      transpose(r);
      for (int64_t q = 0; q < std::min<int64_t>(16, queries - i); ++q) {
        const __m512 value = _mm512_mul_ps(_mm512_castsi512_ps(r[q]), factor);
        const __m512i half = to_bf16x32(value, value);
        _mm256_mask_storeu_epi16(to + (i + q) * ld + j, lanes(0, width - j),
                                 _mm512_castsi512_si256(half));
      }
    }
  }
}

/// What the backward pass keeps of one head: packed blocks of 64 queries.
struct QuerySide {
  BF16* q_rows;      // B, by queries
  BF16* do_rows;     // B, by queries
  BF16* q_columns;   // B, by features
  BF16* do_columns;  // B, by features
  float* lse2;       // log2(e) * lse
  float* deltas;     // rowsum(dO O)
};

void pack_query_side(const AttentionShape& s, const AttentionArgs& args, int64_t head,
                     const QuerySide& side) {
  const int64_t D = s.head_dim, width = up32(D), stride = s.num_heads * D;
  const BF16* q = static_cast<const BF16*>(args.q) + head * D;
  const BF16* d_o = static_cast<const BF16*>(args.d_o) + head * D;
  const BF16* o = static_cast<const BF16*>(args.o) + head * D;
  for (int64_t query = 0; query < s.positions; query += kSide) {
    const int64_t count = std::min(kSide, s.positions - query), to = query * width;
    pack_rows<true>(q + query * stride, stride, count, kSide, D, side.q_rows + to);
    pack_rows<true>(d_o + query * stride, stride, count, kSide, D, side.do_rows + to);
    pack_features<true>(q + query * stride, stride, count, kSide, D, side.q_columns + to);
    pack_features<true>(d_o + query * stride, stride, count, kSide, D, side.do_columns + to);
    output_dots(o + query * stride, d_o + query * stride, stride, count, D, side.deltas + query);
    for (int64_t i = 0; i < kSide; ++i) {
      side.lse2[query + i] = i < count ? args.lse[head * s.positions + query + i] * kLog2e : 0.0f;
      if (i >= count) side.deltas[query + i] = 0.0f;
    }
  }
}

}  // namespace

int64_t attention_grad_floats(const AttentionShape& s) {
  const int64_t positions = round_up(s.positions, kSide), width = up32(s.head_dim);
  const int64_t halves = 4 * positions * width + 3 * kSide * width + 3 * kSide * kSide;
  return halves / 2 + 3 * positions * width + 2 * positions + 2 * kSide * kSide;
}

// Per block, transposed (rows = keys): S' = K Q', P' = exp(S' - lse), dP' = V dO',
// dS' = P' (dP' - rowsum(dO O)); then dV += P' dO, dK += dS' Q, dQ' += K' dS'.
void attention_grad(const AttentionShape& s, const AttentionArgs& args, int64_t group,
                    float* memory) {
  const int64_t D = s.head_dim, width = up32(D), positions = round_up(s.positions, kSide);
  const int64_t q_stride = s.num_heads * D, kv_stride = s.num_kv_heads * D;
  const int64_t depth = width / kDepth, square = kSide * kSide;
  const int64_t panel = kPanel * kSide;  // values of a panel with k = 64 positions
  Scratch scratch{memory};
  QuerySide side{};
  side.q_rows = scratch.take(positions * width);
  side.do_rows = scratch.take(positions * width);
  side.q_columns = scratch.take(positions * width);
  side.do_columns = scratch.take(positions * width);
  side.lse2 = scratch.take_floats(positions);
  side.deltas = scratch.take_floats(positions);
  float* dk_sums = scratch.take_floats(positions * width);
  float* dv_sums = scratch.take_floats(positions * width);
  float* dq_sums = scratch.take_floats(positions * width);  // by blocks, [features][64]
  BF16* k_rows = scratch.take(kSide * width);               // of one block; A, by keys
  BF16* v_rows = scratch.take(kSide * width);               // A, by keys
  BF16* k_columns = scratch.take(kSide * width);            // A, by features
  BF16* p = scratch.take(square);
  BF16* ds = scratch.take(square);
  BF16* ds_pairs = scratch.take(square);
  float* scores = scratch.take_floats(square);
  float* dscores = scratch.take_floats(square);

  const BF16* k = static_cast<const BF16*>(args.k) + group * D;
  const BF16* v = static_cast<const BF16*>(args.v) + group * D;
  const auto sum_bytes = static_cast<size_t>(positions * width) * sizeof(float);
  std::memset(dk_sums, 0, sum_bytes);
  std::memset(dv_sums, 0, sum_bytes);
  const Visible visible{s.window, args.segments};
  const int64_t heads = s.num_heads / s.num_kv_heads;
  open_tiles();
  for (int64_t head = group * heads; head < (group + 1) * heads; ++head) {
    pack_query_side(s, args, head, side);
    std::memset(dq_sums, 0, sum_bytes);
    for (int64_t key = 0; key < s.positions; key += kSide) {
      const int64_t keys = std::min(kSide, s.positions - key);
      pack_rows<false>(k + key * kv_stride, kv_stride, keys, kSide, D, k_rows);
      pack_rows<false>(v + key * kv_stride, kv_stride, keys, kSide, D, v_rows);
      pack_features<false>(k + key * kv_stride, kv_stride, keys, kSide, D, k_columns);
      for (int64_t query = key; query < s.positions; query += kSide) {
        if (visible.first_key(query) >= key + keys) break;
        const int64_t queries = std::min(kSide, s.positions - query), at = query * width;
        if (apart(args.segments, query, queries, key, keys)) continue;
        for (int64_t i = 0; i < kSide; i += kPanel) {
          for (int64_t j = 0; j < kSide; j += kPanel) {
            multiply_panels(depth, Rows::packed(k_rows + i * width), side.q_rows + at + j * width,
                            nullptr, 0, scores + i * kSide + j, kSide, nullptr);
            multiply_panels(depth, Rows::packed(v_rows + i * width), side.do_rows + at + j * width,
                            nullptr, 0, dscores + i * kSide + j, kSide, nullptr);
          }
        }
        const bool all_seen = key + kSide <= query + 1 && queries == kSide &&
                              visible.first_key(query + kSide - 1) <= key &&
                              args.segments == nullptr;
        const SquareBlock block{.key = key,
                                .query = query,
                                .positions = s.positions,
                                .visible = &visible,
                                .scale2 = s.scale * kLog2e,
                                .lse2 = side.lse2 + query,
                                .deltas = side.deltas + query};
        for (int64_t i = 0; i < kSide; i += 2) {
          softmax_grad_rows(block, all_seen, i, scores, dscores, p, ds, ds_pairs);
        }
        add_product(kSide, width, 2, p, panel, side.do_columns + at, panel, dv_sums + key * width,
                    width);
        add_product(kSide, width, 2, ds, panel, side.q_columns + at, panel, dk_sums + key * width,
                    width);
        add_product(width, kSide, 2, k_columns, panel, ds_pairs, panel, dq_sums + at, kSide);
      }
    }
    for (int64_t query = 0; query < s.positions; query += kSide) {
      store_transposed(dq_sums + query * width, std::min(kSide, s.positions - query), D, s.scale,
                       static_cast<BF16*>(args.dq) + query * q_stride + head * D, q_stride);
    }
  }
  close_tiles();
  store_rows(dk_sums, width, s.positions, D, s.scale, static_cast<BF16*>(args.dk) + group * D,
             kv_stride);
  store_rows(dv_sums, width, s.positions, D, 1.0f, static_cast<BF16*>(args.dv) + group * D,
             kv_stride);
}

}  // namespace weft::cpu::amx
WEFT_AMX_END
#endif
