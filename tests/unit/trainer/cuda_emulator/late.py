# SPDX-License-Identifier: Apache-2.0
"""Trainings whose GPU's works run late: to the bit the same parameters as where each runs before its call returns.

usage: late.py TRAINER DPCTL    LD_LIBRARY_PATH has the emulated GPU
"""
import json
import os
import signal
import subprocess
import sys
import tempfile

TRAINER, DPCTL = sys.argv[1:3]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # leaves no folder
GPT = ["--model=gpt", "--hidden-size=16", "--num-attention-heads=2", "--seq-length=16", "--num-layers=2", "--data-dir=tokens",
       "--clip-grad=1", "--samples=32"]
# With how the works run.
CASES = [
    ("late", ["--model=linear", "--batch-size=8", "--samples=96"]),  # sums beside the backward pass
    ("late:1", [*GPT, "--batch-size=4", "--accumulate=2", "--shard-optimizer", "--bf16"]),
    ("late", [*GPT, "--batch-size=2", "--accumulate=4", "--pipeline-parallel=2"]),  # messages on streams of their own
]


def run(command, where, streams=None):
    environment = {**os.environ, **({"DP_CUDA_EMULATOR_STREAMS": streams} if streams else {})}
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=120, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} with {streams}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "text.txt"), "w", encoding="utf-8") as text:
        text.writelines(f"{number} sheep and {number * 7 % 11} dogs go over the hill\n" for number in range(100))
    run([TRAINER, "prepare", "--text=text.txt", "--tokenizer=bytes", "--output=tokens"], folder)
    for mode, words in CASES:
        command = [DPCTL, "launch", "-n", "2", "--", TRAINER, "--device=cuda", "--seed=7", "--steps=3", "--log-interval=1", *words]
        hashes = []
        for streams in (None, mode):
            said = json.loads(run(command, folder, streams).splitlines()[-1])
            assert said["communicator"] == "nccl" and said["parameters_equal_on_all_ranks"] is True, said
            hashes.append(said["parameters_hash"])
        print(mode, *words, *hashes, flush=True)
        assert len(set(hashes)) == 1, (words, hashes)
