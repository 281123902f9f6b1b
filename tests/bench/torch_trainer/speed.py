# SPDX-License-Identifier: Apache-2.0
"""speed.py MODEL BATCH WARMUP ITERATIONS THREADS WAY: how fast PyTorch trains it, as `trainer measure-performance` says of ours: JSON.

A WAY is plain, or some of foreach (Adam updates all parameters at once), fused (in one kernel), channels_last (convolutions' images), compile
(torch.compile) and bf16 (autocast), with + between them. The WAY each, or each+bf16, tries all that this PyTorch has for the model: {"ways": {WAY: samples
a second}}.
"""
import itertools
import json
import sys
import time

import torch
from models import LOSSES, MODELS, random_batch, train_step

CONVOLVED = ("cnn", "unet2d")


def blas():
    """What multiplies its matrices, of the several that Debian lets one choose from."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return ", ".join(sorted({"/".join(line.split()[-1].split("/")[-2:]) for line in maps if "blas" in line}))


def ways_of(name, bf16):
    """All of them, also those that this PyTorch refuses."""
    adams = ["", "foreach", "fused"]
    layouts = ["", "channels_last"] if name in CONVOLVED else [""]
    compiled = ["", "compile"] if hasattr(torch, "compile") else [""]
    precision = ["bf16" if bf16 else ""]
    return ["+".join(filter(None, words)) or "plain" for words in itertools.product(adams, layouts, compiled, precision)]


def in_bf16(model):
    def forward(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x).float()

    return forward


def samples_per_second(name, rows, warm_up, iterations, way):
    torch.manual_seed(1)
    words = way.split("+")
    model = MODELS[name]()
    x, target = random_batch(name, rows)
    if "channels_last" in words:
        model, x = (thing.to(memory_format=torch.channels_last) for thing in (model, x))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, **{word: True for word in ("foreach", "fused") if word in words})
    trained = torch.compile(model) if "compile" in words else model
    if "bf16" in words:
        trained = in_bf16(trained)
    for _ in range(warm_up):
        train_step(trained, LOSSES[name], optimizer, x, target)
    began = time.perf_counter()
    for _ in range(iterations):
        train_step(trained, LOSSES[name], optimizer, x, target)
    return rows * iterations / (time.perf_counter() - began)


def try_each(name, bf16, *sizes):
    found = {}
    for way in ways_of(name, bf16):
        try:
            found[way] = samples_per_second(name, *sizes, way)
        except (RuntimeError, TypeError) as why:  # PyTorch 1.13's fused Adam is CUDA's alone, 1.12 knows none; torch.compile needs a compiler
            print(f"{name}, {way}: {why}", file=sys.stderr)
    return {"ways": found}


def main(name, rows, warm_up, iterations, threads, way):
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)  # as the trainer does
    if way.startswith("each"):
        found = try_each(name, way == "each+bf16", rows, warm_up, iterations)
    else:
        found = {"samples_per_second": samples_per_second(name, rows, warm_up, iterations, way)}
    print(json.dumps({**found, "threads": torch.get_num_threads(), "version": torch.__version__, "blas": blas()}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:6]), sys.argv[6])
