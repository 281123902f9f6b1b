#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a made-up run report as JSON: a start, steps, a slow rank, a death and restart, a hang."""

import argparse
import json
import random

RANKS_PER_NODE = 8
WORD_OF_LETTER = {
    "s": "start", "c": "compute", "m": "communication", "w": "waiting", "l": "load", "k": "checkpoint", "i": "idle",
    "u": "unlabelled", "h": "hang", "r": "restart", "x": "repeated", "e": "ended", "-": "spare", "?": "unknown",
}
HOSTILE = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>\x00\x01\x1b[31m\u202eabc\u2028"
LONG = "a very long text with no end " * 3500


def main():
    arguments = parse_arguments()
    report = make_report(arguments.tasks, arguments.windows, arguments.runs, arguments.hostile)
    print(json.dumps(report, separators=(",", ":")))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--windows", type=int, default=600)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--hostile", action="store_true")
    return parser.parse_args()


def make_report(tasks=8, windows=600, runs=1, hostile=False):
    report = {"version": 1, "problems": [], "runs": [make_run(tasks, windows, i) for i in range(runs)]}
    return make_hostile(report) if hostile else report


def make_run(tasks, windows, seed):
    chance = random.Random(seed)
    window = 6.2
    seconds = windows * window
    slow, dead = (tasks * 3) // 8, (tasks * 5) // 8
    made = [make_task(rank, windows, window, slow, dead, chance) for rank in range(tasks)]
    ledger = add_ledgers(task["ledger"] for task in made)
    allocated = sum(ledger.values())
    middle = windows // 2 * window
    hosts = sorted({task["host"] for task in made})
    return {
        "run": f"{0x9F86D081C0FFEE00 + seed:016x}", "job": 12 + seed, "step": 0, "slurm_dp": "0.9.0",
        "began": "2026-11-28T18:00:01.250Z", "seconds": seconds - 1.5,
        "outcome": {"how": "finished", "reason": "all ranks ended with code 0 after one restart"},
        "world_size": tasks, "hosts": hosts[0] if len(hosts) == 1 else f"{hosts[0]} to {hosts[-1]}",
        "settings": {"dp-timeout": str(300 + 60 * seed), "dp-restarts": "2", "dp-record": "yes", "batch": "64"},
        "goodput": (ledger["compute"] + ledger["communication"] + ledger["load"]) / allocated, "allocated": allocated,
        "ledger": ledger, "window": window, "windows": windows,
        "generations": [
            {"generation": 0, "world_size": tasks, "from": 0.1, "until": middle, "first_step": 1, "last_step": 4000,
             "reason": f"rank {dead} on {made[dead]['host']} was killed by signal 9 (SIGKILL)"},
            {"generation": 1, "world_size": tasks, "from": middle + 3 * window, "until": seconds - 2, "first_step": 3800,
             "last_step": 7900, "reason": "all ranks ended"},
        ],
        "nodes": [make_node(i, host, windows, seconds, chance) for i, host in enumerate(hosts)],
        "tasks": made, "events": make_events(made, slow, dead, middle, window),
    }


def make_task(rank, windows, window, slow, dead, chance):
    course = make_course(rank, windows, slow, dead, chance)
    speeds = [make_speed(letter, rank == slow, w, windows, chance) for w, letter in enumerate(course)]
    known = [speed for speed in speeds if speed is not None]
    start = 0.1 + chance.random() * 0.2 + (0.6 if rank == slow else 0)
    return {
        "host": host_of(rank), "local_id": rank % RANKS_PER_NODE, "rank": rank,
        "exit": "was killed by signal 9 (SIGKILL), then exited with code 0" if rank == dead else "exited with code 0",
        "moments": {"started": start, "hello": start + 0.2, "ready": start + 0.6 + chance.random() * 0.3, "first_phase": start + 1.2},
        "steps": 7900, "step_ms": round(sum(known) / len(known), 1) if known else None,
        "cpu_share": round(0.9 + 0.09 * chance.random(), 3), "memory_peak_mib": chance.randint(780, 860),
        "ledger": ledger_of(course, window), "course": course, "step_ms_course": speeds,
    }


def host_of(rank):
    return f"node{rank // RANKS_PER_NODE + 1:02}"


def make_course(rank, windows, slow, dead, chance):
    middle, repeated = windows // 2, windows // 40
    steps = "c" * 16 + "l" if rank == slow else "cccmcccwcccmcccwl"
    letters = []
    for w in range(windows):
        if w < 2:
            letter = "s"
        elif middle - windows // 30 <= w < middle:
            letter = "h" if rank == dead else "w"
        elif middle <= w < middle + 3:
            letter = "r"
        elif middle + 3 <= w < middle + 3 + repeated:
            letter = "x"
        elif w >= windows - 2 - (3 if rank % 5 == 1 else 0):
            letter = "e"
        elif w % 100 == 99:
            letter = "k"
        else:
            letter = steps[w % len(steps)]
        letters.append("u" if chance.random() < 0.002 else letter)
    return "".join(letters)


