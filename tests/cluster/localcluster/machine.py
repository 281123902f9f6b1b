# SPDX-License-Identifier: Apache-2.0
"""One machine of the cluster: its namespaces, its mounts, and process 1, which holds them.

Everything the machine consists of hangs on process 1: kill it and the kernel ends every process of the machine, then takes its mounts
and its network away. Nothing is mounted in the host's mount namespace, so nothing can be left there.
"""
import os
import signal
import socket
import stat

from . import cgroups, kernel, sharing
from .names import BASE, ClusterError, SWITCH

GPUS, RDUS, TILES = 4, 8, 64
# A major number that Linux sets aside for local use and never hands out (admin-guide/devices.txt), so no driver answers: an
# allowed device fails with ENXIO. /dev/null's own number would make ConstrainDevices lock the real /dev/null.
FAKE_MAJOR = 120

_NAMESPACES = (kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS | kernel.CLONE_NEWNET | kernel.CLONE_NEWCGROUP | kernel.CLONE_NEWIPC
               | kernel.CLONE_NEWPID)


def start(cluster, groups, name, shared, root):
    """Begins to make the machine; returns a function that waits until it stands and returns the number of its process 1.
    root: a folder that is the machine's disk, or None for the host's."""
    read, write = os.pipe()
    helper = os.fork()
    if helper == 0:
        os.close(read)
        _helper(cluster, groups, name, shared, root, write)
    os.close(write)

    def wait():
        with os.fdopen(read, encoding="utf-8") as pipe:
            answer = pipe.read().split("\n", 1)
        os.waitpid(helper, 0)
        if len(answer) != 2 or not answer[0].isdigit():
            raise ClusterError(f"machine {name} of cluster {cluster.name} cannot be made: {' '.join(answer).strip() or 'killed'}")
        if answer[1]:
            raise ClusterError(f"machine {name} of cluster {cluster.name} cannot be made: {answer[1].strip()}")
        return int(answer[0])

    return wait


def _helper(cluster, groups, name, shared, root, write):
    """Makes process 1 and waits until it is set up. Never returns."""
    code = 1
    try:
        kernel.die_with_parent(signal.SIGKILL)
        groups.enter(name)
        kernel.unshare(_NAMESPACES)
        ready_read, ready_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ready_read)
            os.close(write)
            _process_one(cluster, groups, name, shared, root, ready_write)
        os.close(ready_write)
        with os.fdopen(ready_read, encoding="utf-8") as pipe:
            problem = pipe.read()
        os.write(write, f"{pid}\n{problem}".encode())
        code = 0
    except BaseException as error:  # pylint: disable=broad-except
        os.write(write, str(error).encode())
    finally:
        os._exit(code)


def _process_one(cluster, groups, name, shared, root, ready):
    """Sets the machine up, then sleeps for its whole life. Never returns."""
    try:
        kernel.die_with_parent(signal.SIGKILL)
        os.setsid()
        _mounts(cluster, groups.options, name, sharing.trees(shared), root)
        socket.sethostname(name)
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.chdir("/")
        # Ignored, so that the kernel reaps what ends without a parent: no zombie looks like a process that was left behind.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        kernel.die_with_parent(0)
        os.execv("/usr/bin/sleep", [f"slurm-dp-machine: {cluster.name}/{name}", "infinity"])  # ready closes on exec
    except BaseException as error:  # pylint: disable=broad-except
        os.write(ready, (str(error) or repr(error)).encode())
    finally:
        os._exit(1)


def _mounts(cluster, hierarchies, name, trees, root):
    # slave: what the host mounts or unmounts later shows here too, and what is mounted here stays here.
    kernel.mount("none", "/", flags=kernel.MS_SLAVE | kernel.MS_REC)
    terminals = kernel.open_tree("/dev/pts")
    homes = kernel.open_tree(cluster.home)
    if root:
        # The cluster's state (logs, spool, what is mounted below /etc) is at the same path there.
        state = kernel.open_tree(cluster.state)
        kernel.change_root(root)
        os.makedirs(BASE, exist_ok=True)
        kernel.mount("slurm-dp", BASE, "tmpfs", data="mode=755")
        os.mkdir(cluster.state)
        kernel.move_mount(state, cluster.state)

    kernel.mount("proc", "/proc", "proc")
    kernel.mount("sysfs", "/sys", "sysfs")
    # Mounted in the machine's cgroup namespace, so the root of each is the machine's own group.
    if cgroups.UNIFIED in hierarchies:
        kernel.mount("cgroup2", "/sys/fs/cgroup", "cgroup2")
        os.makedirs("/sys/fs/cgroup/system.slice", exist_ok=True)  # systemd's, where Slurm puts its own
    else:
        kernel.mount("slurm-dp", "/sys/fs/cgroup", "tmpfs", data="mode=755")
        for controller, options in hierarchies.items():
            point = f"/sys/fs/cgroup/{controller}"
            os.mkdir(point)
            kernel.mount("cgroup", point, "cgroup", data=options)
    if name == SWITCH:
        return

    _devices(terminals)
    kernel.mount("slurm-dp", "/tmp", "tmpfs", data="mode=1777")
    kernel.mount("slurm-dp", "/var/tmp", "tmpfs", data="mode=1777")
    kernel.mount("slurm-dp", "/run", "tmpfs", data="mode=755")
    os.mkdir("/run/munge", 0o755)
    os.mkdir("/run/lock", 0o755)
    kernel.move_mount(homes, "/home")
    for file in ("passwd", "group", "shadow", "hosts"):
        kernel.mount(os.path.join(cluster.etc, file), f"/etc/{file}", flags=kernel.MS_BIND)
    kernel.mount(os.path.join(cluster.etc, "slurm"), "/etc/slurm", flags=kernel.MS_BIND)
    for tree in trees:
        tree.place()


def _devices(terminals):
    """A /dev of the machine's own: the usual nodes, the host's terminals, and the fake accelerators."""
    os.umask(0)
    kernel.mount("slurm-dp", "/dev", "tmpfs", data="mode=755")
    for name, major, minor in (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0),
                               ("ptmx", 5, 2)):
        os.mknod(f"/dev/{name}", stat.S_IFCHR | 0o666, os.makedev(major, minor))
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(f"/proc/self/{target}", f"/dev/{name}")
    os.mkdir("/dev/pts", 0o755)
    kernel.move_mount(terminals, "/dev/pts")
    os.mkdir("/dev/shm", 0o1777)
    kernel.mount("slurm-dp", "/dev/shm", "tmpfs", data="mode=1777")

    for place, (kind, count) in enumerate((("gpu", GPUS), ("rdu", RDUS), ("tile", TILES))):
        for index in range(count):
            os.mknod(f"/dev/{kind}{index}", stat.S_IFCHR | 0o666, os.makedev(FAKE_MAJOR, 64 * place + index))
    os.umask(0o022)
