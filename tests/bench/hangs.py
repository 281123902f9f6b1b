# SPDX-License-Identifier: Apache-2.0
"""Whether --dp-hang-timeout names who hangs, and nobody else: random hangs among 16 ranks on 4 nodes of the local cluster, and as many kinds of
ranks that work in a strange rhythm (hang_rank.py); and how soon it does after the timeout among 1,024 ranks, all but the first node's simulated. No
peer tells the culprit of a hang from outside."""
import collections
import itertools
import json
import os
import random
import re
import shutil
import statistics
import threading

from hang_rank import HANGS, WORKS
from localcluster.harness import BUILD, TestCluster
from localcluster.names import CHECKOUT
from measuring import machine, table
from programs import built, cluster_name, daemon_of, progress, require, rounds_of, warn_if_busy

NODES, RANKS_PER_NODE = 4, 4
RANKS = NODES * RANKS_PER_NODE
TIMEOUT = 3  # seconds
# So many steps at once: each of them mostly waits.
AT_ONCE = 2
LONGEST = 60 + 5 * TIMEOUT
HOME = "/home/alice/hangs-bench"
RIGHT_AT_LEAST = 0.95
MANY_NODES, RANKS_OF_MANY = 128, 8
TOLD_WITHIN = 1000  # ms after the timeout
VERDICT = re.compile(r"slurm-dp: no progress for .*? \(--dp-hang-timeout\): (?:(which rank is the cause cannot be told)|ranks? ([\d,-]+) on )")
RIGHT, WRONG, UNSURE, SILENT = "right", "wrong", "cannot tell", "nothing said"


def expand(ranks):
    """"1,4-6" → [1, 4, 5, 6]"""
    parts = (part.split("-") for part in ranks.split(","))
    return [rank for part in parts for rank in range(int(part[0]), int(part[-1]) + 1)]


def judge(line, suspects):
    """What a verdict's line, or None, is worth."""
    if line is None:
        return SILENT
    cannot, named = VERDICT.match(line).groups()
    return UNSURE if cannot else RIGHT if expand(named) == suspects else WRONG


class Runner:
    def __init__(self, cluster):
        self._cluster = cluster
        cluster.run(f"mkdir -p {HOME}/site-packages", check=True)
        for file, there in (("hang_rank.py", HOME), ("hang_collectives.py", f"{HOME}/site-packages/distributed_c10d.py")):
            shutil.copy(os.path.join(CHECKOUT, "tests/bench", file), cluster.host_path(there))

    def run(self, kind, suspects, seed):
        """→ {"kind", "suspects", "seed", "line": the verdict's, or None, "verdict"}"""
        reader, writer = os.pipe()
        with open(reader, encoding="ascii") as nothing, open(writer, "w", encoding="ascii"):
            step = self._cluster.popen(
                ["srun", f"-N{NODES}", f"-n{RANKS}", f"--ntasks-per-node={RANKS_PER_NODE}", "-m", "block", f"--dp-hang-timeout={TIMEOUT}",
                 "python3", "hang_rank.py", kind, str(TIMEOUT), ",".join(map(str, suspects)), str(seed)],
                cwd=HOME, env={"PYTHONPATH": f"{HOME}/site-packages"}, stdin=nothing)
            timer = threading.Timer(LONGEST, step.terminate)
            timer.start()
            output, errors = step.communicate()
            timer.cancel()
        lines = [line for line in errors.splitlines() if VERDICT.match(line)]
        if kind in WORKS and step.returncode != 0 and not lines:
            raise SystemExit(f"tests/bench/run: {kind}: exit code {step.returncode}\n{errors}")
        found = {"kind": kind, "suspects": suspects, "seed": seed, "line": lines[0] if lines else None, "verdict": judge(lines[0] if lines else None, suspects)}
        if kind in HANGS and not lines:
            found["output"] = (output + errors)[-2000:]
        return found


