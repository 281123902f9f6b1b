# SPDX-License-Identifier: Apache-2.0
"""How often a step of a training waits until the GPU has done all that was queued, so that the GPU is idle until the host has queued
more: never, whatever decides about the step, and whoever measures it, but for an average of the parameters and for checkpoints.

usage: waits.py TRAINER    LD_LIBRARY_PATH has the emulated GPU
"""
import os
import re
import subprocess
import sys
import tempfile

TRAINER, = sys.argv[1:]
FEW, MANY = 25, 40
MODEL = ["--model=linear", "--device=cuda", "--samples=700", "--batch-size=8"]
TRAINING, MEASURING = [TRAINER, *MODEL, "--steps={}"], [TRAINER, "measure-performance", *MODEL, "--warmup=1", "--iterations={}"]
CASES = [  # command, and how often a step may wait
    (TRAINING, 0),
    ([*TRAINING, "--skip-bad-steps"], 0),
    ([*TRAINING, "--clip-grad=0.1"], 0),
    ([*TRAINING, "--clip-grad=0.1", "--optimizer=sgd", "--accumulate=2"], 0),
    # An average is several operations, which cannot be skipped on the GPU.
    ([*TRAINING, "--clip-grad=0.1", "--ema-decay=0.9"], 1),
    (MEASURING, 0),
    # A checkpoint after each step. Of its three pieces the host waits for the last one, and for five results of all ranks; for a sixth,
    # whether to stop, not always after each step: how often is a matter of time. All three pieces would be 8 at least.
    ([*TRAINING, "--checkpoint-dir=kept", "--save-interval=1"], 7.5),
]


def waits(command, steps):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([word.format(steps) for word in command], cwd=folder, capture_output=True, text=True, timeout=60,
                              env={**os.environ, "DP_CUDA_EMULATOR_WAITS": "said"})
    said = re.search(r"the host waited (\d+) times", done.stderr)
    if done.returncode != 0 or not said:
        sys.exit(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return int(said[1])


failed = False
for command, allowed in CASES:
    few, many = (3, 6) if "--save-interval=1" in command else (FEW, MANY)
    of_a_step = (waits(command, many) - waits(command, few)) / (many - few)
    print(f"{' '.join(command[1:])}: {of_a_step:.2f} waits a step, {allowed} allowed")
    failed |= of_a_step > allowed
sys.exit(failed)
