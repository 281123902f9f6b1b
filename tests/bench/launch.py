# SPDX-License-Identifier: Apache-2.0
"""What the plugin costs a step: `srun true` without it, with it, with --dp-world=auto, and with Slurm's own ways to a world.

One cluster and one allocation for all cases. srun and slurmstepd read plugstack.conf anew for each step, and all machines of the local
cluster see one file, so a case without the plugin is made by renaming another file over it; that this takes the plugin out of both
is looked at before anything is measured.
"""
import json
import os
import sys
import time

from allocation import Allocation
from localcluster.harness import TestCluster
from localcluster.names import Cluster
from measuring import difference, interleaved, machine, summary, table, verdict
from programs import warn_if_busy

TASKS_PER_NODE = 4
FEWEST = 30  # rounds, for a verdict

# name: (the plugin is in plugstack.conf, words of srun)
CASES = {
    "no plugin": (False, []),
    "no plugin, again": (False, []),  # shows what the machine's noise alone makes of a pair
    "plugin, no option": (True, []),
    "--dp-world=auto": (True, ["--dp-world=auto"]),
    "--mpi=pmi2": (False, ["--mpi=pmi2"]),
    "--mpi=pmix": (False, ["--mpi=pmix"]),
}
# (case, against, nodes, in what, at most)
TARGETS = [
    ("plugin, no option", "no plugin", 4, "percent", 2),
    ("--dp-world=auto", "plugin, no option", 4, "ms", 15),
    ("--dp-world=auto", "plugin, no option", 32, "percent", 10),
]


class Plugstack:
    """The one plugstack.conf of the cluster."""

    def __init__(self, cluster):
        self._path = os.path.join(Cluster(cluster.name).etc, "slurm", "plugstack.conf")
        with open(self._path, encoding="utf-8") as text:
            self._with = text.read()
        self._now = True

    def set(self, plugin):
        if plugin == self._now:
            return
        with open(self._path + ".new", "w", encoding="utf-8") as out:
            out.write(self._with if plugin else "# taken out for a while\n")
        os.rename(self._path + ".new", self._path)
        self._now = plugin


def loaded_in(cluster, allocation, step):
    """Where spank_dp.so is mapped while a step runs: a set of "srun" and "slurmstepd"."""
    up, down = cluster.host_path("/home/alice/up"), cluster.host_path("/home/alice/down")
    allocation.start(*step, "sh", "-c", "echo > /home/alice/up; until test -e /home/alice/down; do sleep 0.02; done")
    end = time.monotonic() + 30
    while not os.path.exists(up):
        if time.monotonic() > end:
            raise SystemExit("tests/bench/run: the step that shows where the plugin is loaded does not start")
        time.sleep(0.02)
    found = set()
    for process in cluster.processes(["head", *cluster.nodes], everyone=True):
        program = process["command"].split()[0].split("/")[-1].rstrip(":")
        if program not in ("srun", "slurmstepd"):
            continue
        with open(f"/proc/{process['pid']}/maps", encoding="utf-8", errors="replace") as maps:
            if "spank_dp.so" in maps.read():
                found.add(program)
    with open(down, "w", encoding="ascii"):
        pass
    allocation.finish()
    os.unlink(up)
    os.unlink(down)
    return found


def check_swap(cluster, allocation, plugstack, nodes):
    step = ["srun", f"-N{nodes}", f"-n{nodes}"]
    for plugin, where in ((True, {"srun", "slurmstepd"}), (False, set()), (True, {"srun", "slurmstepd"})):
        plugstack.set(plugin)
        found = loaded_in(cluster, allocation, step)
        if found != where:
            raise SystemExit(f"tests/bench/run: with{'' if plugin else 'out'} the plugin in plugstack.conf it is loaded in "
                             f"{found or 'nothing'}; the cases would not be what they say")


def measure(nodes, rounds):
    """→ {case: [seconds]}"""
    with TestCluster(f"bench-{os.getpid()}", nodes=nodes) as cluster:
        plugstack = Plugstack(cluster)
        allocation = Allocation(cluster, nodes, TASKS_PER_NODE)
        check_swap(cluster, allocation, plugstack, nodes)

        def run_once(case):
            plugin, words = CASES[case]
            plugstack.set(plugin)
            allocation.start("srun", f"-N{nodes}", f"-n{nodes * TASKS_PER_NODE}", *words, "true")
            return allocation.finish()

        def progress(done, of):
            if done and (done % 50 == 0 or done == of):
                print(f"launch on {nodes} nodes: round {done} of {of}", file=sys.stderr, flush=True)

        times = interleaved(CASES, rounds, run_once, progress)
        allocation.close()
        cluster.assert_idle()
        cluster.assert_nothing_left()
    return times


def report(nodes, times):
    base = times["no plugin"]
    rows = [["case", "median", "p90", "more than no plugin", "95 % interval", "in %"]]
    found = {"summaries": {}, "differences": {}, "targets": []}
    for case, values in times.items():
        s = found["summaries"][case] = summary(values)
        row = [case, f"{s['median'] * 1e3:.1f} ms", f"{s['p90'] * 1e3:.1f} ms"]
        if case != "no plugin":
            d = found["differences"][case] = difference(values, base)
            row += [f"{d['median'] * 1e3:+.1f} ms", f"{d['low'] * 1e3:+.1f} to {d['high'] * 1e3:+.1f}", f"{d['percent']:+.1f}"]
        rows.append(row + [""] * (len(rows[0]) - len(row)))
    print(f"\nsrun -N{nodes} -n{nodes * TASKS_PER_NODE} true, {len(base)} rounds; differences are medians of pairs\n\n{table(rows)}\n")
    for case, against, where, unit, limit in TARGETS:
        if where != nodes:
            continue
        d = difference(times[case], times[against])
        text = verdict(d, "percent", limit) if unit == "percent" else verdict(d, "median", limit / 1e3)
        if len(base) < FEWEST:
            text = "too few rounds"
        value = f"{d['median'] * 1e3:+.1f} ms ({d['percent']:+.1f} %)"
        found["targets"].append({"case": case, "against": against, "unit": unit, "limit": limit, "difference": d, "verdict": text})
        print(f"{case} against {against}: {value}; at most {limit} {'ms' if unit == 'ms' else '%'}: {text}")
    return found


def run(options):
    sizes = options.nodes or [4, 32]
    result = {"part": "launch", "rounds": options.rounds, "machine": machine(), "sizes": {}}
    warn_if_busy(result["machine"])
    for nodes in sizes:
        times = measure(nodes, options.rounds)
        result["sizes"][nodes] = {"tasks_per_node": TASKS_PER_NODE, "seconds": times, **report(nodes, times)}
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(result, out, indent=1)
    return 0
