# SPDX-License-Identifier: Apache-2.0
"""What the trainer does in a step besides a plain run: `compile` and the runs after it, `prepare`, and an optimizer that is shared out."""
import json
import os
import random
import re
import shutil
import struct

import pytest
from localcluster.harness import BUILD

TRAINER = os.path.join(BUILD, "bin/trainer")
STEP = ["srun", "-N2", "--ntasks-per-node=2", "--dp-world=auto", "--dp-on-failure=report"]


@pytest.fixture
def home(cluster):
    """Alice's, with a folder `verbs` for the test."""
    cluster.run(["mkdir", "verbs"], cwd="/home/alice", check=True)
    yield "/home/alice"
    shutil.rmtree(cluster.host_path("/home/alice/verbs"))


def last_json(done):
    return json.loads(done.stdout.splitlines()[-1])


def the_line(done, beginning):
    """Said once, whatever the number of ranks."""
    lines = [line for line in done.stdout.splitlines() if line.startswith(beginning)]
    assert len(lines) == 1, done.stdout
    return lines[0]


def write_images(directory):
    """Some of 28x28 for the trainer, in MNIST's format; the same each time, in new files."""
    numbers = random.Random(1)
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    for part, count in (("train", 1000), ("t10k", 100)):
        with open(f"{directory}/{part}-images-idx3-ubyte", "wb") as file:
            file.write(struct.pack(">4i", 0x803, count, 28, 28) + numbers.randbytes(count * 28 * 28))
        with open(f"{directory}/{part}-labels-idx1-ubyte", "wb") as file:
            file.write(struct.pack(">2i", 0x801, count) + bytes(numbers.randrange(10) for _ in range(count)))


def test_runs_use_what_a_step_has_compiled_until_it_is_stale_or_foreign(cluster, home):
    def trainer(*verb, nodes=2):
        return cluster.run([*STEP, f"-N{nodes}", TRAINER, *verb, "--model=ffn", "--steps=3", "--batch-size=32", "--data-dir=verbs/data",
                            "--cache-dir=verbs/cache"], cwd=home, timeout=60, check=True)

    write_images(cluster.host_path("/home/alice/verbs/data"))
    before = last_json(trainer())
    compiled = trainer("compile")
    assert the_line(compiled, "  data ") and last_json(compiled)["compiled"] == "ffn"
    entries = cluster.run(["ls", "-A", "verbs/cache"], cwd=home, check=True).stdout
    assert re.fullmatch(r"data-\w{64}\.cache\nplan-\w{64}\.cache\n", entries), "of both nodes, which are alike: " + entries
    run = trainer()
    assert re.fullmatch(r"compiled: plan of \d+ s ago, data of \d+ s ago(; 1 thread)?, in verbs/cache", the_line(run, "compiled: "))
    assert "(measured) of " in the_line(run, "memory per rank: ")
    assert last_json(run)["parameters_hash"] == before["parameters_hash"]

    # Stale, because the data is of another time; foreign, because the plan is another program's file.
    write_images(cluster.host_path("/home/alice/verbs/data"))
    cluster.run("for plan in verbs/cache/plan-*; do echo of another program, longer than a header >$plan; done", cwd=home, check=True)
    run = trainer()
    assert re.fullmatch(r"compiled: the plan is no entry of this cache.*, the data is stale \(files\); `trainer compile` makes it again, "
                        r"in verbs/cache", the_line(run, "compiled: "))
    assert "(measured)" not in the_line(run, "memory per rank: ")
    assert last_json(run)["parameters_hash"] == before["parameters_hash"]
    again = trainer("compile", nodes=1)  # of two, either may be the first
    assert "written again, because it was stale (files)" in the_line(again, "  data ")
    assert "written again, because it was no entry of this cache" in the_line(again, "  plan ")
    assert the_line(trainer(), "compiled: ").startswith("compiled: plan of ")


def test_a_step_prepares_once_where_it_shares_the_directory(cluster, home):
    cluster.run("for i in $(seq 400); do echo to be or not to be; done >verbs/text.txt", cwd=home, check=True)
    prepare = [*STEP, TRAINER, "prepare", "--text", "verbs/text.txt", "--tokenizer=bytes", "--output=verbs/new/data"]
    refused = cluster.run([*prepare, "--validation=0.00011"], cwd=home, timeout=30)
    assert refused.returncode == 2 and refused.stderr.count("too few to train on") == 2, "one line a node: " + refused.stderr
    assert cluster.run(["ls", "verbs"], cwd=home, check=True).stdout == "text.txt\n", "it has left something"
    done = cluster.run(prepare, cwd=home, timeout=30, check=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("verbs/new/data: ")]
    assert len(lines) == 2 and len(set(lines)) == 1 and "1 document, " in lines[0], done.stdout
    listed = cluster.run(["ls", "-A", "verbs/new/data"], cwd=home, check=True).stdout.split()
    assert listed == ["prepared.json", "tokenizer.json", "train_000000.bin", "val_000000.bin"]
    run = cluster.run([*STEP, TRAINER, "--model=gpt", "--num-layers=1", "--hidden-size=32", "--num-attention-heads=2", "--seq-length=32",
                       "--batch-size=4", "--steps=2", "--data-dir=verbs/new/data"], cwd=home, timeout=60, check=True)
    assert last_json(run)["world_size"] == 4 and last_json(run)["parameters_equal_on_all_ranks"] is True


