#!/usr/bin/env python3
"""Training step of gpt2-124M in PyTorch on the CPU: the rate weft is compared with.

Written the way PyTorch documents a fast GPT-2: scaled_dot_product_attention(is_causal), fused AdamW,
tied head, tanh GELU, bf16 through autocast. Prints one line per step and, last, one JSON line.

    python bench/peers/torch_gpt2.py --threads 2 --dtype fp32 --steps 3
"""

import argparse
import json
import os
import statistics
import time

# Pins that some images set cripple the peer; PyTorch chooses better itself.
for _name in list(os.environ):
    if _name.startswith(("OPENBLAS_", "MKL_DEBUG", "MKL_ENABLE", "ONEDNN_MAX", "DNNL_MAX", "NVPL_")):
        del os.environ[_name]

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.attn_out = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.fc = nn.Linear(width, 4 * width)
        self.fc_out = nn.Linear(4 * width, width)

    def forward(self, x_BSH):
        b, s, h = x_BSH.shape
        q, k, v = (
            t.view(b, s, self.heads, h // self.heads).transpose(1, 2)
            for t in self.qkv(self.ln_1(x_BSH)).split(h, dim=2)
        )
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x_BSH = x_BSH + self.attn_out(o.transpose(1, 2).reshape(b, s, h))
        return x_BSH + self.fc_out(F.gelu(self.fc(self.ln_2(x_BSH)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, vocab, width, layers, heads, positions):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.wte.weight
        for p in self.parameters():
            if p.ndim >= 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids_BS, targets_BS):
        x = self.wte(ids_BS) + self.wpe.weight[: ids_BS.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.flatten(0, 1), targets_BS.flatten())


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--steps", type=int, default=3, help="timed steps, after --warmup")
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--seq-len", type=int, default=1024)
    parser.add_argument("--vocab", type=int, default=50257)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--compile", action="store_true", help="torch.compile (needs g++)")
    return parser.parse_args()


def main():
    args = parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model = Gpt2(args.vocab, args.width, args.layers, args.heads, args.seq_len)
    decay = [p for p in model.parameters() if p.ndim >= 2]
    plain = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [dict(params=decay, weight_decay=0.1), dict(params=plain, weight_decay=0.0)],
        lr=6e-4, betas=(0.9, 0.95), eps=1e-8, fused=True,
    )
    params = decay + plain
    step_model = torch.compile(model) if args.compile else model
    ids = torch.randint(0, 257, (args.micro_batch, args.seq_len + 1))
    tokens = args.micro_batch * args.seq_len
    print(
        f"torch {torch.__version__} {sum(p.numel() for p in params) / 1e6:.1f}M parameters, {args.dtype}, "
        f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}, "
        f"mkl {torch.backends.mkl.is_available()}, mkldnn {torch.backends.mkldnn.is_available()}",
        flush=True,
    )
    times = []
    for step in range(args.warmup + args.steps):
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = step_model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        elapsed = time.perf_counter() - begin
        note = " (warm-up)" if step < args.warmup else ""
        if not note:
            times.append(elapsed)
        print(f"step {step + 1} loss {loss.item():.4f} {elapsed:.2f} s {tokens / elapsed:.1f} tokens/s{note}",
              flush=True)
    print(json.dumps({
        "peer": "torch", "version": torch.__version__, "dtype": args.dtype, "compile": args.compile,
        "threads": args.threads, "micro_batch": args.micro_batch, "seq_len": args.seq_len,
        "step_s": statistics.median(times), "tokens_per_s": tokens / statistics.median(times),
    }))


if __name__ == "__main__":
    main()
