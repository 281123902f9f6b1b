# SPDX-License-Identifier: Apache-2.0
"""How long a world takes to have its unique ids, ranks simulated on loopback: the real broker with simulated nodes, beside what as many
bare connections cost and beside stores with as many clients.

From a common start, the call on each rank to the ids in hand; of a round the slowest rank counts. slurm-dp's nodes have connected before
(when the step was launched); what that takes stands in a row of its own. Everybody else connects in the round.
"""
import statistics

from measuring import ratio, ratio_verdict, table, told_against
from programs import BEFORE, built, daemon_of, left_out, progress, rounds_of
from stores import STORES, rounds_with

RANKS_PER_NODE = 8
SIZES = [8, 64, 128, 2048]  # nodes
SLICES = 4  # the cases take turns, so that all see the same moods of the machine
FEWEST = 2  # rounds of a slice: after the first one the broker has what it keeps
OURS, LAUNCHED = "slurm-dp", "slurm-dp, and its nodes' connections"
FLOOR_NODES, FLOOR_RANKS = "floor, a connection a node", "floor, a connection a rank"
# (against, at most so many times, nodes)
TARGETS = [(FLOOR_NODES, 2, 2048), (FLOOR_RANKS, 1, 2048)]
KIB_A_NODE, KIB_A_RANK = 8, 0.5  # of the broker, at most
MANY = 1000  # nodes, from which on it is they that count, and not the pages of its code that the first of them brings in


def stores():
    """Those that are installed; a line for each that is not."""
    found = []
    for name, store in STORES.items():
        if why := store.problem():
            left_out(name, why)
        else:
            found.append(name)
    return found


def _cases(nodes, rounds, peers, some_builds):
    """{case: a function that runs it for so many rounds and returns its lines}"""
    ranks = nodes * RANKS_PER_NODE
    cases = {FLOOR_NODES: lambda: rounds_of([built("bench-floor"), nodes, rounds]),
             FLOOR_RANKS: lambda: rounds_of([built("bench-floor"), ranks, rounds]),
             **{OURS + suffix: lambda build=build: rounds_of([built("bench-world", build), daemon_of(build), nodes, RANKS_PER_NODE, rounds])
                for suffix, build in some_builds.items()}}
    for name in peers:
        store = STORES[name]
        if ranks <= store.most:
            cases[name] = lambda name=name: rounds_with(name, ranks, rounds)
        else:
            left_out(f"{name} at {ranks} ranks", f"it is measured up to {store.most}; {store.no_more}")
    return cases


def measure(nodes, rounds, peers, some_builds):
    """→ {case: {"rounds": [a dict a round], "usage": [a dict a slice]}}"""
    cases = _cases(nodes, max(FEWEST, -(-rounds // SLICES)), peers, some_builds)
    found = {case: {"rounds": [], "usage": []} for case in [*cases, LAUNCHED]}
    for part in range(SLICES):
        for case, run_case in cases.items():
            *lines, used = run_case()
            found[case]["rounds"] += lines
            found[case]["usage"].append(used)
            if case == OURS:
                found[LAUNCHED]["rounds"].append(_later(lines[0], used["joined_ms"]))
        progress(f"rendezvous of {nodes * RANKS_PER_NODE} simulated ranks: {part + 1} of {SLICES} done")
    return found


def _later(line, ms):
    """The same round, begun so much earlier."""
    return {"ranks": line["ranks"], **{key: ms + line[key] for key in ("p50", "p99", "max")}}


def medians(found):
    return {case: {key: statistics.median(line[key] for line in of_case["rounds"]) for key in ("max", "p99", "p50")}
            for case, of_case in found.items()}


def _used(of_case, ranks):
    """The server's CPU in µs a rank and round, and its memory in bytes a rank."""
    if not of_case["usage"]:
        return None
    return {"cpu_us": 1e3 * statistics.median(line["cpu_ms_a_round"] for line in of_case["usage"]) / ranks,
            "bytes": 1024 * statistics.median(line["kib_after"] - line["kib_before"] for line in of_case["usage"]) / ranks}


def _memory(usage, nodes):
    """What the broker has for its nodes and ranks, against the most that it may have: between the rounds, and at its peak, when the ids are on
    their way to all nodes."""
    ranks = nodes * RANKS_PER_NODE
    most = nodes * KIB_A_NODE + ranks * KIB_A_RANK
    found = {"at_most_kib": most}
    for when, key in (("between the rounds", "kib_after"), ("at its peak", "kib_peak")):
        kib = statistics.median(line[key] - line["kib_before"] for line in usage)
        found[key] = {"kib": kib}
        print(f"the broker's memory {when}: {kib:.0f} KiB", end="")
        if nodes >= MANY:
            found[key]["verdict"] = "met" if kib <= most else f"missed by {kib / most:.2f}x"
            print(f"; at most {KIB_A_NODE} KiB a node and {1024 * KIB_A_RANK:.0f} bytes a rank ({most:.0f} KiB): {found[key]['verdict']}", end="")
        print()
    return found


def _against_floor(found, nodes):
    targets = []
    for against, limit, where in TARGETS:
        if where != nodes:
            continue
        for case in (OURS, LAUNCHED):
            r = ratio(*([line["max"] for line in found[name]["rounds"]] for name in (case, against)))
            print(f"{case} against {against}: {r['ratio']:.2f}x ({r['low']:.2f} to {r['high']:.2f})", end="")
            if case == OURS:
                targets.append({"case": case, "against": against, "at_most": limit, **r, "verdict": ratio_verdict(r, limit)})
                print(f"; at most {limit}x: {targets[-1]['verdict']}", end="")
            print()
    return targets


def report(nodes, found):
    ranks = nodes * RANKS_PER_NODE
    rows = [["case", "slowest rank", "p99 rank", "p50 rank", "server CPU a rank", "server memory a rank"]]
    used = {case: _used(of_case, ranks) for case, of_case in found.items()}
    of_ranks = medians(found)
    for case, row in of_ranks.items():
        server = [f"{used[case]['cpu_us']:.1f} µs", f"{used[case]['bytes']:.0f} bytes"] if used[case] else ["", ""]
        rows.append([case, *(f"{row[key]:.2f} ms" for key in ("max", "p99", "p50")), *server])
    print(f"\n{ranks} ranks on {nodes} nodes, simulated on loopback, {len(found[OURS]['rounds'])} rounds; medians\n\n{table(rows)}\n")
    memory = _memory(found[OURS]["usage"], nodes)
    result = {"medians": of_ranks, "servers": used, "memory": memory, "targets": _against_floor(found, nodes)}
    if (before := found.get(OURS + BEFORE)):
        result["before"] = [told_against(f"{ranks} simulated ranks, {what}",
                                         ratio(*([line[key] for line in of_case[of]] for of_case in (found[OURS], before))))
                            for what, of, key in (("slowest rank", "rounds", "max"), ("the broker's CPU time", "usage", "cpu_ms_a_round"),
                                                  ("its memory at its peak", "usage", "kib_peak"))]
    return result
