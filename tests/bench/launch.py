# SPDX-License-Identifier: Apache-2.0
"""What the plugin costs a step: `srun true` without it, with it, with --dp-world=auto, and with Slurm's own ways to a world.

One cluster and one allocation for all cases. A case without the plugin is made by another plugstack.conf; that this takes the plugin out of
srun and slurmstepd is looked at before anything is measured.
"""
import json
import os
import re
import sys
import time
from typing import NamedTuple

import emulated
from allocation import Allocation
from localcluster.harness import TestCluster
from localcluster.names import Cluster
from measuring import WARM_UP, difference, interleaved, machine, paired_ratio, summary, table, told_against, verdict
from plugstack import Plugstack
from programs import BEFORE, BUILD, built, builds, cluster_name, require, warn_if_busy

FEWEST = 30  # rounds, for a verdict
IS_EMULATED = emulated.EMULATED in os.environ
SCHEDSTAT = "/proc/schedstat"
TICK = 1 / os.sysconf("SC_CLK_TCK")  # seconds

# name: (the plugin is in plugstack.conf, words of srun)
CASES = {
    "no plugin": (False, []),
    "no plugin, again": (False, []),  # shows what the machine's noise alone makes of a pair
    "plugin, no option": (True, []),
    "--dp-world=auto": (True, ["--dp-world=auto"]),
    "--mpi=pmi2": (False, ["--mpi=pmi2"]),
    "--mpi=pmix": (False, ["--mpi=pmix"]),
}
# What no target is about.
SELDOM = {"no plugin, again", "--mpi=pmi2", "--mpi=pmix"}
TILES = {
    "no plugin": (False, []),
    "--dp-world=auto": (True, ["--dp-world=auto"]),
    "--dp-tiles=4": (True, ["--dp-tiles=4"]),
}
PREFLIGHT = {
    "no plugin": (False, []),
    "--dp-world=auto": (True, ["--dp-world=auto"]),
    "--dp-preflight=quick": (True, ["--dp-preflight=quick"]),
    "--dp-preflight=full": (True, ["--dp-preflight=full"]),
}


class Shape(NamedTuple):
    nodes: int
    tasks_per_node: int
    cases: dict
    targets: list  # (case, against, in what, at most)
    seldom: set  # cases
    rounds: int = 300
    program: str = "true"
    salloc: tuple = ()  # words
    tiles_conf: str = ""


SHAPES = {
    "4": Shape(4, 4, CASES, [("plugin, no option", "no plugin", "percent", 2), ("--dp-world=auto", "plugin, no option", "ms", 15)], SELDOM),
    "preflight": Shape(4, 4, PREFLIGHT, [("--dp-preflight=quick", "--dp-world=auto", "ms", 300)], {"no plugin", "--dp-preflight=full"}, 60),
    "32": Shape(32, 4, CASES, [("--dp-world=auto", "plugin, no option", "percent", 10)], SELDOM),
}


def masks(nodes, rounds):
    """What they cost, on nodes like the seed's SN30: 64 tiles, 4 for each of 16 ranks.

    Real nodes work at the same time, so what 32 of them add to a launch is nearer to what 2 add here than to what 32 add that share this
    machine's CPUs. There, 5 ms are half a percent of a step that 512 tasks keep the CPUs busy with: hence so many rounds, and a program for
    which nothing is loaded."""
    return Shape(nodes, 16, TILES, [("--dp-tiles=4", "--dp-world=auto", "ms", 5)], {"no plugin"}, rounds, built("bench-nothing"),
                 ("--gres=tile:64",), "nodes=node[01-32] vendor=sambanova gres=tile devices=8 tiles-per-device=8\n")


SHAPES |= {"tiles": masks(nodes=32, rounds=2000), "tiles2": masks(nodes=2, rounds=400)}


EMULATED_SHAPES = {"tiles", "tiles2"}  # which have no peers
SMOKE = ["4", "preflight", "tiles2"]


class Once(NamedTuple):
    """One step, and what it took of all CPUs together, slurmd and slurmctld included: noise of the clock is not in that."""
    seconds: float
    cpu_seconds: float


