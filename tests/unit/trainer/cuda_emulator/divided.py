# SPDX-License-Identifier: Apache-2.0
"""Ranks with an emulated GPU each divide gpt, over emulated NCCL, and learn what one rank learns.

Messages of the emulated NCCL end on both sides together, and one communicator does one thing after another: what would wait in a circle
on GPUs does so here, and runs into the time limit.

usage: divided.py TRAINER DPCTL CASE    LD_LIBRARY_PATH has the emulated GPU; CASE: of CASES, or death
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

TRAINER, DPCTL, CASE = sys.argv[1:4]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # leaves no folder
SHAPE = ["--model=gpt", "--hidden-size=16", "--num-attention-heads=2", "--seq-length=16", "--data-dir=tokens", "--device=cuda",
         "--seed=7", "--lr=1e-3", "--clip-grad=1", "--steps=3", "--samples=64", "--log-interval=1"]
LAYERS = "--num-layers=4"
INTERLEAVED = ["--pipeline-schedule=interleaved", "--virtual-stages=2"]
DROPOUT = ["--hidden-dropout=0.1", "--attention-dropout=0.1"]


def run(command, where, **more):
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=120, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def process_of_rank(rank, launcher):
    """The trainer of that rank below the process `launcher`."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.path.realpath(folder / "exe") != os.path.realpath(TRAINER) or f"DP_RANK={rank}\0".encode() not in (folder / "environ").read_bytes():
                continue
            above = int(folder.name)
            while above > 1 and above != launcher:
                above = int(pathlib.Path(f"/proc/{above}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if above == launcher:
            return int(folder.name)
    sys.exit(f"rank {rank} is not there")


def a_rank_dies(where):
    """The others, some of whose kernels wait for it, end with it."""
    command = [DPCTL, "launch", "-n", "4", "--", TRAINER, *SHAPE, LAYERS, "--steps=100000", "--epochs=100000", "--tensor-parallel=2", "--pipeline-parallel=2",
               "--batch-size=2", "--accumulate=4"]
    with subprocess.Popen(command, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as launch:
        said = [launch.stdout.readline()]
        while said[-1] and " loss " not in said[-1]:
            said.append(launch.stdout.readline())
        assert said[-1], "".join(said)
        os.kill(process_of_rank(1, launch.pid), signal.SIGKILL)
        try:
            rest, _ = launch.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            launch.terminate()  # and with it the ranks
            raise
        print("exit", launch.returncode, *rest.splitlines()[-3:], sep="\n")
        assert launch.returncode not in (0, None), rest


def train(ranks, words, where):
    layers = [] if any(word.startswith("--num-layers") for word in words) else [LAYERS]
    said = run([DPCTL, "launch", "-n", str(ranks), "--", TRAINER, *SHAPE, *layers, *words], where)
    return json.loads(said.splitlines()[-1])


# Ranks, how they divide the model, batches, and how close the loss comes to that of one rank: fp32 is rounded in another order, bf16 more.
CASES = {
    "tensor": (2, ["--tensor-parallel=2", "--batch-size=8", *DROPOUT], 1e-5),
    "pipeline": (4, ["--pipeline-parallel=4", "--batch-size=1", "--accumulate=8"], 1e-5),
    "gpipe": (4, ["--tensor-parallel=2", "--pipeline-parallel=2", "--batch-size=2", "--accumulate=4", "--pipeline-schedule=gpipe", *DROPOUT], 1e-5),
    "bf16": (4, ["--tensor-parallel=2", "--pipeline-parallel=2", "--sequence-parallel", "--batch-size=2", "--accumulate=4", "--bf16", *INTERLEAVED], 1e-4),
    "sequence": (4, ["--tensor-parallel=2", "--pipeline-parallel=2", "--sequence-parallel", "--batch-size=2", "--accumulate=4", *DROPOUT], 1e-5),
    "interleaved": (4, ["--pipeline-parallel=4", "--batch-size=1", "--accumulate=8", "--num-layers=8", *INTERLEAVED], 1e-5),
    "data": (4, ["--tensor-parallel=2", "--batch-size=2", "--accumulate=2", *DROPOUT], 1e-5),
    "sharded": (4, ["--pipeline-parallel=2", "--batch-size=1", "--accumulate=4", "--shard-optimizer", "--bf16"], 1e-4),
}


def learns_the_same(where, ranks, words, near):
    same = [word for word in words if word.startswith(("--bf16", "--hidden", "--attention", "--num-layers"))]
    one, here = train(1, ["--batch-size=8", *same], where), train(ranks, words, where)
    print(ranks, *words, here["final_loss"], one["final_loss"], here["test_loss"], one["test_loss"], flush=True)
    assert here["communicator"] == "nccl", here
    assert here["parameters_equal_on_all_ranks"] is True, here
    assert "pipeline_bubble" not in here, here
    for loss in ("final_loss", "test_loss"):
        assert abs(here[loss] / one[loss] - 1) < near, (words, loss, here[loss], one[loss])


with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "text.txt"), "w", encoding="utf-8") as text:
        text.writelines(f"{number} sheep and {number * 7 % 11} dogs go over the hill\n" for number in range(300))
    run([TRAINER, "prepare", "--text=text.txt", "--tokenizer=bytes", "--output=tokens"], folder)
    if CASE == "death":
        a_rank_dies(folder)
    else:
        learns_the_same(folder, *CASES[CASE])
