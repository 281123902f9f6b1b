# SPDX-License-Identifier: Apache-2.0
"""How often a step of a training waits until the GPU has done all that was queued, so that the GPU is idle until the host has queued
more: never, whatever decides about the step, and whoever measures it, but for an average of the parameters and for checkpoints.

usage: waits.py TRAINER    LD_LIBRARY_PATH has the emulated GPU
"""
import json
import os
import re
import subprocess
import sys
import tempfile

TRAINER, = sys.argv[1:]
FEW, MANY = 25, 40
IMAGES, SIDE = 90_000, 28  # more bytes than are held in memory
MODEL = ["--model=linear", "--device=cuda", "--samples=700", "--batch-size=8"]
TRAINING, MEASURING = [TRAINER, *MODEL, "--steps={}"], [TRAINER, "measure-performance", *MODEL, "--warmup=1", "--iterations={}"]
CASES = [  # command, and how often a step may wait
    (TRAINING, 0),
    ([*TRAINING, "--cuda-graphs=on"], 0),
    ([*TRAINING, "--skip-bad-steps"], 0),
    ([*TRAINING, "--clip-grad=0.1"], 0),
    ([*TRAINING, "--clip-grad=0.1", "--cuda-graphs=on"], 0),
    ([*TRAINING, "--clip-grad=0.1", "--optimizer=sgd", "--accumulate=2"], 0),
    # An average is several operations, which cannot be skipped on the GPU.
    ([*TRAINING, "--clip-grad=0.1", "--ema-decay=0.9"], 1),
    (MEASURING, 0),
    # Its batches of more than 64 KiB are read from files.
    ([TRAINER, "--model=ffn", "--device=cuda", "--batch-size=100", "--data-dir={images}", "--steps={}"], 0),
    # A checkpoint after each step. Of its three pieces the host waits for the last one, and for five results of all ranks; for a sixth,
    # whether to stop, not always after each step: how often is a matter of time. All three pieces would be 8 at least.
    ([*TRAINING, "--checkpoint-dir=kept", "--save-interval=1"], 7.5),
]


def write_rows(file, kind, shape, width):
    header = str({"descr": kind, "fortran_order": False, "shape": shape})
    with open(file, "wb") as to:
        to.write(b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + header.ljust(117).encode() + b"\n")
        to.truncate(128 + width * shape[0])


def write_images(folder):
    """As `trainer prepare` does; all black, and of the first class."""
    facts = {"targets": "classes", "channels": 1, "side": SIDE, "classes": [str(number) for number in range(10)], "scale": 1, "shift": 0}
    with open(f"{folder}/images.json", "w", encoding="utf-8") as to:
        json.dump(facts, to)
    for part, count in (("train", IMAGES), ("val", 100)):
        write_rows(f"{folder}/{part}_images.npy", "|u1", (count, 1, SIDE, SIDE), SIDE * SIDE)
        write_rows(f"{folder}/{part}_labels.npy", "<i4", (count,), 4)


def waits(command, steps, images):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([word.format(steps, images=images) for word in command], cwd=folder, capture_output=True, text=True, timeout=60,
                              env={**os.environ, "DP_CUDA_EMULATOR_WAITS": "said"})
    said = re.search(r"the host waited (\d+) times", done.stderr)
    if done.returncode != 0 or not said:
        sys.exit(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return int(said[1])


failed = False
with tempfile.TemporaryDirectory() as stored:
    write_images(stored)
    for command, allowed in CASES:
        few, many = (3, 6) if "--save-interval=1" in command or "--model=ffn" in command else (FEW, MANY)
        of_a_step = (waits(command, many, stored) - waits(command, few, stored)) / (many - few)
        print(f"{' '.join(command[1:])}: {of_a_step:.2f} waits a step, {allowed} allowed")
        failed |= of_a_step > allowed
sys.exit(failed)
