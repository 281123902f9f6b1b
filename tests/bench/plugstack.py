# SPDX-License-Identifier: Apache-2.0
"""The one plugstack.conf of the local cluster, by which a step has the plugin of this build, that of another one, or none.

srun and slurmstepd read it anew for each step, and all machines of the cluster see one file."""
import os

from localcluster.harness import BUILD
from localcluster.names import Cluster


class Plugstack:
    def __init__(self, cluster):
        self._path = os.path.join(Cluster(cluster.name).etc, "slurm", "plugstack.conf")
        with open(self._path, encoding="utf-8") as text:
            self._with = text.read()
        self._now = BUILD

    def set(self, build):
        """The folder of a build, or None."""
        if build == self._now:
            return
        with open(self._path + ".new", "w", encoding="utf-8") as out:
            out.write(self._with.replace(BUILD + "/", build + "/") if build else "# taken out for a while\n")
        os.rename(self._path + ".new", self._path)
        self._now = build
