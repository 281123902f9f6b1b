# SPDX-License-Identifier: Apache-2.0
"""Trainings with --cuda-graphs=on: to the bit the same parameters as without, and of each step the host queues far less.

usage: graphs.py TRAINER DPCTL CASE    LD_LIBRARY_PATH has the emulated GPU
"""
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile

TRAINER, DPCTL, CASE = sys.argv[1:]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # leaves no folder
FEW, MANY = (3, 4) if CASE == "unet2d" else (5, 9)  # steps, of one epoch; the third one is the first with graphs
GPT = ["--model=gpt", "--hidden-size=16", "--num-attention-heads=2", "--seq-length=16", "--num-layers=2", "--data-dir=tokens",
       "--samples=64", "--batch-size=2"]
IMAGES = ["--data-dir=images", "--batch-size=2"]
# How the works run, words, and how much a step queues without graphs and with them.
CASES = {
    "cnn": ("late:1", ["--model=cnn", *IMAGES], 36, 1),
    # Two batches a step; SGD's numbers are the same in each, so that only the batches differ.
    "ffn": (None, ["--model=ffn", *IMAGES, "--accumulate=2", "--optimizer=sgd"], 45, 1),
    # Another norm, and the download of what the device decides, between graphs.
    "clip": ("late:2", ["--model=linear", "--batch-size=2", "--samples=40", "--clip-grad=0.1"], 24, 4),
    # Four operations move the average.
    "average": (None, ["--model=linear", "--batch-size=2", "--samples=40", "--ema-decay=0.9"], 39, 1),
    # Each step has a key of its own for what it drops.
    "gpt": ("late:3", [*GPT, "--bf16", "--attention-dropout=0.1", "--hidden-dropout=0.1", "--clip-grad=1", "--recompute"], 117, 4),
    # Tests and checkpoints between steps, and a line of the log, for which the host waits.
    "between": (None, [*GPT, "--eval-interval=2", "--eval-iters=1", "--checkpoint-dir=kept", "--save-interval=3", "--metrics=m",
                       "--log-interval=4"], 0, 0),
    # Sums go on beside the backward pass.
    "ranks": ("late", ["--model=linear", "--batch-size=2", "--samples=80", "--clip-grad=1"], 27, 8),
    # Many convolutions; the parts of a workspace that they and the kernels have lie over each other.
    "unet2d": (None, ["--model=unet2d", "--image-size=256", "--init-features=1", "--batch-size=1", "--samples=20"], 242, 1),
    "stages": ("late", [*GPT, "--accumulate=2", "--pipeline-parallel=2"], 0, 0),
    "sharded": (None, [*GPT, "--shard-optimizer"], 0, 0),
    # CUDA refuses to capture, has no memory for graphs or their launches, or does not set arguments: one line says so.
    **{why: (None, ["--model=linear", "--batch-size=2", "--samples=40"], 0, 0) for why in ("refused", "upload", "launch", "set")},
}
REFUSALS = {"refused": "capturing", "upload": "capturing", "launch": "launching", "set": "launching"}
RANKS = {"ranks": 2, "stages": 2, "sharded": 2}


def make_images(folder):
    os.mkdir(folder)
    draw = random.Random(1)
    for name, count in (("train", 40), ("t10k", 2)):
        with open(f"{folder}/{name}-images-idx3-ubyte", "wb") as images, open(f"{folder}/{name}-labels-idx1-ubyte", "wb") as labels:
            images.write(struct.pack(">IIII", 2051, count, 28, 28) + draw.randbytes(count * 28 * 28))
            labels.write(struct.pack(">II", 2049, count) + bytes(draw.randrange(10) for _ in range(count)))


def train(graphs, steps):
    """The result, how often the host queued something, and what it said besides."""
    streams, words, *_ = CASES[CASE]
    ranks = [DPCTL, "launch", "-n", str(RANKS[CASE]), "--"] if CASE in RANKS else []
    environment = {**os.environ, "DP_CUDA_EMULATOR_LAUNCHES": "said", **({"DP_CUDA_EMULATOR_STREAMS": streams} if streams else {}),
                   **({"DP_CUDA_EMULATOR_GRAPHS": CASE} if CASE in REFUSALS else {})}
    with tempfile.TemporaryDirectory() as folder:
        make_images(f"{folder}/images")
        if "--data-dir=tokens" in words:
            with open(f"{folder}/text.txt", "w", encoding="utf-8") as text:
                text.writelines(f"{number} sheep and {number * 7 % 11} dogs go over the hill\n" for number in range(100))
            subprocess.run([TRAINER, "prepare", "--text=text.txt", "--tokenizer=bytes", "--output=tokens"], cwd=folder, check=True,
                           capture_output=True)
        done = subprocess.run([*ranks, TRAINER, "--device=cuda", "--seed=7", f"--steps={steps}", f"--cuda-graphs={graphs}", *words],
                              cwd=folder, capture_output=True, text=True, timeout=120, env=environment)
    if done.returncode != 0:
        sys.exit(f"{words} with --cuda-graphs={graphs}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    queued = [int(number) for number in re.findall(r"the host queued something (\d+) times", done.stderr)]
    return json.loads(done.stdout.splitlines()[-1]), max(queued), done.stdout + done.stderr


results = {}
for mode in ("off", "on"):
    few, many = train(mode, FEW), train(mode, MANY)
    results[mode] = ([run[0]["parameters_hash"] for run in (few, many)], (many[1] - few[1]) / (MANY - FEW), few[2])
    print(f"{CASE}, graphs {mode}: {results[mode][0]}, queued {results[mode][1]:.1f} times a step", flush=True)
assert results["on"][0] == results["off"][0], "other parameters"
assert len(set(results["on"][0])) == 2, "the steps change nothing"
_, _, without, with_graphs = CASES[CASE]
if without:
    assert results["off"][1] >= without and results["on"][1] <= with_graphs, f"{without} or more, and {with_graphs} or fewer with graphs"
said = results["on"][2].count(f"the training went on without graphs: {REFUSALS.get(CASE, '')}")
assert said == (CASE in REFUSALS), results["on"][2]
if CASE in REFUSALS:
    assert results["on"][1] == results["off"][1], "not each call by itself"