def cpu_seconds():
    """That this machine's CPUs have worked since it started. To the nanosecond where the kernel keeps that (Documentation/scheduler/sched-stats.rst:
    the 7th number of a CPU), else in ticks (proc(5): the first line of stat, without idle and iowait; guests are in user)."""
    if os.path.exists(SCHEDSTAT):
        with open(SCHEDSTAT, encoding="ascii") as stat:
            return sum(int(line.split()[7]) for line in stat if line.startswith("cpu")) / 1e9
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, _, _, irq, softirq, *_ = map(int, stat.readline().split()[1:])
    return (user + nice + system + irq + softirq) * TICK


def loaded_in(cluster, allocation, step):
    """Which spank_dp.so are mapped where while a step runs: a set of (build, "srun" or "slurmstepd")."""
    up, down = cluster.host_path("/home/alice/up"), cluster.host_path("/home/alice/down")
    os.mkfifo(down, 0o666)  # opened when its other end is: whoever waits for that takes no CPU
    os.chmod(down, 0o666)
    allocation.start(*step, "sh", "-c", "echo > /home/alice/up; : < /home/alice/down")
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
            found |= {(line.split()[-1].removesuffix("/lib/spank_dp.so"), program) for line in maps if "spank_dp.so" in line}
    open_end = os.open(down, os.O_WRONLY)
    allocation.finish()
    os.close(open_end)
    os.unlink(up)
    os.unlink(down)
    return found


def check_swap(cluster, allocation, plugstack, nodes, some_builds):
    step = ["srun", f"-N{nodes}", f"-n{nodes}"]
    for build in (BUILD, None, *some_builds):
        plugstack.set(build)
        found = loaded_in(cluster, allocation, step)
        if found != ({(build, "srun"), (build, "slurmstepd")} if build else set()):
            raise SystemExit(f"tests/bench/run: with {build or 'no plugin'} in plugstack.conf the plugin is loaded in "
                             f"{found or 'nothing'}; the cases would not be what they say")


def check_spread(allocation, step, shape):
    """srun fills the first nodes where it is not told better, and then most nodes have one task."""
    spread = f"{shape.tasks_per_node}(x{shape.nodes})"
    allocation.start(*step, "sh", "-c", f'echo "$SLURM_STEP_TASKS_PER_NODE"; test "$SLURM_STEP_TASKS_PER_NODE" = "{spread}"')
    allocation.finish()


def cases_of(shape, some_builds):
    """{case: (the build whose plugin is in plugstack.conf or None, words of srun)}"""
    return {case + suffix: (build if plugin else None, words) for case, (plugin, words) in shape.cases.items()
            for suffix, build in some_builds.items() if plugin or not suffix}


def measure(shape, rounds, some_builds, warm_up):
    """→ {case: [Once, or None where a round did without]}"""
    nodes, cases = shape.nodes, cases_of(shape, some_builds)
    step = ["srun", f"-N{nodes}", f"-n{nodes * shape.tasks_per_node}", f"--ntasks-per-node={shape.tasks_per_node}"]
    with TestCluster(cluster_name(), nodes=nodes) as cluster:
        with open(os.path.join(Cluster(cluster.name).etc, "slurm", "tiles.conf"), "w", encoding="ascii") as conf:
            conf.write(shape.tiles_conf)
        plugstack = Plugstack(cluster)
        allocation = Allocation(cluster, nodes, shape.tasks_per_node, *shape.salloc)
        check_swap(cluster, allocation, plugstack, nodes, some_builds.values())
        check_spread(allocation, step, shape)

        def run_once(case, tries=3):
            build, words = cases[case]
            plugstack.set(build)
            before = cpu_seconds()
            allocation.start(*step, *words, shape.program)
            try:
                return Once(allocation.finish(), cpu_seconds() - before)
            except SystemExit as failed:
                # The nodes are one machine: what else runs there may make one of them seem slow while it is measured.
                slow = re.search(r"node\d+: (memory|cores): .*|links: .*", str(failed))
                if not slow or tries == 1:
                    raise
                print(f"launch: again, as {case} refused: {slow[0]}", file=sys.stderr, flush=True)
                return run_once(case, tries - 1)

        def progress(done, of):
            if done and (done % (5 if IS_EMULATED else 50) == 0 or done == of):
                print(f"launch of {nodes} x {shape.tasks_per_node} tasks: round {done} of {of}", file=sys.stderr, flush=True)

        found = interleaved(cases, rounds, run_once, progress, seldom=shape.seldom, warm_up=warm_up)
        allocation.close()
        cluster.assert_idle()
        cluster.assert_nothing_left()
    return found


