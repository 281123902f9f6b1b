# SPDX-License-Identifier: Apache-2.0
"""GPT-2's weights between PyTorch and the trainer: a model of plain torch modules (programs/gpt2.py) and the trainer's gpt compute the same with
them, before and after a training, in either direction."""
import json
import os
import re

import pytest
from localcluster.harness import BUILD

PYTHON = "/usr/bin/python3"  # Debian's python3-torch
TRAINER = os.path.join(BUILD, "bin/trainer")
LENGTH = 32  # of a sequence; as programs/gpt2.py
GPT = f"--model=gpt --data-dir=tokens --num-layers=2 --num-attention-heads=3 --hidden-size=48 --seq-length={LENGTH} --no-cache"


class Desk:
    """A folder of Alice's with bytes for tokens."""

    def __init__(self, cluster, programs):
        self.cluster, self.program = cluster, f"{PYTHON} {programs}/gpt2.py"
        cluster.run("mkdir weights && cd weights && seq 4000 | tr '\\n' ' ' >text && "
                    f"{TRAINER} prepare --text text --tokenizer=bytes --validation=0.2 --output tokens", cwd="/home/alice", check=True)
        (self.validation,) = (name for name in os.listdir(self.path("tokens")) if name.startswith("val"))
        tokens = (os.path.getsize(self.path(f"tokens/{self.validation}")) - 1024) // 2
        self.tested = (tokens - 1) // LENGTH * LENGTH

    def path(self, name):
        return self.cluster.host_path(f"/home/alice/weights/{name}")

    def run(self, command, check=True):
        return self.cluster.run(f"export OMP_NUM_THREADS=1; {command}", cwd="/home/alice/weights", timeout=120, check=check)

    def summary(self, command):
        return json.loads(self.run(command).stdout.splitlines()[-1])

    def torch_loss(self, folder):
        """On the tokens that the trainer tests with."""
        return float(self.run(f"{self.program} loss {folder} tokens/{self.validation} {self.tested}").stdout)


@pytest.fixture(scope="module")
def desk(cluster, programs):
    return Desk(cluster, programs)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_pytorch_and_the_trainer_compute_the_same_before_and_after_a_training(desk, kind):
    desk.run(f"{desk.program} make {kind} {kind}")
    # With such a learning rate nothing is learnt: the test is of the weights that were read.
    before = desk.summary(f"{TRAINER} {GPT} --init-from={kind} --steps=1 --lr=1e-30")
    assert before["test_loss"] == pytest.approx(desk.torch_loss(kind), abs=1e-4)
    tuned = desk.summary(f"srun -N2 --ntasks-per-node=2 --dp-world=auto {TRAINER} {GPT} --batch-size=2 --init-from={kind} --steps=40 --lr=3e-3 "
                         f"--checkpoint-dir={kind}.run")
    assert tuned["world_size"] == 4 and tuned["test_loss"] < before["test_loss"] - 1
    desk.run(f"{TRAINER} export --checkpoint={kind}.run --output={kind}.tuned")
    assert desk.torch_loss(f"{kind}.tuned") == pytest.approx(tuned["test_loss"], abs=1e-4)

    # The likeliest tokens, one after the other, beyond a sequence.
    text = desk.run(f"{TRAINER} generate --checkpoint-dir={kind}.run --data-dir=tokens --prompt='12 13 ' --tokens=50 --temperature=0").stdout
    tokens = json.loads(desk.run(f"{desk.program} continue {kind}.tuned {','.join(str(byte) for byte in b'12 13 ')} 50").stdout)
    assert bytes(tokens).decode() + "\n" == text

    # What was exported is read again, to the bit.
    again = desk.summary(f"{TRAINER} {GPT} --init-from={kind}.tuned --steps=1 --lr=1e-30 --batch-size=8")
    assert again["test_loss"] == pytest.approx(tuned["test_loss"], abs=1e-9)


def test_adapters_apart_and_merged_compute_what_the_trainer_computes(desk):
    desk.run(f"{desk.program} make base")
    before = desk.summary(f"{TRAINER} {GPT} --init-from=base --steps=1 --lr=1e-30")
    tuned = desk.summary(f"srun -N2 --ntasks-per-node=2 --dp-world=auto {TRAINER} {GPT} --batch-size=2 --init-from=base --steps=40 --lr=3e-2 "
                         "--lora-rank=4 --checkpoint-dir=lora")
    assert tuned["test_loss"] < before["test_loss"] - 0.3
    apart = desk.run(f"{desk.program} lora base lora/step-000000040 tokens/{desk.validation} {desk.tested}").stdout
    assert float(apart) == pytest.approx(tuned["test_loss"], abs=1e-4)
    desk.run(f"{TRAINER} export --checkpoint=lora --output=merged")
    assert desk.torch_loss("merged") == pytest.approx(tuned["test_loss"], abs=1e-4)
    again = desk.summary(f"{TRAINER} evaluate --checkpoint-dir=lora --data-dir=tokens")
    assert again["test_loss"] == pytest.approx(tuned["test_loss"], abs=1e-6)


def test_a_checkpoint_comes_before_the_weights_and_ranks_read_the_same(desk):
    desk.run(f"{desk.program} make w")
    train = f"{TRAINER} {GPT} --init-from=w --checkpoint-dir=resumed"
    desk.run(f"{train} --steps=2")
    os.rename(desk.path("w"), desk.path("gone"))
    resumed = desk.run(f"{train} --steps=4")
    assert "\nresuming from resumed/step-000000002" in resumed.stdout
    assert "\n--init-from w is not read: the training resumes from its checkpoint\n" in resumed.stdout
    ranks = f"{BUILD}/bin/dpctl launch -n 2 -- {TRAINER} {GPT}"
    refused = desk.run(f"{ranks} --init-from=w --steps=2", check=False)
    assert refused.returncode == 2 and re.search(r"trainer: .*--init-from w: cannot read: No such file or directory", refused.stderr), refused.stderr
    there = GPT.replace("=tokens", "=../../tokens")
    other = desk.run(f"{desk.program} make w/0 && {desk.program} make w/1 BF16 && "
                     f"{BUILD}/bin/dpctl launch -n 2 -- sh -c 'cd w/$RANK && exec {TRAINER} {there} --init-from=. --steps=2'", check=False)
    assert other.returncode == 2, other.stdout
    assert other.stderr.count("trainer: rank 0 on head: --init-from .: the ranks read different weights there; give all the same") == 1, other.stderr
