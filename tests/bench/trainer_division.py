# SPDX-License-Identifier: Apache-2.0
"""What it costs to divide a model: gpt on 8 ranks of 2 nodes, as tensor 2, pipeline 2 and data 2, beside 8 ranks with the whole model each; and how
long the stages of a pipeline wait for each other, beside what (stages - 1) / (micro-batches + stages - 1) says, with their layers interleaved, too; and
each way to train on as many ranks as there are stages, beside what `trainer plan` foretells.

The local cluster's nodes are one machine. Where it has fewer CPUs than ranks, one rank's waiting is another's work: so the bubble is measured of two
stages alone. All cases have the same global batch.
"""
import json
import os
import shutil

from allocation import Allocation
from localcluster.harness import TestCluster
from measuring import interleaved, paired_ratio, summary, table
from plugstack import Plugstack
from programs import BUILD, cluster_name, progress
from trainer_peer import THREADS, TRAINER, text_tokens

NODES, PER_NODE = 2, 4
RANKS = NODES * PER_NODE
# The trainer's own gpt with two more layers, so that four model chunks get two each.
SHAPE, STEPS = ("--num-layers=8", "--hidden-size=384", "--num-attention-heads=6", "--seq-length=256"), 6
SMOKE = (("--num-layers=4", "--hidden-size=32", "--num-attention-heads=2", "--seq-length=16"), 2)
BATCH = 32  # global
WARM_UP = 1  # rounds
AT_LEAST = 1.3  # samples/s of the divided model to those of 8 whole ones
BUBBLE_WITHIN = 20  # percent of what was predicted
TOGETHER, DIVIDED = f"data {RANKS}", "tensor 2 pipeline 2 data 2"
STAGES = 2
PLANNED = "plan: "  # cases that `trainer plan` foretells
INTERLEAVED = ("--pipeline-schedule=interleaved", "--virtual-stages=2")
# Ranks, options of srun, micro-batches, options of the trainer.
CASES = {TOGETHER: (RANKS, (), 1, ()), DIVIDED: (RANKS, ("--dp-tensor=2", "--dp-pipeline=2"), 4, ()),
         "1 rank": (1, (), 1, ()),
         **{f"pipeline {STAGES}, {count} micro-batches": (STAGES, (f"--dp-pipeline={STAGES}",), count, ()) for count in (4, 16)},
         f"interleaved {STAGES} x 2, 4 micro-batches": (STAGES, (f"--dp-pipeline={STAGES}",), 4, INTERLEAVED)}


def plan(cluster, shape):
    """→ what `trainer plan` foretells of as many ranks as stages: {case: way}"""
    done = cluster.run(["env", "OMP_NUM_THREADS=1", TRAINER, "plan", *shape, "--data-dir=/home/alice/tokens", f"--batch-size={BATCH // STAGES}",
                        f"--ranks={STAGES}", f"--ranks-per-node={STAGES}"], cwd="/home/alice", check=True)
    return {f"{PLANNED}tensor {way['tensor_parallel']} pipeline {way['pipeline_parallel']} data {way['data_parallel']}": way
            for way in json.loads(done.stdout.splitlines()[-1])["ways"]}


def case_of(way):
    division = [f"--dp-{name}={way[f'{name}_parallel']}" for name in ("tensor", "pipeline") if way[f"{name}_parallel"] > 1]
    return STAGES, tuple(division), way["accumulate"], ()


def once(cluster, allocation, case, shape, steps):
    """→ samples a second, and the bubble or None"""
    ranks, division, micro_batches, words = case
    parts = 4 if len(division) > 1 else ranks if division else 1
    file = "/home/alice/divided.json"
    nodes = [f"-N{NODES}", f"--ntasks-per-node={PER_NODE}"] if ranks == RANKS else ["-N1"]
    allocation.start("srun", *nodes, f"-n{ranks}", "--dp-world=auto", *division, "env", "OMP_NUM_THREADS=1", TRAINER, "--device=cpu", "--model=gpt",
                     "--data-dir=/home/alice/tokens", *shape, f"--batch-size={BATCH * parts // ranks // micro_batches}", f"--accumulate={micro_batches}",
                     f"--steps={steps}", "--eval-iters=1", "--eval-interval=1000000", *words, f"--json={file}")
    allocation.finish()
    host = cluster.host_path(file)
    with open(host, encoding="utf-8") as text:
        found = json.load(text)
    os.unlink(host)
    if found["global_batch_size"] != BATCH or found["world_size"] != ranks:
        raise SystemExit(f"tests/bench/run: {case}: {found}")
    return found["samples_per_second"], found.get("pipeline_bubble")


