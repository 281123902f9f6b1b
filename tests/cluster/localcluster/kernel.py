# SPDX-License-Identifier: Apache-2.0
"""System calls that Python 3.11 does not wrap: namespaces, mounts, prctl. Every failure is an OSError that names its object."""
import ctypes
import os

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_BIND, MS_MOVE, MS_REC, MS_SLAVE = 0x1000, 0x2000, 0x4000, 1 << 19
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1

_SYS_OPEN_TREE, _SYS_MOVE_MOUNT = 428, 429  # the same number on every architecture
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC, _AT_RECURSIVE, _MOVE_MOUNT_F_EMPTY_PATH = 1, os.O_CLOEXEC, 0x8000, 4
_AT_FDCWD = -100

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result, what):
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def unshare(flags):
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def setns(fd, flags, what):
    _check(_libc.setns(ctypes.c_int(fd), ctypes.c_int(flags)), f"setns to {what}")


def mount(source, target, kind=None, flags=0, data=None):
    def encode(text):
        return None if text is None else os.fsencode(text)

    _check(_libc.mount(encode(source), encode(target), encode(kind), ctypes.c_ulong(flags), encode(data)),
           f"mount {kind or source} on {target}")


def unmount(target):
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"umount {target}")


def change_root(path):
    """Makes the folder the / of this mount namespace, also for who enters it later."""
    mount(path, path, flags=MS_BIND)
    os.chdir(path)
    mount(".", "/", flags=MS_MOVE)
    os.chroot(".")
    os.chdir("/")


def open_tree(path):
    """A detached copy of the mount at path; it can be put into another mount namespace with move_mount."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE
    return _check(_libc.syscall(ctypes.c_long(_SYS_OPEN_TREE), ctypes.c_int(_AT_FDCWD), os.fsencode(path), ctypes.c_uint(flags)),
                  f"open_tree {path}")


def move_mount(tree, target):
    _check(_libc.syscall(ctypes.c_long(_SYS_MOVE_MOUNT), ctypes.c_int(tree), b"", ctypes.c_int(_AT_FDCWD), os.fsencode(target),
                         ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH)), f"move_mount to {target}")


def die_with_parent(signal_number):
    """The kernel sends this process the signal when its parent ends; 0 turns that off."""
    _check(_libc.prctl(ctypes.c_int(PR_SET_PDEATHSIG), ctypes.c_ulong(signal_number), 0, 0, 0), "prctl PR_SET_PDEATHSIG")
