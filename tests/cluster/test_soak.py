# SPDX-License-Identifier: Apache-2.0
"""A thousand deaths of all kinds in trainings that go on: no hang, no leak, the bits of an undisturbed run. Only in tests/run all: it takes an
hour. DP_SOAK_DEATHS and DP_SOAK_ROUNDS make it shorter, DP_SOAK_SEED another one."""
import contextlib
import json
import os
import random
import re
import signal
import time

import pytest
from conftest import cluster_name
from localcluster.harness import BUILD, TestCluster, until
from test_restarts import BEGAN_ANYWHERE, TWO_NODES, parent_of, ranks_of

pytestmark = pytest.mark.long

TRAINER = os.path.join(BUILD, "bin/trainer")


def newest_checkpoint(folder):
    """A function that returns its step, or 0."""
    def saved():
        with contextlib.suppress(FileNotFoundError):
            return max((int(name[5:]) for name in os.listdir(folder) if re.fullmatch(r"step-\d+", name)), default=0)
        return 0

    return saved


def resources_of(cluster):
    """Of each daemon and keeper: descriptors, and KiB of memory of its own."""
    found = {}
    for process in cluster.processes():
        if not process["command"].startswith(("dp-rendezvousd", "slurmstepd")):
            continue
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{process['pid']}/smaps_rollup", encoding="ascii") as file:
            memory = sum(int(kib) for kib in re.findall(r"Private_\w+:\s+(\d+)", file.read()))
            found[process["pid"]] = len(os.listdir(f"/proc/{process['pid']}/fd")), memory
    return found


def read_now(stream):
    """What is there of a pipe that does not block."""
    found = b""
    with contextlib.suppress(BlockingIOError):
        while part := os.read(stream.fileno(), 1 << 16):
            found += part
    return found.decode()


def test_a_soak_of_deaths(cluster):
    """Deaths of random kinds, most of them while a training makes progress, some in its start: no hang, no leak, the right bits."""
    deaths = int(os.environ.get("DP_SOAK_DEATHS", "800"))
    chance = random.Random(int(os.environ.get("DP_SOAK_SEED", "1")))
    training = [TRAINER, "--model=linear", "--seed=3", "--batch-size=5", "--epochs=1000000", "--deterministic", "--resume=auto"]
    cluster.run("rm -rf whole often", cwd="/home/alice", check=True)
    step = cluster.popen([*TWO_NODES, "--dp-restarts=100000", *training, "--save-interval=50", "--checkpoint-dir=often"], cwd="/home/alice")
    saved = newest_checkpoint(cluster.host_path("/home/alice/often"))
    os.set_blocking(step.stdout.fileno(), False)
    os.set_blocking(step.stderr.fileno(), False)
    said = ""

    def drain():
        read_now(step.stdout)
        return read_now(step.stderr)

    done, early, first = 0, 0, None
    while done < deaths:
        before = saved()
        # Two deaths in a row may come before a training step, not three.
        if early < 2 and chance.random() < 0.15:
            early += 1
            time.sleep(chance.random() / 2)
        else:
            # A generation may begin with the checkpoint that the last one did not finish, which is no step.
            enough, early = before + (50 if early else 0), 0
            until(lambda: saved() > enough, 60, f"progress after {done} deaths; {said[-2000:]}")
        said += drain()
        assert step.poll() is None, said[-4000:]
        ranks = ranks_of(cluster, TRAINER)
        victims = chance.choice([[0], [3], [1], [0, 1], [2, 3], [1, 2], [0, 1, 2, 3]])
        how = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS])
        for victim in victims:
            if victim in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(ranks[victim], how)
        done += bool(ranks)
        if done == 10:
            first = resources_of(cluster)
    before = saved()
    until(lambda: saved() > before, 60, "progress after the last one")
    last = resources_of(cluster)
    for pid, (descriptors, memory) in (first or last).items():
        assert last[pid][0] <= descriptors + 4 and last[pid][1] <= memory + 1024, (pid, first[pid], last[pid])
    cluster.run(["scancel", "-u", "alice"], check=True)
    cluster.assert_nothing_left()
    said += drain()
    assert len(BEGAN_ANYWHERE.findall(said)) > deaths / 2, said[-2000:]
    steps = f"--steps={saved() + 50}"
    hashes = set()
    for name in ("often", "whole"):
        text = cluster.run([*TWO_NODES, *training, steps, f"--checkpoint-dir={name}"], cwd="/home/alice", timeout=600, check=True).stdout
        hashes.add(json.loads(next(row for row in text.splitlines() if row.startswith('{"model"')))["parameters_hash"])
    assert len(hashes) == 1


# ---- nodes and their processes, in clusters that last for a few losses each