def measure(rounds, shape, steps):
    """→ {case: [(samples a second, bubble or None)]}, {case: [samples a second that were foretold]}"""
    with TestCluster(cluster_name(), nodes=NODES) as cluster, text_tokens() as tokens:
        shutil.copytree(tokens, cluster.host_path("/home/alice/tokens"))
        Plugstack(cluster).set(BUILD)
        allocation = Allocation(cluster, NODES, PER_NODE)
        ways = plan(cluster, shape)
        cases = CASES | {name: case_of(way) for name, way in ways.items()}
        foretold = {name: [] for name in ways}

        def take(name):
            if name in cases:
                return once(cluster, allocation, cases[name], shape, steps)
            for way, of in plan(cluster, shape).items():
                foretold[way].append(of["samples_per_second"])
            return None

        found = interleaved([*cases, "plan"], rounds, take, lambda done, of: progress(f"division: round {done} of {of}"), warm_up=WARM_UP)
        del found["plan"]
        allocation.close()
        cluster.assert_idle()
        cluster.assert_nothing_left()
    return found, foretold


def tell_plan(found, foretold):
    """How far the planner is off, and whether it puts the ways in the right order."""
    rows = [["way", "foretold", "measured", "off"]]
    measured = {name: summary([rate for rate, _ in found[name]])["median"] for name in foretold}
    expected = {name: summary(rates)["median"] for name, rates in foretold.items()}
    for name, rate in measured.items():
        rows.append([name.removeprefix(PLANNED), f"{expected[name]:.1f}", f"{rate:.1f}", f"{100 * (expected[name] / rate - 1):+.0f} %"])
    print(f"\ntrainer plan, samples/s of {STAGES} ranks on one node; medians\n\n{table(rows)}\n")
    best, fastest = max(expected, key=expected.get), max(measured, key=measured.get)
    print(f"planned: {best.removeprefix(PLANNED)}; the fastest was {fastest.removeprefix(PLANNED)}, with "
          f"{measured[fastest] / measured[best]:.2f} times the samples/s of what was planned")
    return {name: {"foretold": expected[name], "measured": rate} for name, rate in measured.items()}


def report(found):
    rows = [["case", "rounds", "samples/s", "bubble", "predicted"]]
    targets = []
    for case, of in found.items():
        if case not in CASES:
            continue
        rate = f"{summary([rate for rate, _ in of])['median']:.1f}"
        if of[0][1] is None:
            rows.append([case, str(len(of)), rate, "", ""])
            continue
        _, _, micro_batches, words = CASES[case]
        measured = summary([bubble for _, bubble in of])["median"]
        predicted = (STAGES - 1) / (micro_batches * (2 if words else 1) + STAGES - 1)
        rows.append([case, str(len(of)), rate, f"{100 * measured:.1f} %", f"{100 * predicted:.1f} %"])
        if case != DIVIDED:
            off = 100 * (measured / predicted - 1)
            targets.append({"case": case, "bubble": measured, "predicted": predicted, "percent": off,
                            "verdict": "met" if abs(off) <= BUBBLE_WITHIN else "missed"})
    print(f"\ngpt, {THREADS} CPUs for all ranks, a thread each; medians\n\n{table(rows)}\n")
    for target in targets:
        print(f"{target['case']}: the bubble is {target['percent']:+.0f} % off what is predicted; at most {BUBBLE_WITHIN} %: {target['verdict']}")
    ratio = paired_ratio([rate for rate, _ in found[DIVIDED]], [rate for rate, _ in found[TOGETHER]])
    text = "met" if ratio["low"] >= AT_LEAST else "missed" if ratio["high"] < AT_LEAST else "undecided"
    print(f"{DIVIDED} to {TOGETHER}, samples/s: {ratio['ratio']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f}); at least {AT_LEAST}: {text}")
    return [*targets, {"case": DIVIDED, "against": TOGETHER, "at_least": AT_LEAST, **ratio, "verdict": text}]


def run(options):
    shape, steps = SMOKE if options.smoke else (SHAPE, STEPS)
    found, foretold = measure(options.rounds, shape, steps)
    return {"rounds": found, "targets": report(found), "plan": tell_plan(found, foretold)}
