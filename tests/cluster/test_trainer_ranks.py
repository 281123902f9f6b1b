# SPDX-License-Identifier: Apache-2.0
"""Ranks that were given different options: each option in its turn is another on one rank, and one line says which, before anybody trains."""
import os
import re

import pytest
from localcluster.harness import BUILD

DPCTL = os.path.join(BUILD, "bin/dpctl")
TRAINER = os.path.join(BUILD, "bin/trainer")
LINEAR = "--model=linear --steps=2 --batch-size=4 --no-cache"
GPT = "--model=gpt --num-layers=1 --hidden-size=16 --num-attention-heads=2 --seq-length=16 --batch-size=1 --steps=1 --no-cache --data-dir=ranks/tokens"
UNET = "--model=unet2d --init-features=4 --samples=4 --batch-size=1 --steps=1 --no-cache"
SGD = LINEAR + " --optimizer=sgd"
COSINE = LINEAR + " --lr-schedule=cosine"
WSD = LINEAR + " --lr-schedule=wsd"
SAVED = LINEAR + " --checkpoint-dir=ranks/saved"
LOGGED = LINEAR + " --metrics=ranks/metrics"

# What rank 1 of three is given besides what all are; what the line says: the option, and its value on the others and there.
ALIKE = {
    "--model": ("", "--model=linear", None),  # compared first, in words of its own
    "--image-size": (UNET, "--image-size=512", "256 512"),
    "--init-features": (UNET, "--init-features=8", "4 8"),
    "--gpt-size": (GPT, "--gpt-size=124M", None),  # its parts are given: nothing differs
    "--num-layers": (GPT, "--num-layers=2", "1 2"),
    "--hidden-size": (GPT, "--hidden-size=32", "16 32"),
    "--num-attention-heads": (GPT, "--num-attention-heads=4", "2 4"),
    "--seq-length": (GPT, "--seq-length=8", "16 8"),
    "--vocab-size": (GPT, "--vocab-size=300", "50257 300"),
    "--reset-attention-mask": (GPT, "--reset-attention-mask", "none given"),
    "--recompute": (GPT, "--recompute", "none given"),
    "--tensor-parallel": (GPT, "--tensor-parallel=2", "none 2"),
    "--sequence-parallel": (GPT, "--sequence-parallel", "none given"),
    "--pipeline-parallel": (GPT, "--pipeline-parallel=2", "none 2"),
    "--pipeline-split": (GPT, "--pipeline-split=even", "balanced even"),
    "--pipeline-schedule": (GPT, "--pipeline-schedule=gpipe", "1f1b gpipe"),
    "--virtual-stages": (GPT + " --pipeline-schedule=interleaved", "--virtual-stages=3", "2 3"),
    "--init-from": (GPT, "--init-from=ranks/weights", "none ranks/weights"),
    "--lora-rank": (GPT, "--lora-rank=4", "0 4"),
    "--lora-alpha": (GPT + " --lora-rank=4", "--lora-alpha=4", "8 4"),
    "--init-method-std": (GPT, "--init-method-std=0.25", None),
    "--hidden-dropout": (GPT, "--hidden-dropout=0.25", "0 0.25"),
    "--attention-dropout": (GPT, "--attention-dropout=0.25", "0 0.25"),
    "--epochs": (LINEAR, "--epochs=3", "none 3"),
    "--steps": (LINEAR, "--steps=3", "2 3"),
    "--batch-size": (LINEAR, "--batch-size=5", "4 5"),
    "--accumulate": (LINEAR, "--gradient-accumulation-steps=2", "1 2"),
    "--seed": (LINEAR, "--seed=2", "1 2"),
    "--precision": (LINEAR, "--precision=bf16", "fp32 bf16"),
    "--bf16": (LINEAR, "--bf16", None),  # the same as --precision, which is named
    "--deterministic": (LINEAR, "--deterministic", "none given"),
    "--eval-interval": (LINEAR, "--eval-interval=1", "0 1"),
    "--eval-iters": (LINEAR + " --eval-interval=1", "--eval-iters=1", "0 1"),
    "--early-stopping": (LINEAR, "--early-stopping=3", "0 3"),
    "--optimizer": (LINEAR, "--optimizer=sgd", "adam sgd"),
    "--lr": (LINEAR, "--lr=0.5", "0.001 0.5"),
    "--lr-schedule": (LINEAR, "--lr-schedule=cosine", "constant cosine"),
    "--min-lr": (COSINE, "--min-lr=1e-05", "0 1e-05"),
    "--lr-decay-iters": (COSINE, "--lr-decay-iters=9", "none 9"),
    "--lr-wsd-decay-iters": (WSD, "--lr-wsd-decay-iters=1", "none 1"),
    "--lr-warmup-fraction": (LINEAR, "--lr-warmup-fraction=0.5", "0 0.5"),
    "--ema-decay": (LINEAR, "--ema-decay=0.5", "none 0.5"),
    "--freeze": (LINEAR, "--freeze=linear.1", "none linear.1"),
    "--weight-decay": (LINEAR, "--weight-decay=0.5", "0 0.5"),
    "--adam-beta1": (LINEAR, "--adam-beta1=0.5", "0.9 0.5"),
    "--adam-beta2": (LINEAR, "--adam-beta2=0.5", "0.999 0.5"),
    "--adam-eps": (LINEAR, "--adam-eps=0.5", "1e-08 0.5"),
    "--sgd-momentum": (SGD, "--sgd-momentum=0.5", "0.9 0.5"),
    "--clip-grad": (LINEAR, "--clip-grad=1", "none 1"),
    "--skip-bad-steps": (LINEAR, "--skip-bad-steps", "none given"),
    "--shard-optimizer": (LINEAR, "--shard-optimizer", "none given"),
    "--peer-copy": (LINEAR + " --shard-optimizer", "--peer-copy=1", "0 1"),
    "--data-split": (GPT, "--data-split=9,1", "none 9,1,0"),
    "--bad-samples": (GPT, "--bad-samples=skip", "refuse skip"),
    "--samples": (LINEAR, "--samples=99", "none 99"),
    "--checkpoint-dir": (SAVED, "--checkpoint-dir=ranks/other", "ranks/saved ranks/other"),
    "--save-interval": (SAVED, "--save-interval=1", "0 1"),
    "--async-save": (SAVED + " --save-interval=1", "--async-save", "none given"),
    "--keep": (SAVED, "--keep=3", "2 3"),
    "--resume": (SAVED, "--resume=never", "auto never"),
    "--log-style": (LINEAR, "--log-style=samba", "plain samba"),
    "--log-interval": (LOGGED, "--log-interval=1", "100 1"),
    "--profile": (LINEAR, "--profile=ranks/profile", "none ranks/profile"),
    "--profile-steps": (LINEAR + " --profile=ranks/profile", "--profile-steps=7", "10:15 7:7"),
    "--min-throughput": (LINEAR, "--min-throughput=0.5", "none 0.5"),
    "--max-throughput": (LINEAR, "--max-throughput=1e+30", "none 1e+30"),
}
# What ranks may be given differently, and train all the same: dp-trainer(1) has the reasons.
MAY_DIFFER = {
    "--data-dir": "--data-dir=/elsewhere",
    "--data": None,
    "--tokenizer": None,  # gpt's, and its tokens are compared
    "--device": "--device=cpu",
    "--cuda-graphs": "--cuda-graphs=on",
    "--data-parallel": "--data-parallel=on",
    "--memory-limit": "--memory-limit=2GiB",
    "--cache-dir": "--cache-dir=ranks/cache",
    "--no-cache": "--no-cache",
    "--json": "--json=ranks/json",
    "--metrics": None,  # alike in whether anybody logs
    "--tensorboard": None,
    "--dump-parameters": "--dump-parameters=ranks/dump",
}


