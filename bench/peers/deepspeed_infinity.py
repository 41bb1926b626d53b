#!/usr/bin/env python3
"""DeepSpeed ZeRO-Infinity on its CPU accelerator: gpt2-124M with optimizer states (and, with --weights, the
weights too) on NVMe.

Run with DS_ACCELERATOR=cpu; needs torch, deepspeed and ninja in the environment and libaio-dev on the
machine. Prints one line per step and, last, one JSON line. bench/infinity.sh runs it beside weft.
"""

import argparse
import json
import os
import statistics
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")
for key, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_SIZE": "1",
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29651"}.items():
    os.environ.setdefault(key, value)

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--folder", required=True, help="NVMe folder")
parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
parser.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
parser.add_argument("--steps", type=int, default=3, help="timed steps, after one warm-up")
parser.add_argument("--micro-batch", type=int, default=1)
parser.add_argument("--accumulation", type=int, default=1)
parser.add_argument("--seq-len", type=int, default=1024)
parser.add_argument("--weights", action="store_true", help="weights on NVMe too")
args = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(args.threads)

import torch  # noqa: E402

torch.set_num_threads(args.threads)
torch.manual_seed(0)

import deepspeed  # noqa: E402
from torch_gpt2 import Gpt2  # noqa: E402

# Four states each for the sub-group that is updated, the one being read and the one being written.
nvme = {"device": "nvme", "nvme_path": args.folder, "pin_memory": False, "buffer_count": 16}
zero = {"stage": 3, "offload_optimizer": {**nvme, "pipeline_read": True, "pipeline_write": True},
        "sub_group_size": 1 << 24, "stage3_max_live_parameters": 1 << 30}
if args.weights:
    zero["offload_param"] = {**nvme, "buffer_size": 1 << 27}
config = {
    "train_micro_batch_size_per_gpu": args.micro_batch,
    "gradient_accumulation_steps": args.accumulation,
    "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 6e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}},
    "bf16": {"enabled": args.dtype == "bf16"},
    "zero_optimization": zero,
    "aio": {"block_size": 1 << 20, "queue_depth": 16, "intra_op_parallelism": 1, "single_submit": False,
            "overlap_events": True},
    "steps_per_print": 1 << 30,
}
deepspeed.init_distributed("gloo")
model = Gpt2(50257, 768, 12, 12, max(1024, args.seq_len))
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
ids = torch.randint(0, 257, (args.micro_batch, args.seq_len + 1))
tokens = args.micro_batch * args.accumulation * args.seq_len
print(f"torch {torch.__version__} deepspeed {deepspeed.__version__} {args.dtype} "
      f"{torch.get_num_threads()} threads", flush=True)
times = []
for step in range(args.steps + 1):
    begin = time.perf_counter()
    for _ in range(args.accumulation):
        loss = engine(ids[:, :-1], ids[:, 1:])
        engine.backward(loss)
        engine.step()
    elapsed = time.perf_counter() - begin
    if step > 0:
        times.append(elapsed)
    print(f"step {step + 1} loss {loss.item():.4f} {elapsed:.2f} s {tokens / elapsed:.1f} tokens/s", flush=True)
middle = statistics.median(times)
print(json.dumps({"peer": "deepspeed_infinity", "dtype": args.dtype, "weights_on_nvme": args.weights,
                  "step_s": middle, "tokens_per_s": tokens / middle}))
