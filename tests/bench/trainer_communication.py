# SPDX-License-Identifier: Apache-2.0
"""What communication costs: cnn on 8 ranks of 2 nodes, against the same 8 ranks when each trains alone, and against one rank with as many threads.

The local cluster's nodes are one machine. Where it has fewer CPUs than the 8 ranks, they share them, a thread each, and so do the ranks that train
alone and the 8 threads of the one rank; and it is there once more with a thread a CPU, which is faster. All cases have the same global batch. Against one rank 8 do more than communicate: each updates all
parameters, and multiplies smaller matrices.

CPU time, beside the time of the clock, is what the CPUs have worked for a sample, in the steps that count: where ranks share CPUs that are
never idle it says the same, and other programs on the machine disturb it less. The one rank's has that of its threads that wait for each other.
"""
import json
import os
from typing import NamedTuple

from allocation import Allocation
from localcluster.harness import TestCluster
from measuring import difference, interleaved, paired_ratio, summary, table, told_against, verdict
from plugstack import Plugstack
from programs import BEFORE, BUILD, builds, cluster_name, progress
from trainer_peer import THREADS, trainer_of

NODES, PER_NODE = 2, 4
RANKS = NODES * PER_NODE
BATCHES = (16, 64)  # a rank's
STEPS_WORTH = 1024  # samples a rank trains on in a round
SMOKE = ((4,), 8)  # instead of these
WARM_UP = 1  # rounds
AT_MOST = 10  # percent
EACH = max(THREADS // RANKS, 1)  # threads
ONE, ONE_A_CPU = f"1 rank, {RANKS * EACH} threads", f"1 rank, {THREADS} threads"
ALONE, TOGETHER = f"{RANKS} ranks, each alone", f"{RANKS} ranks"
CASES = {ONE: (["-N1", "-n1"], RANKS, 1, RANKS * EACH, "auto"), ONE_A_CPU: (["-N1", "-n1"], RANKS, 1, THREADS, "auto"),
         ALONE: ([f"-N{NODES}", f"-n{RANKS}"], 1, RANKS, EACH, "off"), TOGETHER: ([f"-N{NODES}", f"-n{RANKS}"], 1, 1, EACH, "auto")}


class Once(NamedTuple):
    """What a sample takes, and of a step the share that waits: least and most of the ranks."""
    seconds: float
    cpu_seconds: float
    waits: tuple


class Measurements:
    def __init__(self, cluster, allocation, samples, cases):
        """cases: {name: (one of CASES, build)}"""
        self._cluster, self._allocation, self._samples, self._cases, self._plugstack = cluster, allocation, samples, cases, Plugstack(cluster)

    def once(self, batch, name):
        """→ Once, of all ranks together"""
        case, build = self._cases[name]
        words, times_batch, times_rate, threads, parallel = CASES[case]
        self._plugstack.set(build)
        file = "/home/alice/measured"
        self._allocation.start("srun", *words, *([f"--ntasks-per-node={PER_NODE}"] if case in (ALONE, TOGETHER) else []), "--dp-world=auto",
                               "env", f"OMP_NUM_THREADS={threads}", trainer_of(build), "measure-performance", "--device=cpu", "--model=cnn",
                               f"--data-parallel={parallel}", f"--batch-size={batch * times_batch}", "--warmup=5",
                               f"--iterations={self._samples // batch}", f"--json={file}")
        self._allocation.finish()
        host = self._cluster.host_path(file)
        with open(host, encoding="utf-8") as text:
            found = json.load(text)
        os.unlink(host)
        if found["threads"] != threads or found["global_batch_size"] * times_rate != batch * RANKS:
            raise SystemExit(f"tests/bench/run: {case}: {found}")
        return Once(1 / (found["samples_per_second"] * times_rate), found["cpu_seconds_per_sample"],
                    (found["communication_share_least"], found["communication_share_most"]))


def measure(rounds, batches, samples, some_builds):
    """→ {(batch, case): [Once]}"""
    cases = {case: (case, BUILD) for case in CASES} | {TOGETHER + suffix: (TOGETHER, build) for suffix, build in some_builds.items()}
    with TestCluster(cluster_name(), nodes=NODES) as cluster:
        allocation = Allocation(cluster, NODES, PER_NODE)
        measurements = Measurements(cluster, allocation, samples, cases)
        found = {}
        for batch in batches:  # so that those of a pair run soon after each other
            found |= interleaved([(batch, case) for case in cases], rounds, lambda of: measurements.once(*of),
                                 lambda done, of, batch=batch: progress(f"communication, batch {batch}: round {done} of {of}"), warm_up=WARM_UP)
        allocation.close()
        cluster.assert_idle()
        cluster.assert_nothing_left()
    return found


def field(found, name):
    """{(batch, case): [that field, one a round]}"""
    return {of: [getattr(once, name) for once in rounds] for of, rounds in found.items()}


def in_percent(d):
    return f"{d['percent']:+.1f} % ({d['percent_low']:+.1f} to {d['percent_high']:+.1f})"


def report(found, batches):
    times, cpu_times = field(found, "seconds"), field(found, "cpu_seconds")
    rows = [["batch of a rank", "case", "rounds", "samples/s", "CPU time of a sample", "of a step waits"]]
    targets = []
    for (batch, case), waits in field(found, "waits").items():
        least, most = (summary([share[i] for share in waits])["median"] * 100 for i in (0, 1))
        rows.append([str(batch), case, str(len(waits)), f"{1 / summary(times[batch, case])['median']:.0f}",
                     f"{summary(cpu_times[batch, case])['median'] * 1e3:.3f} ms", f"{least:.1f} to {most:.1f} %" if case.startswith(TOGETHER) else ""])
    print(f"\ncnn on {NODES} nodes of the local cluster, {THREADS} CPUs for all ranks; medians\n\n{table(rows)}\n")
    for batch in batches:
        for against in (case for case in CASES if case != TOGETHER):
            d = difference(times[batch, TOGETHER], times[batch, against])
            text = verdict(d, "percent", AT_MOST)
            cpu = difference(cpu_times[batch, TOGETHER], cpu_times[batch, against])
            print(f"batch {batch}: {TOGETHER} against {against}: {in_percent(d)}; at most {AT_MOST} %: {text}")
            print(f"    in CPU time: {in_percent(cpu)}")
            targets.append({"batch": batch, "against": against, "at_most_percent": AT_MOST, **d, "verdict": text, "cpu_time": cpu})
    return targets


def run(options):
    batches, samples = SMOKE if options.smoke else (BATCHES, STEPS_WORTH)
    found = measure(options.rounds, batches, samples, builds(options))
    targets = report(found, batches)
    before = [told_against(f"batch {batch}: {TOGETHER}, {what}", paired_ratio(of[batch, TOGETHER], of[batch, TOGETHER + BEFORE]))
              for what, of in (("seconds", field(found, "seconds")), ("CPU seconds", field(found, "cpu_seconds")))
              for batch in batches if (batch, TOGETHER + BEFORE) in found]
    return {"a_sample": [{"batch": batch, "case": case, **{name: [getattr(once, name) for once in rounds] for name in Once._fields}}
                         for (batch, case), rounds in found.items()], "targets": targets, "before": before}
