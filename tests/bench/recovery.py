# SPDX-License-Identifier: Apache-2.0
"""What a death costs, in one run on one machine: from the death of one of 32 real ranks until the last of them has begun its next life, with
--dp-on-failure=restart, with torchrun's restart of the same program, and with another srun of it; from the death of a rank, a node or
the broker until the last of many simulated nodes has the next generation's plan; what a death costs the bundled trainer, whose other processes
go on; and what keepers cost a launch, and copies of a sharded optimizer a training step, that nobody disturbs."""
import json
import os
import random
import statistics

import peer_copies
import plot
import survivors
from allocation import Allocation
from localcluster.harness import TestCluster
from measuring import difference, interleaved, machine, percentile, ratio, ratio_verdict, table, verdict, worst_verdict
from programs import BUILD, built, cluster_name, daemon_of, left_out, progress, require, rounds_of, warn_if_busy
from start_line import StartLine
from stores import PYTHON, torch_problem

NODES, RANKS_PER_NODE = 4, 8
SIMULATED_NODES, SMOKE_NODES = [8, 64, 512, 2048], [8]  # of as many ranks
# Death to the last of so many simulated nodes having the next plan.
PLAN_MS = {("rank", 2048): 1000, ("node", 2048): 1000, ("broker", 2048): 1500}
RANKS = NODES * RANKS_PER_NODE
OURS, TORCHRUN, AGAIN = "--dp-on-failure=restart", "torchrun --max_restarts", "srun again"
TARGET_MS = 150  # death to the first instruction of the last rank
TORCHRUN_SHARE = 1 / 20
KEEPERS_MS = 3  # a step of 4 nodes with 4 ranks each
FIRST_PORT = 28700  # of torchrun's rendezvous, and up
SMOKE_LAUNCHES = 2
LAUNCHES = 60


def _deaths(lines, last):
    """→ [ms from the death of a generation's rank to the beginning of the last rank of the next]"""
    began, died = {}, {}
    for rank, generation, what, at in lines:
        if what == "began":
            began.setdefault(int(generation), {})[int(rank)] = int(at)
        else:
            died[int(generation)] = int(at)
    for generation in range(last + 1):
        if sorted(began.get(generation, ())) != list(range(RANKS)):
            raise SystemExit(f"tests/bench/run: {len(began.get(generation, ()))} of {RANKS} ranks began generation {generation}")
    return [(max(began[generation + 1].values()) - died[generation]) / 1e6 for generation in range(last)]


class Lives:
    """Runs bench-lives through so many deaths."""

    def __init__(self, cluster, allocation):
        self._allocation, self._line = allocation, StartLine(cluster, "bench-lives")
        self._port = FIRST_PORT

    def _run(self, *command, may_fail=False):
        self._allocation.start("srun", f"-N{NODES}", *command)
        self._allocation.finish(may_fail=may_fail)

    def run(self, case, deaths):
        self._line.close()
        program = [built("bench-lives"), self._line.path, deaths]
        ranks = [f"-n{RANKS}", f"--ntasks-per-node={RANKS_PER_NODE}", "-m", "block"]
        if case == OURS:
            self._run(*ranks, OURS, "--dp-restarts=1000", *program)
        elif case == TORCHRUN:
            self._port += 1
            self._run(f"-n{NODES}", "--ntasks-per-node=1", PYTHON, "-m", "torch.distributed.run", f"--nnodes={NODES}",
                      f"--nproc_per_node={RANKS_PER_NODE}", f"--max_restarts={deaths}", "--rdzv_backend=c10d",
                      f"--rdzv_endpoint=node01:{self._port}", "--redirects=1", "--tee=1", "--log_dir=/tmp", "--no_python", *program)  # 1.13 fails without
        else:
            for past in range(deaths + 1):
                self._run(*ranks, "--dp-world=auto", *program, may_fail=past < deaths)
        return _deaths(self._line.lines(), deaths)


def _recoveries(lives, options):
    """→ {case: [ms]}"""
    found = {}
    cases = [OURS, AGAIN]
    if why := torch_problem():
        left_out("torchrun", why)
    else:
        cases.append(TORCHRUN)
    # In turns of a few deaths, so that all cases see the same weather.
    turns = [min(5, options.rounds - done) for done in range(0, options.rounds, 5)]
    shuffler = random.Random(1)
    for deaths in turns:
        shuffler.shuffle(cases)
        for case in cases:
            found.setdefault(case, []).extend(lives.run(case, deaths))
        progress(f"deaths among {RANKS} real ranks: {len(found[OURS])} of {options.rounds} rounds done")
    return found


def _simulated(options, what):
    """→ {nodes: [a dict a round]}: ms from a death, of a rank, a node or the broker, until a simulated node has the next plan."""
    found = {}
    for nodes in options.nodes or (SMOKE_NODES if options.smoke else SIMULATED_NODES):
        progress(f"deaths of a {what} among {nodes * RANKS_PER_NODE} simulated ranks")
        rounds = min(options.rounds, nodes - 1)
        step = [built("bench-restarts"), daemon_of(BUILD), nodes, RANKS_PER_NODE]
        # A broker dies once in a step.
        found[nodes] = [line for _ in range(rounds) for line in rounds_of([*step, 1, what])] if what == "broker" else rounds_of([*step, rounds, what])
    return found


