# SPDX-License-Identifier: Apache-2.0
"""How soon everybody knows of a death, in one run on one machine: simulated ranks up to 16,384 (simulated_deaths.py), 32 real ones on the local
cluster (cluster_deaths.py); and how soon a node that says nothing any more is named (suspicions.py)."""
import json
import os
import statistics

import cluster_deaths
import plot
import simulated_deaths
import suspicions
from localcluster.harness import TestCluster
from measuring import machine, percentile, ratio, table, told_against, worst_verdict
from programs import BEFORE, built, builds, cluster_name, daemon_of, require, warn_if_busy

SIMULATED, REAL = "simulated on loopback", "real, on the local cluster"
TARGETS = {(SIMULATED, 16384): 500, (REAL, cluster_deaths.RANKS): 100}  # ms, of the 99th percentile of the survivors
NAMED_WITHIN = 1000  # ms
SMOKE_NODES = [2]


def _simulated(options):
    """→ {(where, ranks, case): [a dict a round]}"""
    found = {}
    for nodes in options.nodes or (SMOKE_NODES if options.smoke else simulated_deaths.SIZES):
        ranks = nodes * simulated_deaths.RANKS_PER_NODE
        for suffix, rounds in simulated_deaths.measure(nodes, min(options.rounds, ranks // 2), builds(options)).items():
            found[SIMULATED, ranks, "report" + suffix] = rounds
    return found


def _real(options):
    """→ the same of real ranks, and {case: [ms until a silent node is named]}"""
    with TestCluster(cluster_name(), nodes=cluster_deaths.NODES) as cluster:
        deaths = cluster_deaths.measure(cluster, options.rounds, builds(options))
        silences = suspicions.measure(cluster, options.rounds)
        cluster.assert_idle()
        cluster.assert_nothing_left()
    return {(REAL, cluster_deaths.RANKS, case): rounds for case, rounds in deaths.items()}, silences


def report_deaths(found):
    rows = [["ranks", "--dp-on-failure", "rounds", "p50 survivor", "p99 survivor", "slowest survivor", "p99 of the worst round"]]
    for (where, ranks, case), rounds in found.items():
        medians = [statistics.median(line[key] for line in rounds) for key in ("p50", "p99", "max")]
        rows.append([f"{ranks}, {where}", case, str(len(rounds)), *(f"{ms:.2f} ms" for ms in (*medians, max(line["p99"] for line in rounds)))])
    print(f"\nfrom a rank's death until a survivor knows which, where and why; medians of rounds\n\n{table(rows)}\n")
    return [_death_target(where, ranks, case, rounds, TARGETS[where, ranks]) for (where, ranks, case), rounds in found.items()
            if (where, ranks) in TARGETS and not case.endswith(BEFORE)]


def report_before(found):
    return [told_against(f"{ranks} ranks, {where}, --dp-on-failure={case}, p99",
                         ratio(*([line["p99"] for line in lines] for lines in (rounds, before))))
            for (where, ranks, case), rounds in found.items() if (before := found.get((where, ranks, case + BEFORE)))]


def _death_target(where, ranks, case, rounds, limit):
    p99 = [line["p99"] for line in rounds]
    text = worst_verdict(p99, limit)
    print(f"{ranks} ranks, {where}, --dp-on-failure={case}: p99 {statistics.median(p99):.1f} ms, {max(p99):.1f} in the worst round; "
          f"at most {limit} ms: {text}")
    return {"ranks": ranks, "where": where, "case": case, "at_most_ms": limit,
            "p99_median": statistics.median(p99), "p99_worst": max(p99), "verdict": text}


def report_silences(found):
    rows = [["node", "rounds", "p50", "p99", "slowest"]]
    targets = []
    for case, ms in found.items():
        rows.append([case, str(len(ms)), *(f"{value:.0f} ms" for value in (statistics.median(ms), percentile(ms, 0.99), max(ms)))])
    print(f"\nfrom a node's silence until the line that names it\n\n{table(rows)}\n")
    for case, ms in found.items():
        text = worst_verdict(ms, NAMED_WITHIN)
        print(f"a {case} node is named after {statistics.median(ms):.0f} ms, {max(ms):.0f} at worst; at most {NAMED_WITHIN} ms: {text}")
        targets.append({"case": case, "at_most_ms": NAMED_WITHIN, "median": statistics.median(ms), "worst": max(ms), "verdict": text})
    return targets


def series(found):
    """{name: [(ranks, ms)]}"""
    lines = {}
    for (where, ranks, case), rounds in found.items():
        for key, name in (("p50", "p50"), ("p99", "p99"), ("max", "slowest")):
            label = f"{name} survivor, {'simulated' if where == SIMULATED else 'real ranks'}, {case}"
            lines.setdefault(label, []).append((ranks, statistics.median(line[key] for line in rounds)))
    return lines


def run(options):
    for build in builds(options).values():
        require(daemon_of(build), *(built(name, build) for name in ("bench-deaths", "bench-told-of-death", "rank")))
    result = {"part": "failure", "rounds": options.rounds, "machine": machine()}
    warn_if_busy(result["machine"])
    found, silences = {}, {}
    if options.only != "cluster":
        found |= _simulated(options)
    if options.only != "simulated":
        real, silences = _real(options)
        found |= real
    result["deaths"] = [{"where": where, "ranks": ranks, "on_failure": case, "rounds": rounds} for (where, ranks, case), rounds in found.items()]
    result["targets"] = report_deaths(found)
    result["before"] = report_before(found)
    if silences:
        result["silences_ms"] = silences
        result["targets"] += report_silences(silences)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(result, out, indent=1)
    if options.svg:
        plot.write(options.svg, f"Deaths told on one machine with {os.cpu_count()} CPUs; simulated: on loopback", "ranks",
                   "from the death to the call-back, ms", series(found))
    return 0
