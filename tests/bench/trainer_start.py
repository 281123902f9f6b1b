# SPDX-License-Identifier: Apache-2.0
"""From srun to the end of the first training step of cnn on 2 nodes with 2 ranks each: ours beside PyTorch's DDP with Gloo.

Both are ranks of --dp-world=auto, load Fashion-MNIST from its files and have a thread a rank; ours a second time after
`trainer compile`, with what that keeps in a home that the nodes share. No target is about it.
"""
import json
import os

from allocation import Allocation
from localcluster.harness import TestCluster
from measuring import interleaved, paired_ratio, summary, table, told_against
from plugstack import Plugstack
from programs import BEFORE, BUILD, builds, cluster_name, progress
from trainer_peer import peer, trainer_of

NODES, PER_NODE, BATCH = 2, 2, 16
WARM_UP = 1  # rounds
OURS, COMPILED, TORCH = "ours", "ours, compiled", "PyTorch DDP"
FILE, BEGAN, CACHE = "/home/alice/first-step", "/home/alice/began", "/home/alice/compiled"
_TRAINING = ["--device=cpu", "--model=cnn", f"--batch-size={BATCH}"]
_ONE_STEP = [*_TRAINING, "--steps=1", "--log-interval=1", f"--metrics={FILE}"]


def cases_of(some_builds):
    """{case: (program and its words, build)}"""
    ours = {name + suffix: ([trainer_of(build), *_ONE_STEP, words], build) for suffix, build in some_builds.items()
            for name, words in ((OURS, "--no-cache"), (COMPILED, f"--cache-dir={CACHE}"))}
    return ours | {TORCH: (peer("first_step.py", BATCH, FILE), BUILD)}


def _first_step(case, text):
    """Seconds since 1970."""
    if case == TORCH:
        return float(text)
    return next(event["time"] for event in map(json.loads, text.splitlines()) if event["event"] == "step")


def _once(cluster, allocation, case, program):
    allocation.start("sh", "-c", f'date +%s.%N > {BEGAN}; exec "$@"', "sh", "srun", f"-N{NODES}", f"-n{NODES * PER_NODE}",
                     f"--ntasks-per-node={PER_NODE}", "--dp-world=auto", "env", "OMP_NUM_THREADS=1", *program)
    allocation.finish()
    texts = []
    for path in (BEGAN, FILE):
        with open(cluster.host_path(path), encoding="ascii") as text:
            texts.append(text.read())
        os.unlink(cluster.host_path(path))
    return _first_step(case, texts[1]) - float(texts[0])


def measure(rounds, some_builds):
    """→ {case: [seconds]}"""
    cases = cases_of(some_builds)
    with TestCluster(cluster_name(), nodes=NODES) as cluster:
        allocation = Allocation(cluster, NODES, PER_NODE)
        plugstack = Plugstack(cluster)
        for build in some_builds.values():
            allocation.start("srun", "-N1", "-n1", "env", "OMP_NUM_THREADS=1", trainer_of(build), *_TRAINING, "compile", f"--cache-dir={CACHE}")
            allocation.finish()

        def once(case):
            program, build = cases[case]
            plugstack.set(build)
            return _once(cluster, allocation, case, program)

        times = interleaved(cases, rounds, once,
                            lambda done, of: progress(f"time to the first step: round {done} of {of}"), warm_up=WARM_UP)
        allocation.close()
        cluster.assert_idle()
        cluster.assert_nothing_left()
    return times


def run(options):
    times = measure(options.rounds, builds(options))
    rows = [["case", "rounds", "median", "least", "most"]]
    for case, seconds in times.items():
        rows.append([case, str(len(seconds)), *(f"{value:.2f} s" for value in (summary(seconds)["median"], min(seconds), max(seconds)))])
    print(f"\nfrom srun to the first training step of cnn on {NODES} x {PER_NODE} ranks\n\n{table(rows)}\n")
    before = [told_against(f"{case} to the first step", paired_ratio(times[case], times[case + BEFORE])) for case in (OURS, COMPILED)
              if case + BEFORE in times]
    return {"seconds": times, "before": before}
