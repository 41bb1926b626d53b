// Attention in bf16 on AMX tiles, blockwise like attention_isa.cpp: products of bf16 tiles, softmax
// in f32. Weights are rounded to bf16 before they enter a product.
#include <cmath>

#include "weft/backend/cpu/amx.h"
#include "weft/backend/cpu/attention_isa.h"
#include "weft/base/check.h"

#if defined(__x86_64__)
#include "weft/backend/cpu/attention_amx-inl.h"

namespace weft::cpu::amx {
namespace {

constexpr int64_t kKeys = 128;  // per block, kPanel queries each

/// Scales the scores of one query, keys [key, key + cols); masked ones become -infinity.
void mask_row(const Visible& visible, int64_t query, int64_t key, int64_t cols, float scale,
              float* row) {
  const int64_t begin = visible.first_key(query) - key, end = query + 1 - key;
  for (int64_t j = 0; j < cols; j += 16) {
    __mmask16 keep = lanes(begin - j, end - j);
    if (visible.segments != nullptr && keep != 0) {
      const __m512i own = _mm512_set1_epi32(visible.segments[query]);
      const __m512i other = _mm512_maskz_loadu_epi32(keep, visible.segments + key + j);
      keep = _mm512_mask_cmpeq_epi32_mask(keep, own, other);
    }
    const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(row + j), _mm512_set1_ps(scale));
    _mm512_storeu_ps(row + j, _mm512_mask_blend_ps(keep, _mm512_set1_ps(kMasked), scaled));
  }
}

/// One query of a forward block: `weights` gets 2^(scale2 * score - max) as a row of packed panels
/// of A; the running maximum (of scale2 * score) and sum follow, and `out`, the weighted values so
/// far, is scaled to the new maximum. scale2 > 0.
void softmax_row(int64_t cols, float scale2, const float* row, float* maximum, float* sum,
                 BF16* weights, float* out, int64_t width) {
  __m512 top = _mm512_set1_ps(kMasked);
  for (int64_t j = 0; j < cols; j += 16) top = _mm512_max_ps(top, _mm512_loadu_ps(row + j));
  const float before = *maximum;
  const float now = std::max(before, _mm512_reduce_max_ps(top) * scale2);
  if (now == kMasked) {  // nothing seen yet
    for (int64_t j = 0; j < cols; j += kPanel) {
      _mm512_store_si512(weights + j / kPanel * 2 * kTile, _mm512_setzero_si512());
    }
    return;
  }
  const __m512 shift = _mm512_set1_ps(now), factor = _mm512_set1_ps(scale2);
  __m512 total0 = _mm512_setzero_ps(), total1 = total0;
  for (int64_t j = 0; j < cols; j += kPanel) {
    const __m512 w0 = exp2_fast(_mm512_fmsub_ps(_mm512_loadu_ps(row + j), factor, shift));
    const __m512 w1 = exp2_fast(_mm512_fmsub_ps(_mm512_loadu_ps(row + j + 16), factor, shift));
    total0 = _mm512_add_ps(total0, w0);
    total1 = _mm512_add_ps(total1, w1);
    _mm512_store_si512(weights + j / kPanel * 2 * kTile, to_bf16x32(w0, w1));
  }
  const float total = _mm512_reduce_add_ps(_mm512_add_ps(total0, total1));
  *maximum = now;
  if (now == before) {
    *sum += total;
    return;
  }
  const float shrink = before == kMasked ? 0.0f : std::exp2(before - now);
  *sum = *sum * shrink + total;
  const __m512 less = _mm512_set1_ps(shrink);
  for (int64_t j = 0; j < width; j += 16) {
    _mm512_storeu_ps(out + j, _mm512_mul_ps(_mm512_loadu_ps(out + j), less));
  }
}

int64_t forward_floats(const AttentionShape& s) {
  const int64_t positions = round_up(s.positions, kKeys), width = up32(s.head_dim);
  return (2 * positions * width + kPanel * width + kPanel * kKeys) / 2 + kPanel * kKeys +
         kPanel * width + 2 * kPanel;
}

void forward(const AttentionShape& s, const AttentionArgs& args, int64_t group, int64_t first,
             int64_t step, float* memory) {
  const int64_t D = s.head_dim, width = up32(D), positions = round_up(s.positions, kKeys);
  const int64_t q_stride = s.num_heads * D, kv_stride = s.num_kv_heads * D;
  const int64_t depth = width / kDepth;  // tiles
  Scratch scratch{memory};
  BF16* k_panels = scratch.take(positions * width);  // by keys
  BF16* v_panels = scratch.take(positions * width);  // by features
  BF16* q_panel = scratch.take(kPanel * width);
  BF16* weights = scratch.take(kPanel * kKeys);
  float* scores = scratch.take_floats(kPanel * kKeys);
  float* sums = scratch.take_floats(kPanel * width);
  float* maxima = scratch.take_floats(kPanel);
  float* totals = scratch.take_floats(kPanel);

  const BF16* k = static_cast<const BF16*>(args.k) + group * D;
  const BF16* v = static_cast<const BF16*>(args.v) + group * D;
  pack_rows<true>(k, kv_stride, s.positions, s.positions, D, k_panels);
  pack_features<true>(v, kv_stride, s.positions, s.positions, D, v_panels);
  const int64_t v_panel = up32(s.positions) * kPanel;
  const Visible visible{s.window, args.segments};
  const float scale2 = s.scale * kLog2e;
  const int64_t heads = s.num_heads / s.num_kv_heads;
  const int64_t blocks = (s.positions + kPanel - 1) / kPanel;
  open_tiles();
  for (int64_t head = group * heads; head < (group + 1) * heads; ++head) {
    for (int64_t q_block = first; q_block < blocks; q_block += step) {
      const int64_t query = q_block * kPanel, queries = std::min(kPanel, s.positions - query);
      pack_panel<false>(static_cast<const BF16*>(args.q) + query * q_stride + head * D, q_stride,
                        true, queries, D, q_panel);
      std::memset(sums, 0, static_cast<size_t>(kPanel * width) * sizeof(float));
      std::fill(maxima, maxima + kPanel, kMasked);
      std::fill(totals, totals + kPanel, 0.0f);
      const int64_t last = query + queries;  // keys [.., last) are seen by some query
      for (int64_t key = visible.first_key(query) / kKeys * kKeys; key < last; key += kKeys) {
        const int64_t cols = up32(std::min(kKeys, last - key));
        for (int64_t j = 0; j < cols; j += kPanel) {
          multiply_panels(depth, Rows::packed(q_panel), k_panels + (key + j) * width, nullptr, 0,
                          scores + j, kKeys, nullptr);
        }
        const bool all_seen = scale2 > 0 && key + cols <= query + 1 &&
                              visible.first_key(last - 1) <= key && visible.segments == nullptr;
        for (int64_t i = 0; i < kPanel; ++i) {
          // Rows beyond the last query are scores of zeros, which are never stored.
          const bool mask = !all_seen && i < queries;
          if (mask) mask_row(visible, query + i, key, cols, scale2, scores + i * kKeys);
          softmax_row(cols, mask ? 1.0f : scale2, scores + i * kKeys, maxima + i, totals + i,
                      weights + i / 16 * kTile + i % 16 * 32, sums + i * width, width);
        }
        for (int64_t j = 0; j < width; j += kPanel) {
          multiply_panels(cols / kPanel, Rows::packed(weights),
                          v_panels + j / kPanel * v_panel + key * kPanel, sums + j, width, sums + j,
                          width, nullptr);
        }
      }
      for (int64_t i = 0; i < queries; ++i) {
        const int64_t at = query + i;
        store_rows(sums + i * width, 0, 1, D, 1.0f / totals[i],
                   static_cast<BF16*>(args.o) + at * q_stride + head * D, 0);
        args.lse[head * s.positions + at] = (maxima[i] + std::log2(totals[i])) / kLog2e;
      }
    }
  }
  close_tiles();
}

}  // namespace
}  // namespace weft::cpu::amx
WEFT_AMX_END

namespace weft::cpu {

const AttentionIsa& amx_attention_isa() {
  static const AttentionIsa isa = {amx::kPanel,
                                   &amx::forward_floats,
                                   &amx::attention_grad_floats,
                                   {nullptr, &amx::forward},
                                   {nullptr, &amx::attention_grad}};
  return isa;
}

}  // namespace weft::cpu

#else

namespace weft::cpu {

const AttentionIsa& amx_attention_isa() {
  WEFT_CHECK(false, "attention", "this build has no AMX");
  return attention_isa();
}

}  // namespace weft::cpu
#endif
