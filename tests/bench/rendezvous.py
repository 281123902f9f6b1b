# SPDX-License-Identifier: Apache-2.0
"""How long a world takes to have its unique ids, in one run on one machine: simulated ranks up to 16,384 (simulated_ids.py), real ones on
the local cluster (cluster_ids.py), what Python's calls cost (python_calls.py), and the broker's memory over many generations (generations.py)."""
import json
import os

import cluster_ids
import generations
import plot
import python_calls
import simulated_ids
from localcluster.versions import tested
from measuring import machine
from programs import built, builds, daemon_of, left_out, require, warn_if_busy

OURS = ("bench-world", "bench-floor", "bench-store", "bench-torch-face", "bench-id-libdp")
SMOKE_NODES, SMOKE_RANKS, SMOKE_GENERATIONS = [2], [8], 100
LABEL = "slowest rank: from the call to the id, ms"


def series(simulated, real):
    """{name: [(ranks, ms of the slowest rank)]}"""
    found = {}
    for suffix, sizes in ((" (simulated)", simulated), (" (real ranks)", real)):
        for ranks, of_size in sizes.items():
            for case, row in of_size["medians"].items():
                found.setdefault(case + suffix, []).append((int(ranks), row["max"]))
    return found


def _simulated(options, result):
    peers = simulated_ids.stores()
    for nodes in options.nodes or (SMOKE_NODES if options.smoke else simulated_ids.SIZES):
        found = simulated_ids.measure(nodes, options.rounds, peers, builds(options))
        ranks = nodes * simulated_ids.RANKS_PER_NODE
        result["simulated"][ranks] = {"nodes": nodes, "cases": found, **simulated_ids.report(nodes, found)}
    grown = generations.measure(SMOKE_GENERATIONS if options.smoke else generations.GENERATIONS)
    result["generations"] = {**grown, **generations.report(grown)}


def _real(options, result):
    worlds = options.ranks or (SMOKE_RANKS if options.smoke else list(cluster_ids.SHAPES))
    for ranks, found in cluster_ids.measure(worlds, options.rounds, builds(options)).items():
        result["real"][ranks] = {"cases": found, **cluster_ids.report(ranks, found)}
    if tested().suite:
        return left_out("slurm_dp in Python", f"it is measured on this machine, and Slurm {tested().number} has a root of its own")
    result["python"] = python_calls.measure(options.rounds)
    python_calls.report(result["python"])


def run(options):
    for build in builds(options).values():
        require(daemon_of(build), *(built(name, build) for name in OURS))
    result = {"part": "rendezvous", "rounds": options.rounds, "machine": machine(), "simulated": {}, "real": {}}
    warn_if_busy(result["machine"])
    if options.only != "cluster":
        _simulated(options, result)
    if options.only != "simulated":
        _real(options, result)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(result, out, indent=1)
    if options.svg:
        plot.write(options.svg, f"Rendezvous on one machine with {os.cpu_count()} CPUs; simulated: on loopback", "ranks", LABEL,
                   series(result["simulated"], result["real"]))
    return 0
