# SPDX-License-Identifier: Apache-2.0
"""How soon a node of the local cluster that says nothing any more is named: its daemon is stopped, or the node is cut off the network. From just
before that is done until the line stands on srun's standard error. Each time it is taken back before the next one."""
import os
import re
import signal
import threading
import time

from localcluster import network
from localcluster.harness import BUILD
from localcluster.names import SWITCH, Cluster
from programs import progress

RANK = os.path.join(BUILD, "tests/rank")
NODES, RANKS_PER_NODE = 4, 8
NODE = "node03"
NAMED, BACK = rf"node {NODE} \(ranks 16-23\) has been silent for", rf"node {NODE} \(ranks 16-23\) responds again"
PATIENCE = 20
PAUSE = 1.0  # until all are heard again


class Step:
    """A world that sleeps, and what slurm-dp says of it, with the time of each line."""

    def __init__(self, cluster):
        self._cluster = cluster
        self._lines = []
        self._process = cluster.popen(["srun", f"-N{NODES}", f"-n{NODES * RANKS_PER_NODE}", f"--ntasks-per-node={RANKS_PER_NODE}",
                                       "-m", "block", "--dp-world=auto", RANK, "meet", "3600"])
        for _ in range(NODES * RANKS_PER_NODE):
            if " met" not in self._process.stdout.readline():
                raise SystemExit(f"tests/bench/run: the world does not meet: {self._process.stderr.read()}")
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._process.stderr:
            self._lines.append((time.monotonic(), line))

    def said(self, pattern, since):
        """→ when the first line after `since` came that matches."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            for when, line in list(self._lines):
                if when >= since and re.search(pattern, line):
                    return when
            time.sleep(0.005)
        raise SystemExit(f"tests/bench/run: nobody said {pattern!r} within {PATIENCE} s; there was {[line for _, line in self._lines]}")

    def daemon(self):
        found = [p["pid"] for p in self._cluster.processes([NODE]) if p["command"].startswith("dp-rendezvousd")]
        if len(found) != 1:
            raise SystemExit(f"tests/bench/run: there should be one dp-rendezvousd on {NODE}, not {len(found)}")
        return found[0]

    def end(self):
        self._cluster.run(["scancel", "-u", "alice"], check=True)
        self._process.wait(timeout=60)
        self._reader.join(timeout=10)


def _once(step, silence, speak):
    time.sleep(PAUSE)
    began = time.monotonic()
    silence()
    named = step.said(NAMED, began)
    again = time.monotonic()
    speak()
    step.said(BACK, again)
    return (named - began) * 1e3


def measure(cluster, rounds):
    """→ {case: [ms]}"""
    step = Step(cluster)
    daemon = step.daemon()
    switch = Cluster(cluster.name).load()["pids"][SWITCH]
    cases = {"stopped": (lambda: os.kill(daemon, signal.SIGSTOP), lambda: os.kill(daemon, signal.SIGCONT)),
             "cut": (lambda: network.cut(switch, NODE), lambda: cluster.heal(NODE))}
    found = {case: [] for case in cases}
    try:
        for _ in range(rounds):
            for case, (silence, speak) in cases.items():
                found[case].append(_once(step, silence, speak))
    finally:
        os.kill(daemon, signal.SIGCONT)
        cluster.heal(NODE)
    step.end()
    progress(f"{NODE} stopped and cut off: {rounds} rounds done")
    return found
