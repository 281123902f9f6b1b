# SPDX-License-Identifier: Apache-2.0
"""The Slurms that the cluster can run, and everything in which they differ: the one file for that."""
import os
from dataclasses import dataclass, field

from .names import CHECKOUT, ClusterError


@dataclass(frozen=True)
class Version:
    """One Slurm, as a release of Debian has it."""
    number: str
    build: str                                    # where the checkout is built against it; also the tests' programs
    suite: str = ""                               # the release that is installed in a root of its own (roots.py); "": this machine
    renamed: dict = field(default_factory=dict)   # packages of packaging/dependencies that have another name there
    groups: tuple = ("build", "run", "cluster")   # of packaging/dependencies, what is installed there
    moves: bool = False                           # its release has another Slurm one day
    stepd_descriptors: int = 0                    # a limit of open files with which slurmstepd still runs two tasks, and hardly more

    def path(self, name=""):
        """A file of the build tree."""
        return os.path.join(CHECKOUT, self.build, name).rstrip("/")

    def before(self, number):
        return [int(part) for part in self.number.split(".")] < [int(part) for part in number.split(".")]


_ALL = (
    Version("22.05", build="build", stepd_descriptors=26),
    Version("24.11", build="build-slurm-24.11", suite="trixie", renamed={"libpmix2": "libpmix2t64"}, stepd_descriptors=34),
    Version("26.05", build="build-slurm-26.05", suite="sid", renamed={"libpmix2": "libpmix2t64"}, stepd_descriptors=34,
            groups=("build", "run", "cluster", "clients"), moves=True),
)
DEFAULT = _ALL[0].number
OTHERS = [version.number for version in _ALL[1:]]


def named(number):
    for version in _ALL:
        if version.number == number:
            return version
    raise ClusterError(f"--slurm {number}: there are {', '.join(v.number for v in _ALL)}")


def tested():
    """Which Slurm the tests of this run are for."""
    return named(os.environ.get("DP_TEST_SLURM") or DEFAULT)
