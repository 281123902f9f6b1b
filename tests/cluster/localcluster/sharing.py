# SPDX-License-Identifier: Apache-2.0
"""The same folder at the same path in every machine, wherever it lies, so that ordinary users can enter it.

A machine sees the host's disk, but has a /tmp, /run and /home of its own, and ordinary users cannot enter /root. So a folder below
those is mounted again at its own path, with fresh folders of mode 755 for its parents. A folder whose own mode keeps others out
(mktemp -d makes such) is replaced by a fresh one with everything in it mounted one by one.
"""
import os
import stat

from . import kernel

# Each machine's own: never replaced by the host's.
OWN = ("/", "/tmp", "/var/tmp", "/run", "/var/run", "/dev", "/dev/shm", "/home")
_OWN_TREES = ("/proc/", "/sys/", "/dev/")


def sharable(path):
    return path not in OWN and path not in ("/proc", "/sys") and not path.startswith(_OWN_TREES)


def _others_enter(mode):
    return bool(mode & stat.S_IXOTH)


def _parents(path):
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[:n]) for n in range(1, len(parts))]


def _same(a, b):
    return a.st_dev == b.st_dev and a.st_ino == b.st_ino


def visible(path, root=""):
    """Does a user in the machine whose / is at root find the host's folder at its path? Called on the host."""
    real = os.stat(path)
    try:
        if not all(_others_enter(os.stat(root + parent).st_mode) for parent in _parents(path)):
            return False
        there = os.stat(root + path)
        if _others_enter(real.st_mode):
            return _same(there, real)
        if not _others_enter(there.st_mode):
            return False
        return {n: _identity(os.path.join(path, n)) for n in os.listdir(path)} == \
               {n: _identity(os.path.join(root + path, n)) for n in os.listdir(root + path)}
    except OSError:
        return False


def _identity(path):
    at = os.lstat(path)
    return os.readlink(path) if stat.S_ISLNK(at.st_mode) else (at.st_dev, at.st_ino)


class Tree:
    """A folder of the host, opened in the host's mount namespace, to be put into a machine's: once for each machine."""

    def __init__(self, path):
        self.path = path
        self.mirror = not _others_enter(os.stat(path).st_mode)
        self.entries = {}  # name → (tree, is a folder) or a link's text
        self.tree = None
        if not self.mirror:
            self.tree = kernel.open_tree(path)
            return
        for name in os.listdir(path):
            full = os.path.join(path, name)
            mode = os.lstat(full).st_mode
            if stat.S_ISLNK(mode):
                self.entries[name] = os.readlink(full)
            elif stat.S_ISDIR(mode) or stat.S_ISREG(mode):
                self.entries[name] = (kernel.open_tree(full), stat.S_ISDIR(mode))

    def close(self):
        for what in [self.tree] + [e[0] for e in self.entries.values() if not isinstance(e, str)]:
            if what is not None:
                os.close(what)

    def place(self):
        """Called by root in the machine's mount namespace."""
        for parent in _parents(self.path):
            _uncover(parent)
            if not os.path.isdir(parent):
                _make_folder(parent)
            elif not _others_enter(os.stat(parent).st_mode):
                kernel.mount("slurm-dp", parent, "tmpfs", data="mode=755")
        _uncover(self.path)
        if not os.path.isdir(self.path):
            _make_folder(self.path)
        if not self.mirror:
            kernel.move_mount(self.tree, self.path)
            return
        kernel.mount("slurm-dp", self.path, "tmpfs", data="mode=755")
        for name, what in self.entries.items():
            full = os.path.join(self.path, name)
            if isinstance(what, str):
                os.symlink(what, full)
                continue
            tree, folder = what
            if folder:
                _make_folder(full)
            else:
                os.close(os.open(full, os.O_CREAT | os.O_WRONLY, 0o644))
            kernel.move_mount(tree, full)


def _uncover(path):
    """Takes away mounts of a folder that was deleted on the host meanwhile and made anew: nothing can be mounted on a deleted one."""
    while os.path.isdir(path) and os.stat(path).st_nlink == 0:
        kernel.unmount(path)


def _make_folder(path):
    # What the host has and the machine does not is hidden by a mount of the machine's own, so this is never the host's disk.
    # /home is shared by the machines: another may have made it meanwhile.
    os.makedirs(path, mode=0o755, exist_ok=True)


def trees(paths):
    """Outer folders first, so that an inner one is not covered by its parent."""
    return [Tree(path) for path in sorted(set(paths)) if sharable(path)]
