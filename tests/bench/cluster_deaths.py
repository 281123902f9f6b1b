# SPDX-License-Identifier: Apache-2.0
"""How soon every survivor on the local cluster knows which rank died, where and why. A round is a step in which one rank kills itself."""
import random

from allocation import Allocation
from measuring import of_ranks
from plugstack import Plugstack
from programs import BUILD, built, progress
from start_line import StartLine

NODES, RANKS_PER_NODE = 4, 8
RANKS = NODES * RANKS_PER_NODE
CASES = ["report", "abort"]  # --dp-on-failure


class Rounds:
    def __init__(self, cluster, allocation):
        self._allocation, self._plugstack = allocation, Plugstack(cluster)
        self._line = StartLine(cluster, "bench-deaths")

    def run(self, on_failure, build, victim):
        self._plugstack.set(build)
        self._line.close()
        self._allocation.start("srun", f"-N{NODES}", f"-n{RANKS}", f"--ntasks-per-node={RANKS_PER_NODE}", "-m", "block",
                               f"--dp-on-failure={on_failure}", built("bench-told-of-death", build), self._line.path, victim)
        self._line.open_for(RANKS, self._allocation.has_ended)
        self._allocation.finish(may_fail=True)
        return self._look_at(victim)

    def _look_at(self, victim):
        died = [int(line[2]) for line in self._line.lines() if line[1] == "died"]
        told = [line for line in self._line.lines() if line[1] == "told"]
        if len(died) != 1 or sorted(int(line[0]) for line in told) != [rank for rank in range(RANKS) if rank != victim]:
            raise SystemExit(f"tests/bench/run: rank {victim} died {len(died)} times, and {len(told)} of {RANKS - 1} survivors were told of it")
        reason = f"rank {victim} on node{victim // RANKS_PER_NODE + 1:02d} was killed by signal 9 (SIGKILL)"
        for _, _, _, dead, *words in told:
            if dead != str(victim) or not " ".join(words).startswith(reason):
                raise SystemExit(f"tests/bench/run: a survivor was told of {dead}: {' '.join(words)}; it should be {reason}")
        return of_ranks([(int(line[2]) - died[0]) / 1e6 for line in told])

    def close(self):
        self._plugstack.set(BUILD)


def measure(cluster, rounds, some_builds):
    """→ {on_failure and what stands behind a case's name: [a dict a round]}"""
    allocation = Allocation(cluster, NODES, RANKS_PER_NODE)
    runner = Rounds(cluster, allocation)
    shuffler = random.Random(1)
    found = {case + suffix: [] for case in CASES for suffix in some_builds}
    for _ in range(rounds):
        for case in CASES:
            victim = shuffler.randrange(RANKS)
            for suffix, build in some_builds.items():
                found[case + suffix].append(runner.run(case, build, victim))
    runner.close()
    progress(f"deaths among {RANKS} real ranks: {rounds} rounds done")
    allocation.close()
    return found