@pytest.fixture(scope="module", autouse=True)
def tokens(cluster):
    cluster.run("mkdir -p ranks && for i in $(seq 60); do echo to be or not to be; done >ranks/text && "
                f"{TRAINER} prepare --text ranks/text --tokenizer=bytes --output=ranks/tokens", cwd="/home/alice", check=True)


def train(cluster, words, of_one):
    script = f"[ $RANK = 1 ] && one='{of_one}'; OMP_NUM_THREADS=1 exec {TRAINER} {words} $one"
    return cluster.run([DPCTL, "launch", "-n", "3", "--", "sh", "-c", script], cwd="/home/alice", timeout=60)


def test_every_option_is_tried(cluster):
    text = cluster.run([TRAINER, "--help"], check=True).stdout
    options = set(re.findall(r"(?m)^  (--[a-z0-9-]+)", text)) - {"--help", "--version"}
    assert options == set(ALIKE) | set(MAY_DIFFER), "a new option: say what happens where one rank is given another value"


@pytest.mark.parametrize("option", ALIKE)
def test_an_option_that_differs_is_named_before_anybody_trains(cluster, option):
    words, of_one, values = ALIKE[option]
    done = train(cluster, words, of_one)
    if option == "--gpt-size":
        assert done.returncode == 0, done.stderr
        return
    lines = [line for line in done.stderr.splitlines() if line.startswith("trainer: ")]
    assert done.returncode == 2 and len(lines) == 1, done.stderr
    name = {"--model": "the model", "--bf16": "--precision"}.get(option, option)
    assert re.match(rf"trainer: rank 0 on \S+: {name} differs: .* on ranks 0,2 .*, .* on rank 1 ", lines[0]), lines[0]
    if values:
        usual, other = values.split()
        assert f" differs: {usual} on " in lines[0] and f", {other} on rank 1 " in lines[0], lines[0]
    assert "memory per rank" not in done.stdout and '{"model"' not in done.stdout


@pytest.mark.parametrize("option", [name for name, word in MAY_DIFFER.items() if word])
def test_an_option_that_may_differ_does(cluster, option):
    done = train(cluster, LINEAR, MAY_DIFFER[option])
    assert done.returncode == 0 and '"parameters_equal_on_all_ranks":true' in done.stdout, done.stderr


def test_a_rank_of_another_subcommand_is_named(cluster):
    script = f"[ $RANK = 1 ] && one=measure-performance; exec {TRAINER} $one {LINEAR}"
    done = cluster.run([DPCTL, "launch", "-n", "3", "--", "sh", "-c", script], cwd="/home/alice", timeout=60)
    assert done.returncode == 2 and "the subcommand differs: run on ranks 0,2" in done.stderr, done.stderr


def test_a_rank_whose_data_are_of_another_vocabulary_is_named(cluster):
    """The same tokens, without the word on how many there are."""
    cluster.run("rm -rf ranks/bare; mkdir ranks/bare && cp ranks/tokens/*.bin ranks/bare", cwd="/home/alice", check=True)
    done = train(cluster, GPT, "--data-dir=ranks/bare")
    assert done.returncode == 2 and '{"model"' not in done.stdout, done.stdout + done.stderr
    assert re.search(r"the data differs: vocabulary 257, .* on ranks 0,2 .*, vocabulary 50257, .* on rank 1 ", done.stderr), done.stderr
