#!/usr/bin/env python3
"""DeepSpeed's CPUAdam on one large fp32 tensor: seconds per step and GB/s at 28 bytes per parameter.

Needs torch, deepspeed and ninja in the environment; run with DS_ACCELERATOR=cpu. The last line is JSON.
"""

import argparse
import json
import os
import statistics
import time

parser = argparse.ArgumentParser()
parser.add_argument("--elements", type=int, default=1 << 25)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--repeats", type=int, default=15)
args = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(args.threads)

import torch  # noqa: E402
from deepspeed.ops.adam import DeepSpeedCPUAdam  # noqa: E402

torch.set_num_threads(args.threads)
weight = torch.nn.Parameter(torch.randn(args.elements))
weight.grad = torch.randn(args.elements)
optimizer = DeepSpeedCPUAdam([weight], lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
times = []
for repeat in range(args.repeats + 3):
    begin = time.perf_counter()
    optimizer.step()
    if repeat >= 3:
        times.append(time.perf_counter() - begin)
best = min(times)
print(json.dumps({"peer": "deepspeed_cpuadam", "elements": args.elements, "threads": args.threads,
                  "best_s": best, "median_s": statistics.median(times),
                  "gb_per_s": 28e-9 * args.elements / best}))