def test_a_sharded_optimizer_learns_the_same_and_goes_on_on_another_world(cluster, home):
    def train(name, *options, nodes=2, ranks=4, steps=20):
        done = cluster.run(["srun", f"-N{nodes}", f"--ntasks-per-node={ranks // nodes}", "--dp-world=auto", TRAINER, "--model=linear",
                            f"--steps={steps}", "--log-interval=2", f"--batch-size={40 // ranks}", f"--metrics=verbs/{name}.jsonl", *options],
                           cwd=home, timeout=60, check=True)
        assert ("; the ranks of a node share parameters" in the_line(done, "memory per rank: ")) == (ranks > nodes)
        lines = cluster.run(["cat", f"verbs/{name}.jsonl"], cwd=home, check=True).stdout.splitlines()
        return last_json(done), {line["step"]: line["loss"] for line in map(json.loads, lines) if line["event"] == "step"}

    plain, curve = train("plain")
    sharded, same_curve = train("sharded", "--shard-optimizer")
    assert sorted(curve) == list(range(2, 21, 2)) and curve == same_curve
    assert sharded["parameters_hash"] == plain["parameters_hash"]
    state = 2 * 4 * plain["parameters"]  # Adam's, of which the two ranks of a node keep all, or each of the four a quarter
    assert plain["memory_peak_bytes"] - sharded["memory_peak_bytes"] == pytest.approx(state / 4, rel=0.01)

    saved = ["--checkpoint-dir=verbs/saved", "--shard-optimizer"]
    train("first", *saved, steps=10)
    cluster.run("cp -r verbs/saved verbs/copy", cwd=home, check=True)
    rest, rest_of_curve = train("rest", *saved, ranks=2)
    assert rest["resumed_from_step"] == 10 and sorted(rest_of_curve) == list(range(12, 21, 2))
    for step, loss in rest_of_curve.items():
        assert loss == pytest.approx(curve[step], rel=1e-3), step
    # And without it, on as many ranks as before: the same to the bit.
    unsharded, _ = train("unsharded", "--checkpoint-dir=verbs/copy")
    assert unsharded["resumed_from_step"] == 10 and unsharded["parameters_hash"] == plain["parameters_hash"]


def test_the_ranks_of_a_step_evaluate_what_one_does(cluster, home):
    write_images(cluster.host_path("/home/alice/verbs/data"))
    trained = last_json(cluster.run([*STEP, TRAINER, "--model=ffn", "--steps=5", "--batch-size=32", "--data-dir=verbs/data", "--no-cache",
                                     "--checkpoint-dir=verbs/saved"], cwd=home, timeout=60, check=True))
    evaluate = [TRAINER, "evaluate", "--checkpoint-dir=verbs/saved", "--data-dir=verbs/data"]
    alone = cluster.run(["srun", "-n3", *evaluate], cwd=home, timeout=60, check=True)  # no world: one of them does it
    together = cluster.run([*STEP, *evaluate, "--json=verbs/found.json"], cwd=home, timeout=60, check=True)
    assert json.loads(cluster.run(["cat", "verbs/found.json"], cwd=home, check=True).stdout) == last_json(together)
    for done, ranks in ((alone, 1), (together, 4)):
        assert the_line(done, "test loss ")
        found = last_json(done)
        assert (found["world_size"], found["step"], found["test_samples"]) == (ranks, 5, 100)
        assert found["test_loss"] == pytest.approx(trained["test_loss"], rel=1e-5)
        assert found["test_accuracy"] == pytest.approx(trained["test_accuracy"])

    differ = f"[ $RANK = 1 ] && one=--precision=bf16; exec {' '.join(evaluate)} $one"
    done = cluster.run([*STEP, "sh", "-c", differ], cwd=home, timeout=60)
    lines = [line for line in done.stderr.splitlines() if line.startswith("trainer: ")]
    assert done.returncode == 2 and len(lines) == 1 and "--precision" in lines[0], done.stderr


def test_verbs_that_train_nothing_are_done_by_one_task(cluster):
    """Whether the tasks are ranks of a world or Slurm's alone: one table, and one line where something is wrong."""
    mistakes = [["report", "missing.json"], ["info", "--model=none"], ["prepare", "--tokenizer=none"], ["--data-parallel=on"]]
    for world in (["--dp-world=auto", "--dp-on-failure=report"], []):
        step = ["srun", "-n3", "--kill-on-bad-exit=0", *world, TRAINER]
        assert the_line(cluster.run([*step, "info", "--model=cnn"], timeout=60, check=True), "  parameters ")
        for words in mistakes[:3] if world else mistakes:
            done = cluster.run([*step, *words], timeout=60)
            lines = [line for line in done.stderr.splitlines() if line.startswith("trainer: ")]
            assert done.returncode == 2 or (words[0] == "--data-parallel=on" and done.returncode == 4), done
            assert len(lines) == 1, done.stderr
