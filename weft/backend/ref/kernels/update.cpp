// sum_squares, verdict, adamw and sgd. The updates run in the parameter dtype with the operations
// of update_math.h, because their bits must not depend on the backend.
#include <cmath>
#include <optional>

#include "weft/backend/ref/ref_kernel.h"
#include "weft/backend/update_math.h"
#include "weft/ir/element_numbers.h"

namespace weft::ref {
namespace {

void sum_squares(const Call& call) {
  const In x = call.in(0);
  double sum = 0;
  for (int64_t i = 0; i < call.elements(0); ++i) sum += x[i] * x[i];
  call.out(0).set(0, sum);
}

void verdict(const Call& call) {
  const double inv_scale = call.in(0)[0];
  const double max_norm = call.attrs().get_double("max_norm");
  double sum = 0;
  for (size_t i = 1; i < call.num_inputs(); ++i) sum += call.in(i)[0];
  const double norm = std::sqrt(sum) * inv_scale;
  const bool finite = std::isfinite(norm);
  const double clip = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
  call.out(0).set(0, norm);
  call.out(1).set(0, finite ? inv_scale * clip : 0.0);
  *call.out_data<int32_t>(2) = finite ? 1 : 0;
}

/// Elements that an update works on: all, or a piece that each tensor holds whole or as the piece.
struct Piece {
  explicit Piece(const Call& call)
      : count(call.attrs().get_int("size", call.elements(0))),
        begin(call.attrs().get_int("begin", 0)) {}
  /// Data of input `i` (or of the output that lies like it) from the piece on.
  template <class P>
  P* at(const Call& call, size_t i, P* data) const {
    return data == nullptr || call.elements(i) == count ? data : data + begin;
  }
  int64_t count;
  int64_t begin;
};

/// Slots of the parameter dtype P, or bf16 with stochastic rounding (input `step`).
template <class P>
class Slot {
 public:
  Slot(const Call& call, const Piece& piece, size_t input, size_t output)
      : rounded_(call.has(input) && call.type(input).dtype == DType::bf16),
        wide_(rounded_ ? nullptr : piece.at(call, input, call.data<P>(input))),
        new_wide_(rounded_ ? nullptr : piece.at(call, input, call.out_data<P>(output))),
        half_(rounded_ ? piece.at(call, input, call.data<BF16>(input)) : nullptr),
        new_half_(rounded_ ? piece.at(call, input, call.out_data<BF16>(output)) : nullptr) {}

  bool present() const { return rounded_ || wide_ != nullptr; }
  P get(int64_t i) const { return rounded_ ? static_cast<P>(to_float(half_[i])) : wide_[i]; }
  void set(int64_t i, P value, uint32_t random) const {
    if (rounded_) {
      new_half_[i] = round_stochastic(static_cast<float>(value), random);
    } else {
      new_wide_[i] = value;
    }
  }
  void keep(int64_t i) const {
    if (rounded_) {
      new_half_[i] = half_[i];
    } else {
      new_wide_[i] = wide_[i];
    }
  }

 private:
  bool rounded_;
  const P* wide_;
  P* new_wide_;
  const BF16* half_;
  BF16* new_half_;
};

/// A random word for every element of the piece; zeros without rounding.
class Words {
 public:
  Words(const Call& call, const Piece& piece, size_t step) : begin_(piece.begin) {
    if (!call.has(step)) return;
    key_ = dropout_key(static_cast<uint64_t>(call.attrs().get_int("seed")),
                       static_cast<uint64_t>(*call.data<int64_t>(step)),
                       static_cast<uint64_t>(call.attrs().get_int("site")));
    numbers_.emplace(call.attrs().get_string("elements"));
  }
  uint32_t operator()(int64_t i) const {
    uint32_t word = 0;
    if (!numbers_) return word;
    numbers_->runs(begin_ + i, 1, [&](int64_t, int64_t number, int64_t) {
      word = element_word(key_, static_cast<uint64_t>(number));
    });
    return word;
  }

