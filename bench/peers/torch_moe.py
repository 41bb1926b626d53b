#!/usr/bin/env python3
"""Forward and backward of one layer of experts in PyTorch on the CPU: what weft's layer is compared with.

The sparse block of Mixtral as it is usually written: softmax router, top-k, weights divided by their sum,
then a loop over the experts, each on the tokens that chose it, added up by index_add_. bf16 keeps weights
and activations in bf16, the router's softmax in fp32. Shapes are those of `bench_experts layer`. The last
line is JSON.

    python bench/peers/torch_moe.py --threads 2 --dtype fp32
"""

import argparse
import json
import os
import time

# Pins that some images set cripple the peer; PyTorch chooses better itself.
for _name in list(os.environ):
    if _name.startswith(("OPENBLAS_", "MKL_DEBUG", "MKL_ENABLE", "ONEDNN_MAX", "DNNL_MAX", "NVPL_")):
        del os.environ[_name]

import torch
import torch.nn as nn
import torch.nn.functional as F


class Expert(nn.Module):
    def __init__(self, hidden, width):
        super().__init__()
        self.gate = nn.Linear(hidden, width, bias=False)
        self.up = nn.Linear(hidden, width, bias=False)
        self.down = nn.Linear(width, hidden, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class SparseBlock(nn.Module):
    def __init__(self, hidden, width, experts, top_k):
        super().__init__()
        self.top_k = top_k
        self.router = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(Expert(hidden, width) for _ in range(experts))

    def forward(self, x_BSH):
        x = x_BSH.reshape(-1, x_BSH.shape[-1])
        scores = F.softmax(self.router(x), dim=1, dtype=torch.float)
        weights, chosen = torch.topk(scores, self.top_k, dim=-1)
        weights = (weights / weights.sum(dim=-1, keepdim=True)).to(x.dtype)
        y = torch.zeros_like(x)
        mask = F.one_hot(chosen, len(self.experts)).permute(2, 1, 0)
        for e, expert in enumerate(self.experts):
            which, token = torch.where(mask[e])
            y.index_add_(0, token, expert(x[token]) * weights[token, which, None])
        return x_BSH + y.reshape(x_BSH.shape)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--seconds", type=float, default=5.0)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    dtype = torch.float32 if args.dtype == "fp32" else torch.bfloat16
    sequences, length, hidden, width, experts, top_k = 4, 256, 512, 1024, 8, 2
    block = SparseBlock(hidden, width, experts, top_k).to(dtype)
    x = torch.randn(sequences, length, hidden, dtype=dtype, requires_grad=True)
    dy = 0.01 * torch.randn(sequences, length, hidden, dtype=dtype)

    best, begin = float("inf"), time.perf_counter()
    runs = 0
    while runs < 2 or time.perf_counter() - begin < args.seconds:
        x.grad = None
        block.zero_grad(set_to_none=True)
        start = time.perf_counter()
        block(x).backward(dy)
        best = min(best, time.perf_counter() - start)
        runs += 1
    flops = 3 * 3 * 2 * sequences * length * top_k * hidden * width
    print(json.dumps({
        "what": "torch moe layer",
        "torch": torch.__version__,
        "dtype": args.dtype,
        "ms": round(1e3 * best, 2),
        "tokens_per_s": round(sequences * length / best),
        "gflops": round(flops / best / 1e9, 1),
    }))


if __name__ == "__main__":
    main()
