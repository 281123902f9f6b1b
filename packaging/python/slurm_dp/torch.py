# SPDX-License-Identifier: Apache-2.0
"""torch.distributed on a step of slurm-dp: init_process_group meets in the step's store, and a rank's death ends the calls that wait.

    import slurm_dp.torch
    slurm_dp.torch.init_process_group()          # torch's own signature; backend: "nccl" with a GPU, else "gloo"

Works with PyTorch from 1.13 on. StepCallback (for Lightning) and TrainerCallback (for Hugging Face's Trainer) report steps and phases.
"""
from __future__ import annotations

import functools
import os
import socket
import sys
import threading
from datetime import timedelta

import torch
import torch.distributed as dist

from . import Error, current, open as open_world, phase, step

__all__ = ["StepCallback", "TrainerCallback", "init_process_group"]

_EVENT_PATIENCE = 0.1  # s: a dead rank's connections close just before, or just after, its death is told


class StoreTimeout(Error, RuntimeError):
    """torch waits on where a store timed out with a RuntimeError, and on that alone."""


class Store(dist.Store):
    """The step's store, as torch.distributed uses one. It has no delete_key and num_keys; --dp-store=torch has."""

    def __init__(self, world, prefix: str):
        super().__init__()
        self._world, self._prefix = world, prefix

    def _wait(self, keys, seconds):
        try:
            self._world.wait(*(self._prefix + key for key in keys), timeout=seconds)
        except Error as error:
            if error.status == "timed out":
                raise StoreTimeout(error.status, str(error)) from None
            raise

    def set(self, key, value):
        self._world.set(self._prefix + key, value)

    def get(self, key):
        self._wait([key], self.timeout.total_seconds())
        return self._world.get(self._prefix + key)

    def add(self, key, amount):
        return self._world.add(self._prefix + key, amount)

    def compare_set(self, key, expected, desired):
        return self._world.compare_set(self._prefix + key, expected, desired)

    def wait(self, keys, timeout=None):
        self._wait(keys, (timeout or self.timeout).total_seconds())

    def check(self, keys):
        try:
            for key in keys:
                self._world.get(self._prefix + key, timeout=0)
            return True
        except Error as error:
            if error.status == "not found":
                return False
            raise

    def has_extended_api(self):
        return False


def init_process_group(backend=None, **kwargs) -> None:
    """torch.distributed.init_process_group of the step's ranks; opens the world where the program has not. Outside of a step: a group of one.

    kwargs: as torch's. With store=, init_method=, rank= or world_size= they are handed on as they are.
    """
    world = current() or open_world()
    backend = backend or ("nccl" if torch.cuda.is_available() else "gloo")
    if not {"store", "init_method", "rank", "world_size"} & set(kwargs):
        kwargs.update(store=_store(world, kwargs.get("timeout")), rank=world.rank, world_size=world.size)
    before = _connections()
    dist.init_process_group(backend, **kwargs)
    after = _connections()
    _deaths.watch(world, {fd: inode for fd, inode in after.items() if before.get(fd) != inode})


def _store(world, timeout):
    # PyTorch's own store, where the broker serves it (--dp-store=torch).
    if world.size > 1 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") in ("True", "1"):
        return dist.TCPStore(world.master_addr, world.master_port, world.size, False, **({"timeout": timeout} if timeout else {}),
                             **({"use_libuv": False} if hasattr(dist.TCPStore, "libuvBackend") else {}))
    _store.number += 1
    store = Store(world, f"torch/{_store.number}/")
    store.set_timeout(timeout or timedelta(minutes=30))
    return store


_store.number = 0


# ---- deaths ----

class _Deaths:
    """Ends what waits for a dead rank, and names it. Gloo and NCCL would wait for their timeout where it is not their neighbour that died."""

    def __init__(self):
        self._told = threading.Event()
        self._reason = ""
        self._sockets = {}
        self._world = self._watch = None

    def watch(self, world, sockets):
        """sockets: the connections that came with the process group, by descriptor, with their inodes."""
        self._sockets.update(sockets)
        if world is self._world:
            return
        self._world = world
        self._told.clear()
        self._watch = world.on_event(self._on_event)
        _wrap(torch._C._distributed_c10d.Work, "wait", self.named)  # pylint: disable=protected-access
        _wrap(torch.autograd, "backward", self.named)

    def _on_event(self, event):
        self._reason = event.reason
        self._told.set()
        if hasattr(dist.distributed_c10d, "_abort_process_group") and dist.is_initialized() and "nccl" in dist.get_backend():
            dist.distributed_c10d._abort_process_group()  # pylint: disable=protected-access
        for fd, inode in self._sockets.items():
            if _inode(fd) == inode:
                with socket.socket(fileno=os.dup(fd)) as connection:
                    connection.shutdown(socket.SHUT_RDWR)

    def named(self, error):
        """The error to raise instead: with the name of whoever died, if that is why."""
        return Error("aborted", self._reason) if self._told.wait(_EVENT_PATIENCE) else error


_deaths = _Deaths()


def _wrap(owner, name, instead):
    """Has the function's RuntimeErrors raised as what `instead` makes of them. Once."""
    function = getattr(owner, name)
    if getattr(function, "slurm_dp", False):
        return

    @functools.wraps(function)
    def called(*arguments, **options):
        try:
            return function(*arguments, **options)
        except RuntimeError as error:
            better = instead(error)
            if better is error:
                raise
            raise better from error

    called.slurm_dp = True
    setattr(owner, name, called)


def _inode(fd):
    try:
        return os.fstat(fd).st_ino
    except OSError:
        return None


def _connections():
    """This process's TCP connections, descriptor → inode. Gloo does not tell which are its own: they are those that came with it."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.family in (socket.AF_INET, socket.AF_INET6) and one.type == socket.SOCK_STREAM:
                    one.getpeername()
                    found[int(name)] = _inode(int(name))
        except OSError:
            continue
    return found


# ---- call-backs of training loops, made where their library is installed ----

def _lightning_callback():
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback

    class StepCallback(Callback):
        """Reports steps and phases of Lightning's Trainer: Trainer(callbacks=[slurm_dp.torch.StepCallback()])."""

        def on_train_start(self, trainer, module):
            _enter("load")

        def on_train_batch_start(self, trainer, module, batch, index):
            _enter("compute")

        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            step(trainer.global_step)
            _enter("load")

        def on_save_checkpoint(self, trainer, module, checkpoint):
            _enter("checkpoint")

        def on_train_end(self, trainer, module):
            _enter("idle")

    return StepCallback


def _hugging_face_callback():
    from transformers import TrainerCallback as Base

    class TrainerCallback(Base):
        """Reports steps and phases of Hugging Face's Trainer: Trainer(callbacks=[slurm_dp.torch.TrainerCallback()])."""

        def on_train_begin(self, args, state, control, **_):
            _enter("load")

        def on_step_begin(self, args, state, control, **_):
            _enter("compute")

        def on_step_end(self, args, state, control, **_):
            step(state.global_step)
            _enter("load")

        def on_train_end(self, args, state, control, **_):
            _enter("idle")

    return TrainerCallback


_enter = phase._enter  # pylint: disable=protected-access
_CALLBACKS = {"StepCallback": _lightning_callback, "TrainerCallback": _hugging_face_callback}


def __getattr__(name):
    if name not in _CALLBACKS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = _CALLBACKS[name]()
    setattr(sys.modules[__name__], name, made)
    return made