 private:
  int64_t begin_;
  uint64_t key_ = 0;
  std::optional<ElementNumbers> numbers_;
};

/// The weights in the dtype kernels read, when asked for: always the last output.
void write_copy(const Call& call, const Out& copy, int64_t i, double w) {
  if (call.attrs().get_string("copy_dtype", "none") != "none") copy.set(i, w);
}

// Inputs w, m, v, g, hyper, factor, apply, step?; outputs w, m, v, copy?.
template <class P>
void adamw_of(const Call& call) {
  const Piece piece(call);
  const P* w = piece.at(call, 0, call.data<P>(0));
  const P* g = piece.at(call, 3, call.data<P>(3));
  P* out_w = piece.at(call, 0, call.out_data<P>(0));
  const Slot<P> m(call, piece, 1, 1), v(call, piece, 2, 2);
  const Words words(call, piece, 7);
  const Attrs& attrs = call.attrs();
  const AdamwScalars<P> scalars = adamw_scalars(
      call.data<P>(4), *call.data<P>(5), attrs.get_double("beta1"), attrs.get_double("beta2"),
      attrs.get_double("eps"), attrs.get_double("weight_decay"));
  const bool apply = *call.data<int32_t>(6) != 0;
  const Out copy = call.out(call.num_outputs() - 1);
  for (int64_t i = 0; i < piece.count; ++i) {
    P new_w = w[i];
    if (apply) {
      P new_m = m.get(i), new_v = v.get(i);
      adamw_element(scalars, new_w, new_m, new_v, g[i]);
      const uint32_t word = words(i);
      m.set(i, new_m, first_random(word));
      v.set(i, new_v, second_random(word));
    } else {
      m.keep(i);
      v.keep(i);
    }
    out_w[i] = new_w;
    write_copy(call, copy, i, new_w);
  }
}

// Inputs w, g, momentum?, hyper, factor, apply, step?; outputs w, momentum?, copy?.
template <class P>
void sgd_of(const Call& call) {
  const Piece piece(call);
  const P* w = piece.at(call, 0, call.data<P>(0));
  const P* g = piece.at(call, 1, call.data<P>(1));
  P* out_w = piece.at(call, 0, call.out_data<P>(0));
  const Slot<P> buffer(call, piece, 2, 1);
  const Words words(call, piece, 6);
  const SgdScalars<P> scalars = {
      *call.data<P>(4), static_cast<P>(call.attrs().get_double("momentum")),
      static_cast<P>(call.attrs().get_double("weight_decay")), call.data<P>(3)[0]};
  const bool apply = *call.data<int32_t>(5) != 0;
  const Out copy = call.out(call.num_outputs() - 1);
  for (int64_t i = 0; i < piece.count; ++i) {
    P new_w = w[i];
    if (buffer.present() && apply) {
      P new_buffer = buffer.get(i);
      sgd_momentum_element(scalars, new_w, new_buffer, g[i]);
      buffer.set(i, new_buffer, first_random(words(i)));
    } else if (buffer.present()) {
      buffer.keep(i);
    } else if (apply) {
      new_w = sgd_element(scalars, new_w, g[i]);
    }
    out_w[i] = new_w;
    write_copy(call, copy, i, new_w);
  }
}

void adamw(const Call& call) {
  call.type(0).dtype == DType::f64 ? adamw_of<double>(call) : adamw_of<float>(call);
}

void sgd(const Call& call) {
  call.type(0).dtype == DType::f64 ? sgd_of<double>(call) : sgd_of<float>(call);
}

}  // namespace

RefKernel sum_squares_kernel() { return {&sum_squares}; }
RefKernel verdict_kernel() { return {&verdict}; }
RefKernel adamw_kernel() { return {&adamw}; }
RefKernel sgd_kernel() { return {&sgd}; }

}  // namespace weft::ref
