# SPDX-License-Identifier: Apache-2.0
"""speed.py MODEL BATCH WARMUP ITERATIONS THREADS: how fast PyTorch trains it, as `trainer measure-performance` says of ours: JSON."""
import json
import sys
import time

import torch
from models import LOSSES, MODELS, random_batch, train_step


def blas():
    """What multiplies its matrices, of the several that Debian lets one choose from."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return ", ".join(sorted({line.split("/")[-1].strip() for line in maps if "blas" in line}))


def main(name, rows, warm_up, iterations, threads):
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)  # as the trainer does
    torch.manual_seed(1)
    model = MODELS[name]()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, target = random_batch(name, rows)
    for _ in range(warm_up):
        train_step(model, LOSSES[name], optimizer, x, target)
    began = time.perf_counter()
    for _ in range(iterations):
        train_step(model, LOSSES[name], optimizer, x, target)
    seconds = time.perf_counter() - began
    print(json.dumps({"samples_per_second": rows * iterations / seconds, "threads": torch.get_num_threads(), "version": torch.__version__, "blas": blas(),
                      "parameters": sum(parameter.numel() for parameter in model.parameters())}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