def field(found, name):
    """{case: [that field of its steps]}"""
    return {case: [once and getattr(once, name) for once in steps] for case, steps in found.items()}


def report(shape, times, cpu_times):
    base = times["no plugin"]
    rows = [["case", "rounds", "median", "p90", "more than no plugin", "95 % interval", "in %", "CPU time", "more", "95 % interval"]]
    found = {"summaries": {}, "differences": {}, "targets": []}
    for case, values in times.items():
        s = found["summaries"][case] = summary(values)
        row = [case, str(len(values) - values.count(None)), f"{s['median'] * 1e3:.1f} ms", f"{s['p90'] * 1e3:.1f} ms"]
        if case != "no plugin":
            d = found["differences"][case] = difference(values, base)
            row += [f"{d['estimate'] * 1e3:+.1f} ms", f"{d['low'] * 1e3:+.1f} to {d['high'] * 1e3:+.1f}", f"{d['percent']:+.1f}"]
        row += [""] * (rows[0].index("CPU time") - len(row)) + [f"{summary(cpu_times[case])['median'] * 1e3:.0f} ms"]
        if case != "no plugin":
            d = difference(cpu_times[case], cpu_times["no plugin"])
            row += [f"{d['estimate'] * 1e3:+.0f} ms", f"{d['low'] * 1e3:+.0f} to {d['high'] * 1e3:+.0f}"]
        rows.append(row + [""] * (len(rows[0]) - len(row)))
    print(f"\nsrun -N{shape.nodes} -n{shape.nodes * shape.tasks_per_node} {os.path.basename(shape.program)}, "
          f"{len(base)} rounds; differences are of pairs (Hodges and Lehmann)"
          f"{'; emulated: 1 ms is a million instructions of one CPU' if IS_EMULATED else ''}\n\n{table(rows)}\n")
    for case, against, unit, limit in shape.targets:
        d = difference(times[case], times[against])
        text = verdict(d, "percent", limit) if unit == "percent" else verdict(d, "estimate", limit / 1e3)
        if len(base) < FEWEST:
            text = "too few rounds"
        if IS_EMULATED and unit == "ms":
            text = "of a real machine; here a million instructions are one"
        value = (f"{d['estimate'] * 1e3:+.1f} ms ({d['low'] * 1e3:+.1f} to {d['high'] * 1e3:+.1f}), "
                 f"{d['percent']:+.1f} % ({d['percent_low']:+.1f} to {d['percent_high']:+.1f})")
        found["targets"].append({"case": case, "against": against, "unit": unit, "limit": limit, "difference": d, "verdict": text})
        print(f"{case} against {against}: {value}; at most {limit} {'ms' if unit == 'ms' else '%'}: {text}")
        d = difference(cpu_times[case], cpu_times[against])
        print(f"    in CPU time of all {os.cpu_count()} CPUs: {d['estimate'] * 1e3:+.0f} ms ({d['low'] * 1e3:+.0f} to {d['high'] * 1e3:+.0f})")
    found["before"] = [told_against(f"{case}, {what}", paired_ratio(of[case], of[case + BEFORE])) for case in shape.cases
                       if case + BEFORE in times for what, of in (("seconds", times), ("CPU seconds", cpu_times))]
    return found


def run(options):
    if options.emulated:
        return emulated.run(["launch", "--rounds", str(options.rounds or FEWEST), "--shapes", ",".join(options.shapes or ["tiles"])])
    result = {"part": "launch", "machine": machine(), "shapes": {}}
    warn_if_busy(result["machine"])
    names = options.shapes or (SMOKE if options.smoke else SHAPES)
    warm_up = 1 if IS_EMULATED or options.smoke else WARM_UP
    if any(os.path.isabs(SHAPES[name].program) for name in names):
        require(built("bench-nothing"))
    for name in names:
        shape = SHAPES[name]
        found = measure(shape, options.rounds or shape.rounds, builds(options), warm_up)
        times, cpu_times = field(found, "seconds"), field(found, "cpu_seconds")
        result["shapes"][name] = {"nodes": shape.nodes, "tasks_per_node": shape.tasks_per_node, "program": os.path.basename(shape.program),
                                  "seconds": times, "cpu_seconds": cpu_times, **report(shape, times, cpu_times)}
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(result, out, indent=1)
    return 0
