# SPDX-License-Identifier: Apache-2.0
"""What it costs to divide a model: gpt on 8 ranks of 2 nodes, as tensor 2, pipeline 2 and data 2, beside 8 ranks with the whole model each; and how
long the stages of a pipeline wait for each other, beside what (stages - 1) / (micro-batches + stages - 1) says.

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
SHAPE, STEPS = ("--num-layers=4", "--hidden-size=256", "--num-attention-heads=4", "--seq-length=128"), 8
SMOKE = (("--num-layers=4", "--hidden-size=32", "--num-attention-heads=2", "--seq-length=16"), 2)
BATCH = 32  # global
WARM_UP = 1  # rounds
AT_LEAST = 1.3  # samples/s of the divided model to those of 8 whole ones
BUBBLE_WITHIN = 20  # percent of what was predicted
TOGETHER, DIVIDED = f"data {RANKS}", "tensor 2 pipeline 2 data 2"
STAGES = 2
CASES = {TOGETHER: (RANKS, (), 1), DIVIDED: (RANKS, ("--dp-tensor=2", "--dp-pipeline=2"), 4),
         "1 rank": (1, (), 1),
         **{f"pipeline {STAGES}, {count} micro-batches": (STAGES, (f"--dp-pipeline={STAGES}",), count) for count in (4, 16)}}


def once(cluster, allocation, case, shape, steps):
    """→ samples a second, and the bubble or None"""
    ranks, division, micro_batches = CASES[case]
    parts = 4 if case == DIVIDED else ranks if division else 1
    file = "/home/alice/divided.json"
    nodes = [f"-N{NODES}", f"--ntasks-per-node={PER_NODE}"] if ranks == RANKS else ["-N1"]
    allocation.start("srun", *nodes, f"-n{ranks}", "--dp-world=auto", *division, "env", "OMP_NUM_THREADS=1", TRAINER, "--device=cpu", "--model=gpt",
                     "--data-dir=/home/alice/tokens", *shape, f"--batch-size={BATCH * parts // ranks // micro_batches}", f"--accumulate={micro_batches}",
                     f"--steps={steps}", "--eval-iters=1", "--eval-interval=1000000", f"--json={file}")
    allocation.finish()
    host = cluster.host_path(file)
    with open(host, encoding="utf-8") as text:
        found = json.load(text)
    os.unlink(host)
    if found["global_batch_size"] != BATCH or found["world_size"] != ranks:
        raise SystemExit(f"tests/bench/run: {case}: {found}")
    return found["samples_per_second"], found.get("pipeline_bubble")


def measure(rounds, shape, steps):
    """→ {case: [(samples a second, bubble or None)]}"""
    with TestCluster(cluster_name(), nodes=NODES) as cluster, text_tokens() as tokens:
        shutil.copytree(tokens, cluster.host_path("/home/alice/tokens"))
        Plugstack(cluster).set(BUILD)
        allocation = Allocation(cluster, NODES, PER_NODE)
        found = interleaved(list(CASES), rounds, lambda case: once(cluster, allocation, case, shape, steps),
                            lambda done, of: progress(f"division: round {done} of {of}"), warm_up=WARM_UP)
        allocation.close()
        cluster.assert_idle()
        cluster.assert_nothing_left()
    return found


def report(found):
    rows = [["case", "rounds", "samples/s", "bubble", "predicted"]]
    targets = []
    for case, of in found.items():
        rate = f"{summary([rate for rate, _ in of])['median']:.1f}"
        if of[0][1] is None:
            rows.append([case, str(len(of)), rate, "", ""])
            continue
        micro_batches, measured = CASES[case][2], summary([bubble for _, bubble in of])["median"]
        predicted = (STAGES - 1) / (micro_batches + STAGES - 1)
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
    found = measure(options.rounds, shape, steps)
    return {"rounds": {case: of for case, of in found.items()}, "targets": report(found)}