def plan(kinds, number, seed):
    """(kind, suspects, seed) so often, the kinds in turn."""
    draw = random.Random(seed)
    for kind in itertools.islice(itertools.cycle(kinds), number):
        # Rank 0 waits for nobody in a broadcast.
        ranks = range(kind == "other", RANKS)
        yield kind, sorted(draw.sample(ranks, 2 if kind == "mutual" else 1)), draw.randrange(1 << 30)


def measure(runner, work):
    """→ what came of each of them"""
    left, found, failures = list(reversed(list(work))), [], []

    def take():
        while left and not failures:
            try:
                found.append(runner.run(*left.pop()))
            except BaseException as failure:  # for the main thread
                failures.append(failure)
            if found and len(found) % 20 == 0:
                progress(f"{len(found)} done, {len(left)} to go")
    threads = [threading.Thread(target=take) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return found


def delays(nodes, ranks_per_node, rounds):
    """→ for each round the ms from the timeout to the verdict"""
    progress(f"verdicts among {nodes * ranks_per_node} ranks, most of them simulated")
    return [rounds_of([built("bench-verdict"), daemon_of(BUILD), nodes, ranks_per_node, TIMEOUT])[0]["ms"] for _ in range(rounds)]


def report_delays(ms, ranks):
    met = "met" if max(ms) <= TOLD_WITHIN else "missed"
    print(f"\nfrom the timeout to the verdict among {ranks} ranks: median {statistics.median(ms):.0f} ms, at most {max(ms):.0f} ms of {len(ms)} rounds; "
          f"at most {TOLD_WITHIN} ms: {met}")


def report(found, title):
    verdicts = (RIGHT, WRONG, UNSURE, SILENT)
    rows = [[title, "rounds", *verdicts]]
    for kind in dict.fromkeys(one["kind"] for one in found):
        counts = collections.Counter(one["verdict"] for one in found if one["kind"] == kind)
        rows.append([kind, str(counts.total()), *(str(counts[verdict]) for verdict in verdicts)])
    counts = collections.Counter(one["verdict"] for one in found)
    rows.append(["all", str(counts.total()), *(str(counts[verdict]) for verdict in verdicts)])
    print(f"\n{table(rows)}\n")
    return counts


def run(options):
    require(os.path.join(BUILD, "bin/dp-rendezvousd"), os.path.join(BUILD, "bin/dpctl"), built("bench-verdict"), built("rank"))
    about = machine()
    warn_if_busy(about)
    hangs, works = (3, 2) if options.smoke else (options.rounds, options.rounds // 4)
    many = (2, 3, 1) if options.smoke else (MANY_NODES, RANKS_OF_MANY, max(1, options.rounds // 10))
    late = delays(*many)
    with TestCluster(cluster_name(), nodes=NODES) as cluster:
        runner = Runner(cluster)
        hung = measure(runner, plan(HANGS, hangs, 1))
        worked = measure(runner, plan(WORKS, works, 2))
        cluster.assert_idle(deadline=40)
        cluster.assert_nothing_left()
    report_delays(late, many[0] * many[1])
    counts, false = report(hung, "hangs"), report(worked, "works")
    accused = sum(one["verdict"] != SILENT for one in worked)
    share = counts[RIGHT] / len(hung)
    print(f"{share:.1%} of {len(hung)} hangs: the right rank; at least {RIGHT_AT_LEAST:.0%}: {'met' if share >= RIGHT_AT_LEAST else 'missed'}")
    print(f"{counts[WRONG]} wrong accusations; none: {'met' if counts[WRONG] == 0 else 'missed'}")
    print(f"{accused} of {len(worked)} rounds that work are taken for a hang; none: {'met' if accused == 0 else 'missed'}")
    for one in hung + worked:
        if one["verdict"] == WRONG or one["kind"] in WORKS and one["line"]:
            print(f"  {one['kind']}, ranks {one['suspects']}, seed {one['seed']}: {one['line']}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": about, "ms_to_verdict": late, "hangs": hung, "works": worked, "counts": dict(counts), "accused": accused, "false": dict(false)}, file, indent=1)
    return 0
