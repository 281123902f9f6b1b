# SPDX-License-Identifier: Apache-2.0
"""An allocation of the local cluster in which commands run one after the other and are timed from inside."""
import json
import os
import select
import subprocess

from localcluster.names import CHECKOUT

INSIDE = os.path.join(CHECKOUT, "tests/bench/inside.py")


class Allocation:
    """The whole cluster, and a process in it that runs commands and times them."""

    def __init__(self, cluster, nodes, tasks_per_node, *options):
        words = ["salloc", "-Q", f"-N{nodes}", f"-n{nodes * tasks_per_node}", f"--ntasks-per-node={tasks_per_node}", *options, "/usr/bin/python3", INSIDE]
        self._process = cluster.popen(words, stdin=subprocess.PIPE, stderr=None)

    def start(self, *command):
        self._process.stdin.write(json.dumps([str(word) for word in command]) + "\n")
        self._process.stdin.flush()

    def has_ended(self):
        """Whether the command that was started last has ended: finish does not wait any more."""
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def finish(self, may_fail=False):
        """→ seconds of the command that was started last."""
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit("tests/bench/run: the allocation ended too soon")
        done = json.loads(answer)
        if done["code"] != 0 and not may_fail:
            raise SystemExit(f"tests/bench/run: {' '.join(done['command'])}: exit code {done['code']}\n{done['output']}")
        return done["seconds"]

    def close(self):
        self._process.stdin.close()
        self._process.wait(timeout=60)
