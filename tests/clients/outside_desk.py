# SPDX-License-Identifier: Apache-2.0
"""A folder of Alice's for the tests of data from outside, and the trainer in it."""
import json
import os

from localcluster.harness import BUILD

TRAINER = os.path.join(BUILD, "bin/trainer")


class Desk:
    def __init__(self, cluster):
        self.cluster = cluster
        cluster.run("mkdir -p outside", cwd="/home/alice", check=True)

    def folder(self, name):
        folder = self.cluster.host_path(f"/home/alice/outside/{name}")
        os.makedirs(folder, exist_ok=True)
        return folder

    def run(self, command, check=True):
        return self.cluster.run(f"export OMP_NUM_THREADS=1; {command}", cwd="/home/alice/outside", timeout=120, check=check)

    def summary(self, command):
        return json.loads(self.run(command).stdout.splitlines()[-1])