def report_simulated(found, what):
    rows = [["simulated ranks, nodes", "rounds", "median node", "slowest node", "that of the worst round"]]
    for nodes, rounds in found.items():
        values = [statistics.median(line[key] for line in rounds) for key in ("p50", "max")] + [max(line["max"] for line in rounds)]
        rows.append([f"{nodes * RANKS_PER_NODE}, {nodes}", str(len(rounds)), *(f"{ms:.1f} ms" for ms in values)])
    print(f"\nfrom the death of a {what} until a node has the next generation's plan, on loopback; medians of rounds\n\n{table(rows)}\n")
    targets = []
    for (dead, nodes), limit in PLAN_MS.items():
        if dead == what and nodes in found:
            slowest = [line["max"] for line in found[nodes]]
            text = worst_verdict(slowest, limit)
            print(f"{nodes * RANKS_PER_NODE} simulated ranks: the last of {nodes} nodes after {statistics.median(slowest):.0f} ms; at most {limit} ms: {text}")
            targets.append({"nodes": nodes, "dead": what, "at_most_ms": limit, "verdict": text})
    return targets


def _launches(cluster, rounds):
    """→ {case: [seconds]}: a step of 4 nodes with 4 ranks each."""
    allocation = Allocation(cluster, NODES, 4)

    def run_once(case):
        allocation.start("srun", f"-N{NODES}", f"-n{NODES * 4}", "--ntasks-per-node=4", case, built("bench-nothing"))
        return allocation.finish()

    times = interleaved(["--dp-world=auto", OURS], rounds, run_once)
    allocation.close()
    return times


def report_deaths(found):
    rows = [["from a death to the last rank's next life", "deaths", "median", "p99", "slowest"]]
    for case, ms in found.items():
        rows.append([case, str(len(ms)), *(f"{value:.0f} ms" for value in (statistics.median(ms), percentile(ms, 0.99), max(ms)))])
    print(f"\n{RANKS} real ranks on {NODES} nodes of the local cluster\n\n{table(rows)}\n")
    text = worst_verdict(found[OURS], TARGET_MS)
    print(f"{OURS}: median {statistics.median(found[OURS]):.0f} ms, {max(found[OURS]):.0f} at worst; at most {TARGET_MS} ms: {text}")
    targets = [{"case": OURS, "at_most_ms": TARGET_MS, "verdict": text}]
    for peer, limit in ((TORCHRUN, TORCHRUN_SHARE), (AGAIN, 1)):
        if peer not in found:
            continue
        r = ratio(found[OURS], found[peer])
        text = ratio_verdict(r, limit)
        print(f"{1 / r['ratio']:.1f} times less than {peer} ({1 / r['high']:.1f} to {1 / r['low']:.1f}); at least {1 / limit:.0f}: {text}")
        targets.append({"case": OURS, "peer": peer, **r, "at_most": limit, "verdict": text})
    return targets


def report_launches(times):
    ms = {case: [1e3 * second for second in seconds] for case, seconds in times.items()}
    found = difference(ms[OURS], ms["--dp-world=auto"])
    text = verdict(found, "ms", KEEPERS_MS)
    print(f"keepers add {found['estimate']:.1f} ms ({found['low']:.1f} to {found['high']:.1f}) to a step of {NODES} nodes with 4 ranks each that takes "
          f"{statistics.median(ms['--dp-world=auto']):.0f} ms; at most {KEEPERS_MS} ms: {text}")
    return [{"case": "keepers", **found, "at_most_ms": KEEPERS_MS, "verdict": text}]


def run(options):
    require(daemon_of(BUILD), survivors.TRAINER, *(built(name) for name in ("bench-lives", "bench-nothing", "bench-restarts")))
    result = {"part": "recovery", "rounds": options.rounds, "machine": machine(), "targets": []}
    warn_if_busy(result["machine"])
    found = {}
    if options.only != "cluster":
        for what, key in (("rank", "simulated"), ("node", "simulated_nodes"), ("broker", "simulated_brokers")):
            result[key] = _simulated(options, what)
            result["targets"] += report_simulated(result[key], what)
    if options.only != "simulated":
        with TestCluster(cluster_name(), nodes=NODES) as cluster:
            allocation = Allocation(cluster, NODES, RANKS_PER_NODE)
            found = _recoveries(Lives(cluster, allocation), options)
            allocation.close()
            survived = survivors.measure(cluster, NODES, RANKS_PER_NODE, options.rounds)
            times = _launches(cluster, SMOKE_LAUNCHES if options.smoke else LAUNCHES)
            copies = peer_copies.measure(cluster, options.rounds, options.smoke)
            cluster.assert_idle()
            cluster.assert_nothing_left()
        result["recoveries_ms"], result["survivors"], result["launches_s"] = found, survived, times
        result["peer_copies_ms"] = copies
        result["targets"] += report_deaths(found) + survivors.report(survived, RANKS) + report_launches(times) + peer_copies.report(copies)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(result, out, indent=1)
    if options.svg:
        lines = {f"{name}, a {what} died, simulated": [(nodes * RANKS_PER_NODE, statistics.median(line[key] for line in rounds))
                                                       for nodes, rounds in result.get(of, {}).items()]
                 for key, name in (("p50", "median node"), ("max", "slowest node")) for of, what in (("simulated", "rank"), ("simulated_nodes", "node"), ("simulated_brokers", "broker"))}
        lines |= {f"{case}, last of {RANKS} real ranks": [(RANKS, statistics.median(ms))] for case, ms in found.items()}
        plot.write(options.svg, f"Recovery on one machine with {os.cpu_count()} CPUs; simulated: on loopback", "ranks", "from a death on, ms",
                   {name: points for name, points in lines.items() if points})
    return 0
