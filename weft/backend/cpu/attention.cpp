// attention and its gradient: one task per sequence and key/value head (so no two workers add to
// the same dk, dv), split further by query blocks in the forward pass when there are few.
#include <algorithm>
#include <numeric>

#include "weft/backend/cpu/amx.h"
#include "weft/backend/cpu/attention_isa.h"
#include "weft/backend/cpu/cpu_kernel.h"
#include "weft/backend/cpu/parallel.h"

namespace weft::cpu {
namespace {

class AttentionKernel : public CpuKernel {
 public:
  AttentionKernel(const KernelSpec& spec, int threads)
      : sequences_(spec.inputs.at(0).shape.at(0)),
        float_(float_index(spec.inputs[0].dtype)),
        threads_(std::max(threads, 1)),
        isa_(spec.inputs[0].dtype == DType::bf16 && has_amx() ? amx_attention_isa()
                                                              : attention_isa()) {
    shape_.positions = spec.inputs[0].shape.at(1);
    shape_.head_dim = spec.attrs.get_int("head_dim");
    shape_.num_heads = spec.attrs.get_int("num_heads");
    shape_.num_kv_heads = spec.attrs.get_int("num_kv_heads");
    shape_.scale = static_cast<float>(spec.attrs.get_double("scale"));
    shape_.window = spec.attrs.get_int("window", 0);
    // A rank without any heads has nothing to do.
    const bool none = shape_.num_heads == 0 && shape_.num_kv_heads == 0;
    WEFT_CHECK(none || (shape_.num_kv_heads > 0 && shape_.num_heads % shape_.num_kv_heads == 0),
               "cpu.attention", "{} heads over {} key/value heads", shape_.num_heads,
               shape_.num_kv_heads);
  }

 protected:
  /// Advances the operands to sequence `b`.
  AttentionArgs of_sequence(AttentionArgs args, int64_t b) const {
    const int64_t size = float_ != 0 ? 2 : 4;
    const int64_t q = b * shape_.positions * shape_.num_heads * shape_.head_dim * size;
    const int64_t kv = b * shape_.positions * shape_.num_kv_heads * shape_.head_dim * size;
    args.q = static_cast<const char*>(args.q) + q;
    args.k = static_cast<const char*>(args.k) + kv;
    args.v = static_cast<const char*>(args.v) + kv;
    args.o = static_cast<char*>(args.o) + q;
    args.lse += b * shape_.num_heads * shape_.positions;
    if (args.segments != nullptr) args.segments += b * shape_.positions;
    if (args.d_o != nullptr) {
      args.d_o = static_cast<const char*>(args.d_o) + q;
      args.dq = static_cast<char*>(args.dq) + q;
      args.dk = static_cast<char*>(args.dk) + kv;
      args.dv = static_cast<char*>(args.dv) + kv;
    }
    return args;
  }
  int64_t workers(int64_t tasks) const { return std::min<int64_t>(threads_, tasks); }

  AttentionShape shape_;
  int64_t sequences_;
  int float_;
  int threads_;
  const AttentionIsa& isa_;
};

class Attention final : public AttentionKernel {
 public:
  Attention(const KernelSpec& spec, int threads) : AttentionKernel(spec, threads) {
    const int64_t tasks = sequences_ * shape_.num_kv_heads;
    const int64_t blocks = (shape_.positions + isa_.query_block - 1) / isa_.query_block;
    // Split when whole heads would leave workers idle for long.
    if (tasks % threads_ != 0 && tasks < 8 * threads_) {
      splits_ = std::min<int64_t>(blocks, threads_ / std::gcd<int64_t>(tasks, threads_));
    }
  }
  int64_t workspace_bytes() const override {
    return workers(num_tasks()) * isa_.forward_floats(shape_) * 4;
  }
  void run(const KernelArgs& args) override {
    AttentionArgs all;
    all.q = in(args, 0), all.k = in(args, 1), all.v = in(args, 2);
    all.segments = in<int32_t>(args, 3);
    all.o = out(args, 0), all.lse = out<float>(args, 1);
    auto* scratch = static_cast<float*>(args.workspace);
    const int64_t floats = isa_.forward_floats(shape_);
    parallel_dealt(threads_, num_tasks(), [&](int64_t task, int64_t worker) {
      const int64_t split = task % splits_, head = task / splits_;
      isa_.forward[float_](shape_, of_sequence(all, head / shape_.num_kv_heads),
                           head % shape_.num_kv_heads, split, splits_, scratch + worker * floats);
    });
  }

 private:
  int64_t num_tasks() const { return sequences_ * shape_.num_kv_heads * splits_; }

  int64_t splits_ = 1;
};

class AttentionGrad final : public AttentionKernel {
 public:
  using AttentionKernel::AttentionKernel;
  int64_t workspace_bytes() const override {
    return workers(sequences_ * shape_.num_kv_heads) * isa_.backward_floats(shape_) * 4;
  }
  void run(const KernelArgs& args) override {
    AttentionArgs all;
    all.q = in(args, 0), all.k = in(args, 1), all.v = in(args, 2);
    all.segments = in<int32_t>(args, 3);
    all.o = const_cast<void*>(in(args, 4));
    all.lse = const_cast<float*>(in<float>(args, 5));
    all.d_o = in(args, 6);
    all.dq = out(args, 0), all.dk = out(args, 1), all.dv = out(args, 2);
    auto* scratch = static_cast<float*>(args.workspace);
    const int64_t floats = isa_.backward_floats(shape_);
    parallel_dealt(threads_, sequences_ * shape_.num_kv_heads, [&](int64_t task, int64_t worker) {
      isa_.backward[float_](shape_, of_sequence(all, task / shape_.num_kv_heads),
                            task % shape_.num_kv_heads, scratch + worker * floats);
    });
  }
};

}  // namespace

KernelPtr make_attention(const KernelSpec& spec, int threads) {
  return std::make_unique<Attention>(spec, threads);
}
KernelPtr make_attention_grad(const KernelSpec& spec, int threads) {
  return std::make_unique<AttentionGrad>(spec, threads);
}

}  // namespace weft::cpu
