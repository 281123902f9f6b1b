# SPDX-License-Identifier: Apache-2.0
"""Four ranks train; before the first step the last one compiles models for as many seconds as it is told, while the others wait for it. Without
inductor, which wants a C++ compiler and PyTorch's headers: what takes long in Python is Dynamo and autograd."""
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 3:
    end = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end:
        torch.compiler.reset()
        layers = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8)) for _ in range(40)]
        torch.compile(torch.nn.Sequential(*layers), backend="aot_eager")(torch.ones(2, 8)).sum().backward()
for _ in range(5):
    dist.all_reduce(torch.ones(8))
print(f"rank {dist.get_rank()} has trained")