# Three nodes and two spares. 12 micro-batches a step, by 6, 4 or 2 ranks.
PROGRAM = [TRAINER, "--model=ffn", "--deterministic", "--steps=2500", "--accumulate=2"]
STEP = ["srun", "-N5", "--ntasks-per-node=2", "--no-kill", "--dp-on-failure=restart", "--dp-restarts=1000", "--dp-spares=2", "--dp-min-nodes=2",
        *PROGRAM, "--checkpoint-dir=saved", "--save-interval=20"]
LOSSES = ("power", "cut", "pause", "keeper", "daemon", "slurmstepd")


def homes(site):
    """{node: pids of its ranks}"""
    ranks = set(ranks_of(site, TRAINER).values())
    found = {node: [process["pid"] for process in site.processes([node]) if process["pid"] in ranks] for node in site.nodes}
    return {node: pids for node, pids in found.items() if pids}


def lose(site, node, pids, how):
    """→ what undoes it, as far as the training cannot tell"""
    if how == "power":
        site.kill(node)
    elif how == "cut":
        site.cut(node)
        return lambda: site.heal(node)
    elif how == "pause":
        stopped = [process["pid"] for process in site.processes([node])]
        signal_all(stopped, signal.SIGSTOP)
        return lambda: signal_all(stopped, signal.SIGCONT)
    elif how == "daemon":
        signal_all([process["pid"] for process in site.processes([node]) if process["command"].startswith("dp-rendezvousd")], signal.SIGKILL)
    else:
        signal_all([parent_of(pids[0]) if how == "keeper" else parent_of(parent_of(pids[0]))], signal.SIGKILL)
    return lambda: None


def signal_all(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def one_round(site, chance):
    """→ (the final line's hash, what happened)"""
    saved = newest_checkpoint(site.host_path("/home/alice/saved"))
    step = site.popen(STEP, cwd="/home/alice")
    os.set_blocking(step.stdout.fileno(), False)
    os.set_blocking(step.stderr.fileno(), False)
    out = err = ""
    events = [*chance.sample(LOSSES, 3), *["rank"] * 5]
    chance.shuffle(events)
    happened = []

    def has_gone_on(before):
        nonlocal out, err
        out, err = out + read_now(step.stdout), err + read_now(step.stderr)
        assert step.poll() is None, f"after {happened}:\n{out[-2000:]}\n{err[-4000:]}"
        return saved() > before

    for event in events:
        before = saved()
        until(lambda: has_gone_on(before), 60, f"progress after {happened}: {err[-4000:]}")
        time.sleep(chance.random())
        where = homes(site)
        if not where:
            continue  # all are on the way
        node = chance.choice(sorted(where))
        happened.append(f"{event} on {node}")
        if event == "rank":
            signal_all([chance.choice(where[node])], chance.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT]))
            continue
        undo = lose(site, node, where[node], event)
        if chance.random() < 0.3 and (others := [one for one in where if one != node]):
            happened.append("and another rank")
            signal_all([chance.choice(where[chance.choice(others)])], signal.SIGKILL)
        before = saved()
        until(lambda: has_gone_on(before), 60, f"progress after {happened}: {err[-4000:]}")
        undo()

    def last_line():
        nonlocal out, err
        out, err = out + read_now(step.stdout), err + read_now(step.stderr)
        found = next((line for line in out.splitlines() if line.startswith('{"model"') and line.endswith("}")), None)
        assert found or step.poll() is None, f"no last line after {happened}:\n{out[-2000:]}\n{err[-4000:]}"
        return found

    line = until(last_line, 240, f"the end after {happened}")
    until(lambda: not ranks_of(site, TRAINER), 20, "the end of all ranks")
    site.run(["scancel", "-u", "alice"], user="root")
    with contextlib.suppress(Exception):
        step.wait(timeout=3)
    step.kill()  # where a node is dead, it waits for its answer
    return json.loads(line)["parameters_hash"], happened


def test_rounds_of_lost_nodes():
    chance = random.Random(int(os.environ.get("DP_SOAK_SEED", "1")))
    deaths, wanted = 0, None
    for number in range(int(os.environ.get("DP_SOAK_ROUNDS", "25"))):
        with TestCluster(cluster_name(f"-soak-{number % 2}"), nodes=5, plugstack_args="dead-after=3", conf=("SlurmdTimeout=10",)) as site:
            if wanted is None:
                done = site.run(["srun", "-N3", "--ntasks-per-node=2", "--dp-world=auto", *PROGRAM], timeout=300, check=True)
                wanted = json.loads(done.stdout.splitlines()[-1])["parameters_hash"]
            found, happened = one_round(site, chance)
            assert found == wanted, (number, happened)
            deaths += len(happened)
            print(f"round {number}: {deaths} deaths so far; {', '.join(happened)}", flush=True)
