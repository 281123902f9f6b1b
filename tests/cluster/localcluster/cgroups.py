# SPDX-License-Identifier: Apache-2.0
"""A cluster's cgroups: one group a cluster, one a machine in it, in each hierarchy that Slurm may use here.

Every process of the cluster is in them from its first instruction and cannot leave, so they are also how `down` and `kill` find what
they have to end, whatever crashed before. The version 1 hierarchies freezer and devices are used on every host: where the host
runs cgroup version 2, the kernel still lets them be mounted, since version 2 has no controllers of these names.
"""
import os
import signal
import time

from . import kernel
from .names import ClusterError

CONTROLLERS = ("freezer", "devices")
UNIFIED = "unified"  # version 2, only where the host has mounted it
_private_root = "/sys/fs/cgroup"  # in a mount namespace of our own, only where the host has not mounted the hierarchies


def hierarchies():
    """{controller: (mount point, options)}; mounts them out of the host's sight where they are not mounted."""
    found = _mounted()
    if all(controller in found for controller in CONTROLLERS):
        return found
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount("none", "/", flags=kernel.MS_SLAVE | kernel.MS_REC)
    kernel.mount("slurm-dp", _private_root, "tmpfs")
    if UNIFIED in found:  # it may have been there
        found[UNIFIED] = (os.path.join(_private_root, UNIFIED), "")
        os.mkdir(found[UNIFIED][0])
        kernel.mount("cgroup2", found[UNIFIED][0], "cgroup2")
    for controller in CONTROLLERS:
        point = os.path.join(_private_root, controller)
        options = found.get(controller, (None, controller))[1]
        os.mkdir(point)
        try:
            kernel.mount("cgroup", point, "cgroup", data=options)
        except OSError as error:
            raise ClusterError(f"this kernel does not let the cgroup version 1 hierarchy {controller} be mounted ({error.strerror}); "
                               "boot it without cgroup_no_v1, and run this outside a container or in a privileged one") from None
        found[controller] = (point, options)
    return found


def _mounted():
    found = {}
    with open("/proc/self/mountinfo", encoding="utf-8") as lines:
        for line in lines:
            left, right = line.split(" - ", 1)
            kind, _, options = right.split()[:3]
            fields = left.split()
            if fields[3] != "/":
                continue
            if kind == "cgroup2":
                found[UNIFIED] = (fields[4], "")
            if kind != "cgroup":
                continue
            named = options.split(",")
            for controller in CONTROLLERS:
                if controller in named:
                    found[controller] = (fields[4], ",".join(o for o in named if o not in ("rw", "ro")))
    return found


class Groups:
    """The groups of one cluster."""

    def __init__(self, cluster, version="v1"):
        """version: v1 or v2, what Slurm uses and the machines mount for themselves."""
        self.name = f"slurm-dp.{cluster.name}"
        self.version = version
        found = hierarchies()
        if version == "v2" and UNIFIED not in found:
            raise ClusterError("--cgroup v2: this machine has no cgroup version 2 mounted: mkdir -p /sys/fs/cgroup/unified && "
                               "mount -t cgroup2 none /sys/fs/cgroup/unified")
        self.roots = {c: os.path.join(point, self.name) for c, (point, _) in found.items()}
        self.options = {c: found[c][1] for c in ([UNIFIED] if version == "v2" else CONTROLLERS)}  # with which a machine mounts them
        self._entered = [self.roots[c] for c in (*CONTROLLERS, *([UNIFIED] if version == "v2" else []))]

    def create(self, machine):
        for root in self._entered:
            os.makedirs(os.path.join(root, machine), exist_ok=True)

    def enter(self, machine):
        """Moves the calling process; what it forks follows."""
        for root in self._entered:
            with open(os.path.join(root, machine, "cgroup.procs"), "w", encoding="ascii") as procs:
                procs.write("0")

    def exists(self):
        return any(os.path.isdir(root) for root in self.roots.values())

    def holds(self, pid, machine):
        """Is that process one of this machine's? Guards against a number that was given to somebody else."""
        try:
            with open(f"/proc/{pid}/cgroup", encoding="utf-8") as lines:
                text = lines.read()
        except OSError:
            return False
        return any(line.rstrip().endswith(f"/{self.name}/{machine}") for line in text.splitlines() if "freezer" in line)

    def processes(self, machine=""):
        """Numbers of all processes in the groups of one machine, or of the whole cluster."""
        found = set()
        for root in self.roots.values():
            for folder, _, _ in os.walk(os.path.join(root, machine)):
                try:
                    with open(os.path.join(folder, "cgroup.procs"), encoding="ascii") as procs:
                        found.update(int(line) for line in procs)
                except OSError:
                    pass  # the group was removed meanwhile
        return found

    def kill(self, machine="", deadline=20):
        """Ends every process, frozen ones too (a version 1 freezer keeps SIGKILL waiting)."""
        end = time.monotonic() + deadline
        while pids := self.processes(machine):
            for pid in pids - {0}:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            for folder, _, _ in os.walk(os.path.join(self.roots["freezer"], machine)):
                try:
                    with open(os.path.join(folder, "freezer.state"), "w", encoding="ascii") as state:
                        state.write("THAWED")
                except OSError:
                    pass
            if time.monotonic() > end:
                raise ClusterError(f"processes {sorted(pids)} do not end on SIGKILL after {deadline} s; "
                                   "they wait in the kernel (see /proc/PID/stack); run down again when they are gone")
            time.sleep(0.005)

    def remove(self, machine="", deadline=5):
        end = time.monotonic() + deadline
        for root in self.roots.values():
            top = os.path.join(root, machine)
            while os.path.isdir(top):
                for folder, _, _ in os.walk(top, topdown=False):
                    try:
                        os.rmdir(folder)
                    except OSError:
                        pass  # a process is just leaving it
                if time.monotonic() > end:
                    raise ClusterError(f"the cgroup {top} cannot be removed after {deadline} s; run down again")
                if os.path.isdir(top):
                    time.sleep(0.01)