def make_speed(letter, is_slow, w, windows, chance):
    if letter in "shre-?":
        return None
    drift = 1 + 0.1 * w / windows
    return round(430 * drift * (1.28 if is_slow else 1) * (1 + chance.gauss(0, 0.03)), 1)


def ledger_of(course, window):
    return {word: course.count(letter) * window for letter, word in WORD_OF_LETTER.items()}


def add_ledgers(ledgers):
    total = dict.fromkeys(WORD_OF_LETTER.values(), 0.0)
    for ledger in ledgers:
        for word, seconds in ledger.items():
            total[word] += seconds
    return total


def make_node(number, host, windows, seconds, chance):
    base = 5200 + 150 * chance.random()
    memory = [round(base * (1 - 0.8 * (2 ** -(w / 8))) + 2 * w * (number == 1) + chance.gauss(0, 20)) for w in range(windows)]
    memory[10 : 10 + windows // 50] = [None] * (windows // 50)
    sent = [round(max(0, 48000 + chance.gauss(0, 3000))) for _ in range(windows)]
    received = [round(max(0, value + chance.gauss(0, 1500))) for value in sent]
    return {"node_rank": number, "host": host, "from": 0, "until": seconds, "is_complete": number != 2,
            "memory_mib": memory, "sent_kib_s": sent, "received_kib_s": received}


def make_events(tasks, slow, dead, middle, window):
    return [
        {"at": 0.1, "host": tasks[0]["host"], "text": "the run begins"},
        {"at": 1.4, "host": tasks[slow]["host"], "text": f"rank {slow} is ready last, 0.6 s after the others"},
        {"at": middle, "host": tasks[dead]["host"], "text": f"rank {dead} was killed by signal 9 (SIGKILL)"},
        {"at": middle + 3 * window, "host": tasks[0]["host"], "text": "generation 1 begins at step 3800"},
    ]


def add_gpus(node, windows):
    """Four, of which the third of node01 is hot; the last one is a MIG instance."""
    node["gpus"] = []
    for tile in range(4):
        hot = node["host"] == "node01" and tile == 2
        value = {"busy_percent": 97, "memory_mib": 70000, "watts": 512 if hot else 650, "celsius": 88 if hot else 61, "sm_mhz": 1200 if hot else 1980}
        known = value if tile < 3 else {"memory_mib": 5000}
        node["gpus"].append({"tile": tile, "memory_total_mib": 81559, "slowed_seconds": 33.5 * hot, "slowed_by": "too hot" * hot,
                             **{name: {"mean": known[name], "lowest": known[name], "highest": known[name]} if name in known else None for name in value}})
    node["gpu_courses"] = {name: [None, *[most] * (windows - 1)] for name, most in (("busy_percent", 97), ("memory_mib", 70000), ("watts", 1812), ("celsius", 88), ("sm_mhz", 1200))}


def add_details(report):
    """What only some records have: a hang's calls, the preflight, NCCL's transports in a ring, environments."""
    for run in report["runs"]:
        ranks = [task["rank"] for task in run["tasks"]]
        frames = [{"function": name, "file": "train.py", "line": line} for name, line in (("all_reduce", 12), ("train", 1234))]
        run["events"].append({
            "at": 9, "host": "node01", "text": "no progress for 30 s (--dp-hang-timeout): rank 3 is in load_batch", "ranks_left_out": 2, "stacks": [
                {"ranks": [3], "is_cause": True, "frames": [{"function": "load_batch", "file": "data.py", "line": 88}], "incomplete": "its stack is cut"},
                {"ranks": [rank for rank in ranks if rank != 3], "is_cause": False, "frames": frames, "incomplete": ""}]})
        for node in run["nodes"]:
            add_gpus(node, run["windows"])
            node["preflight"] = {"seconds": 0.4, "verdict": "fit, with remarks", "findings": ["clock: nothing synchronizes it"],
                                 "measures": [{"name": "memory", "value": 12.5, "unit": "GB/s"}]}
        run["transports"] = []
        for rank, after in zip(ranks, ranks[1:] + ranks[:1]):
            via = "P2P/CUMEM" if host_of(rank) == host_of(after) else "NET/IB/GDRDMA" if rank % 2 else "NET/Socket"
            run["transports"].append({"from": rank, "to": after, "via": via, "channels": 2})
        run["transports_left_out"] = 0
        run["environment"] = {"common": {"MASTER_ADDR": "10.0.0.1", "WORLD_SIZE": str(len(ranks))},
                              "ranks": [{"rank": rank, "own": {"RANK": str(rank), "LOCAL_RANK": str(rank % RANKS_PER_NODE)}} for rank in ranks]}
    return report


def add_scalars(report):
    """A loss that falls, is taken up again after the restart and is lost once, on rank 3 for good; and a throughput."""
    for seed, run in enumerate(report["runs"]):
        middle = run["generations"][0]["until"]
        courses = [{"generation": number, "rank": 0, "at": [middle * number + 10.0 * i for i in range(1, 101)],
                    "step": list(range(3800 * number + 40, 3800 * number + 4001 + 40 * number, 40))[:100]} for number in (0, 1)]
        for course in courses:
            course["value"] = [round(2.5 / (1 + step / 1000) + 0.1 * seed, 4) for step in course["step"]]
        lost = courses[1]
        lost["value"][50] = "NaN"
        rates = [{**course, "value": [48000.5] * 100} for course in courses]
        run["scalars"] = {
            "series": [series_of("loss", courses), series_of("samples_per_second", rates)], "left_out": 0,
            "not_finite": [{"name": "loss", "rank": rank, "generation": 1, "at": lost["at"][50], "step": lost["step"][50], "value": "NaN"} for rank in (0, 3)],
            "not_finite_left_out": 0}
    return report


def series_of(name, courses):
    points = [{"at": at, "step": step, "value": value} for course in courses
              for at, step, value in zip(course["at"], course["step"], course["value"])]
    numbers = [point for point in points if point["value"] != "NaN"]
    return {"name": name, "first": points[0], "last": points[-1], "lowest": min(numbers, key=lambda one: one["value"]),
            "highest": max(numbers, key=lambda one: one["value"]), "courses": courses}


def make_hostile(value):
    """The same report with hostile texts in every place that holds free text."""
    value["problems"] = [HOSTILE, LONG]
    for run in value["runs"]:
        run.update({"run": HOSTILE, "hosts": HOSTILE + LONG, "slurm_dp": HOSTILE, "began": HOSTILE, "job": None, "step": None})
        run["outcome"] = {"how": "failed", "reason": HOSTILE + LONG}
        run["settings"].update({HOSTILE: HOSTILE, "__proto__": "x", "long": LONG, "number": 3, "none": None})
        run["goodput"] = None
        for part in run["generations"]:
            part["reason"] = HOSTILE
        for part in run["nodes"]:
            part["host"] = HOSTILE + str(part["node_rank"])
        for task in run["tasks"][:3]:
            task.update({"host": HOSTILE, "exit": HOSTILE + LONG, "moments": {}, "step_ms": None, "cpu_share": None, "rank": None})
            task.update({"memory_peak_mib": None, "course": HOSTILE, "step_ms_course": []})
        for event in run["events"]:
            for stack in event.get("stacks", []):
                stack.update({"incomplete": HOSTILE + LONG})
                stack["frames"] += [{"function": HOSTILE, "file": HOSTILE + LONG, "line": 0}]
        for node in run["nodes"]:
            if "preflight" in node:
                node["preflight"].update({"verdict": HOSTILE, "findings": [HOSTILE, LONG], "measures": [{"name": HOSTILE, "value": None, "unit": HOSTILE}]})
        if "scalars" in run:
            nowhere = {"at": HOSTILE, "step": None, "value": HOSTILE}
            run["scalars"]["series"] += [{**nowhere, "name": HOSTILE + LONG, "first": nowhere, "last": None, "courses": [
                {"generation": HOSTILE, "rank": HOSTILE, "at": [HOSTILE], "step": [], "value": [HOSTILE, 1e308, -1e308, 0]}]}, {"name": "none", "courses": []}]
            run["scalars"]["not_finite"].append({"name": HOSTILE, "rank": HOSTILE, **nowhere})
        if "transports" in run:
            run["transports"] += [{"from": 0, "to": 1, "via": HOSTILE, "channels": 1}, {"from": 10**9, "to": -1, "via": LONG, "channels": 0}]
            run["environment"]["common"].update({HOSTILE: HOSTILE, "__proto__": "x", "long": LONG})
            run["environment"]["ranks"][0]["own"].update({HOSTILE: HOSTILE, "__proto__": LONG})
        run["events"] += [{"at": 5, "host": HOSTILE, "text": HOSTILE}, {"at": 6, "host": LONG, "text": LONG}]
    return value


if __name__ == "__main__":
    main()
