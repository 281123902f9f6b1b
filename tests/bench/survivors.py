# SPDX-License-Identifier: Apache-2.0
"""What a death costs the bundled trainer, whose other processes go on: until its next training step ends."""
import os
import random
import re
import signal
import statistics
import time

from measuring import percentile, table, worst_verdict
from programs import BUILD, progress

TRAINER = os.path.join(BUILD, "bin/trainer")
RECOVERY_MS = 500  # beyond that step
SETTLED = 20       # steps between two deaths


def _training_step(line):
    return re.match(r"\s*iteration\s+\d+", line) is not None


class _Training:
    def __init__(self, cluster, nodes, ranks_per_node):
        self._cluster = cluster
        self._step = cluster.popen(["srun", f"-N{nodes}", f"--ntasks-per-node={ranks_per_node}", "--dp-on-failure=restart", "--dp-restarts=100000",
                                    TRAINER, "--model=linear", "--batch-size=4", "--epochs=1000000", "--log-style=megatron", "--log-interval=1"])
        self._random = random.Random(1)

    def _next(self, holds):
        """→ when the next such line came, and the line"""
        while line := self._step.stdout.readline():
            if holds(line):
                return time.monotonic(), line
        raise SystemExit(f"tests/bench/run: the training ended: {self._step.stderr.read()[-1000:]}")

    def round(self):
        """→ {"ms": from a death until the next step ended, "step_ms": a step's, "repeated": steps}"""
        times = [self._next(_training_step)[0] for _ in range(SETTLED)]
        ranks = [process["pid"] for process in self._cluster.processes() if process["command"].startswith(TRAINER)]
        victim = self._random.choice(ranks)
        died = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        _, line = self._next(lambda text: " repeated" in text)
        ended, _ = self._next(_training_step)
        step = statistics.median(after - before for before, after in zip(times, times[1:]))
        return {"ms": 1e3 * (ended - died), "step_ms": 1e3 * step, "repeated": int(re.search(r"(\d+) steps? repeated", line).group(1))}

    def end(self):
        self._cluster.run(["scancel", "-u", "alice"], check=True)
        self._step.communicate(timeout=60)


def measure(cluster, nodes, ranks_per_node, rounds):
    training = _Training(cluster, nodes, ranks_per_node)
    found = []
    for number in range(rounds):
        found.append(training.round())
        progress(f"deaths among {nodes * ranks_per_node} ranks of the trainer: {number + 1} of {rounds} rounds done")
    training.end()
    return found


def report(found, ranks):
    over = [one["ms"] - one["step_ms"] for one in found]
    rows = [["from a death until the trainer's next step ends", "deaths", "median", "p99", "slowest", "a step", "steps repeated"],
            [f"{ranks} ranks, survivors kept", str(len(found)), *(f"{value:.0f} ms" for value in (
                statistics.median(one["ms"] for one in found), percentile([one["ms"] for one in found], 0.99), max(one["ms"] for one in found),
                statistics.median(one["step_ms"] for one in found))), str(sum(one["repeated"] for one in found))]]
    text = worst_verdict(over, RECOVERY_MS)
    print(f"\n{table(rows)}\n\nbeyond that step: median {statistics.median(over):.0f} ms, {max(over):.0f} at worst; at most {RECOVERY_MS} ms: {text}")
    return [{"case": "survivors", "at_most_ms": RECOVERY_MS, "verdict": text}]
