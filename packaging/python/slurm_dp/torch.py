# SPDX-License-Identifier: Apache-2.0
"""torch.distributed on a step of slurm-dp: init_process_group meets in the step's store, and a rank's death ends the calls that wait for it.

    import slurm_dp.torch
    slurm_dp.torch.init_process_group()          # torch's own arguments; backend: "nccl" with a GPU, else "gloo"

PyTorch 1.13 and later. StepCallback (for Lightning) and TrainerCallback (for Hugging Face's Trainer) report steps and phases.
"""
from __future__ import annotations

import contextlib
import functools
import os
import socket
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from . import Error, World, current, log_scalar, open as open_world, step

__all__ = ["init_process_group"]

_EVENT_PATIENCE = 0.1  # s: a dead rank's connections close just before its death is told, or just after
_SLICES = 0.1, 2.0      # s: so often a wait in the store looks whether a rank has died, at first and later on
_TIMEOUT = timedelta(minutes=30)  # torch's
_LAZY_FROM = 4          # ranks


class RankDied(Error, RuntimeError):
    """A rank of the process group has died, or the step is being ended; the message names it."""


class StoreTimeout(Error, RuntimeError):
    """What a store is waited for has not come in time. torch goes on waiting after a RuntimeError, and after that alone."""


class Store(dist.Store):
    """The step's store, as torch.distributed uses one. It has no delete_key and num_keys; that of --dp-store=torch has."""

    def __init__(self, world: World, prefix: str):
        super().__init__()
        self._world, self._prefix = world, prefix

    @staticmethod
    def _in_slices(call, timeout):
        """What the call gives, which takes how long it may wait."""
        end = time.monotonic() + timeout.total_seconds()
        part = _SLICES[0]
        while True:
            left = max(0.0, end - time.monotonic())
            try:
                return call(min(left, part))
            except Error as error:
                if error.status != "timed out":
                    raise
                _deaths.check()
                if left <= part:
                    raise StoreTimeout(error.status, f"{error} (waited {timeout.total_seconds():g} s in all)") from None
                part = min(2 * part, _SLICES[1])

    def set(self, key, value):
        self._world.set(self._prefix + key, value)

    def get(self, key):
        # Not 0, which would not wait.
        return self._in_slices(lambda seconds: self._world.get(self._prefix + key, timeout=seconds or 0.001), self.timeout)

    def add(self, key, amount):
        return self._world.add(self._prefix + key, amount)

    def compare_set(self, key, expected, desired):
        return self._world.compare_set(self._prefix + key, expected, desired)

    def wait(self, keys, timeout=None):
        names = [self._prefix + key for key in keys]
        self._in_slices(lambda seconds: self._world.wait(*names, timeout=seconds), self.timeout if timeout is None else timeout)

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


_made = 0  # process groups on the step's store
_stores = []  # torch keeps the C++ half alone, which is nothing without this one


def init_process_group(backend: str | None = None, init_method: str | None = None, timeout: timedelta | None = None, **kwargs) -> None:
    """torch.distributed.init_process_group of the step's ranks; opens the world where the program has not. Outside a step: a group of one.

    kwargs: as torch's. With init_method, store=, rank= or world_size= all arguments are handed on as they are.
    """
    global _made
    world = current() or open_world()
    backend = backend or ("nccl" if torch.cuda.is_available() else "gloo")
    is_ours = init_method is None and not {"store", "rank", "world_size"} & set(kwargs)
    if init_method is not None:
        kwargs["init_method"] = init_method
    if timeout is not None:
        kwargs["timeout"] = timeout
    if is_ours and world.size >= _LAZY_FROM:
        # Gloo then connects two ranks when they first communicate (PyTorch 2.8 and later). Its full mesh costs each rank 10 ms per lower rank.
        os.environ.setdefault("TORCH_GLOO_LAZY_INIT", "1")
    if is_ours:
        kwargs.update(store=_store(world, timeout or _TIMEOUT, f"torch/{_made}"), rank=world.rank, world_size=world.size)
    _deaths.begin(world, range(world.size) if is_ours else ())
    with _deaths.loops():
        dist.init_process_group(backend, **kwargs)
    _made += is_ours


def _store(world, timeout, name):
    # PyTorch's own store, where the broker serves it (--dp-store=torch).
    if world.size > 1 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") in ("True", "1"):
        plain = {"use_libuv": False} if hasattr(dist.TCPStore, "libuvBackend") else {}
        return dist.PrefixStore(name, dist.TCPStore(world.master_addr, world.master_port, world.size, False, timeout, **plain))
    store = Store(world, name + "/")
    store.set_timeout(timeout)
    _stores.append(store)
    return store


# ---- deaths ----

class _Deaths:
    """Ends what waits for a dead rank of the process group, and names it. Gloo and NCCL would wait for their timeout where it is not their
    neighbour that died."""

    def __init__(self):
        self._told = threading.Event()
        self._lock = threading.Lock()
        self._status = self._reason = ""
        self._members = frozenset()
        self._loops = set()
        self._seen = []
        self._world = self._watch = None

    def begin(self, world, members):
        """A new process group, of these ranks of the world; none if it is not known."""
        _wrap(torch._C._distributed_c10d.Work, "wait", self.named)  # pylint: disable=protected-access
        _wrap(torch._C.Future, "wait", self.named)  # pylint: disable=protected-access
        _wrap(torch.autograd, "backward", self.named)
        # What all collectives ask for. After an abort over NCCL there is none.
        _wrap(dist.distributed_c10d, "_get_default_group", self.named)
        for method in ("__init__", "forward"):
            _wrap(torch.nn.parallel.DistributedDataParallel, method, self.named)
        _wrap(dist, "destroy_process_group", self.named, self.forgets_closed_loops)
        _wrap(dist, "new_group", self.named, self.loops)
        _wrap(dist.distributed_c10d, "new_group", self.named, self.loops)
        with self._lock:
            self._members, self._loops = frozenset(members), set()
            self._told.clear()
        if world is not self._world:
            self._seen = []
            self._world, self._watch = world, world.on_event(self._on_event)
        for event in list(self._seen):
            self._apply(event)

    # Notes the event loops (epoll) that are created inside it: Gloo's, which has one per process group. Gloo does not tell which
    # connections are its own, and may make them later; the kernel tells what a loop watches.
    @contextlib.contextmanager
    def loops(self):
        before = _event_loops()
        try:
            yield
        finally:
            self._loops |= _event_loops() - before

    # The descriptor of a closed loop may be reused for another loop of the program.
    @contextlib.contextmanager
    def forgets_closed_loops(self):
        yield
        self._loops &= _event_loops()

    def _on_event(self, event):
        self._seen.append(event)
        self._apply(event)

    def _apply(self, event):
        with self._lock:
            # In a group of other ranks, a death of theirs is torch's to notice.
            if event.kind == "deaths" and not self._members.intersection(event.ranks):
                return
            self._status, self._reason = {"lost": "lost"}.get(event.kind, "aborted"), event.reason
            loops = self._loops
            self._told.set()
        if hasattr(dist.distributed_c10d, "_abort_process_group") and dist.is_initialized() and "nccl" in dist.get_backend():
            dist.distributed_c10d._abort_process_group()  # pylint: disable=protected-access
        _end_connections(loops)
        threading.Thread(target=self._end_later_ones, args=(loops,), daemon=True).start()

    # Also the connections that Gloo makes after the death, to a rank that has given up and never answers.
    def _end_later_ones(self, loops):
        while self._told.is_set() and self._loops is loops:
            time.sleep(_EVENT_PATIENCE)
            _end_connections(loops)

    def check(self):
        """Raises if a rank has died."""
        if self._told.is_set():
            raise RankDied(self._status, self._reason)

    def named(self, error):
        """The error to raise instead: with the name of whoever died, if that is why."""
        return RankDied(self._status, self._reason) if self._told.wait(_EVENT_PATIENCE) else error


_deaths = _Deaths()


def _wrap(owner, name, instead, around=None):
    """Has the function's errors of torch raised as what `instead` makes of them, and the function called inside of what `around` makes. Once."""
    function = getattr(owner, name)
    if getattr(function, "slurm_dp", False):
        return

    @functools.wraps(function)
    def called(*arguments, **options):
        try:
            if around is None:
                return function(*arguments, **options)
            with around():
                return function(*arguments, **options)
        except (RuntimeError, ValueError) as error:
            better = error if isinstance(error, Error) else instead(error)
            if better is error:
                raise
            raise better from error

    called.slurm_dp = True
    setattr(owner, name, called)


def _event_loops():
    """The descriptors of this process's event loops (epoll)."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[eventpoll]":
                found.add(int(name))
        except OSError:
            continue  # the listing's own
    return found


def _end_connections(loops):
    """Shuts down the TCP connections that these loops watch. proc_pid_fdinfo(5) has the format."""
    for fd in loops & _event_loops():
        with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as info:
            watched = [int(line.split()[1]) for line in info if line.startswith("tfd:")]
        for one in watched:
            try:
                with socket.socket(fileno=os.dup(one)) as connection:
                    connection.getpeername()
                    connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # a listening socket, without which Gloo aborts; one that is not connected any more; or none


# ---- callbacks of training loops, made where their library is installed ----

def _enter(phase):
    if world := current():
        world.enter_phase(phase)


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
        """Reports steps, phases and losses of Hugging Face's Trainer: Trainer(callbacks=[slurm_dp.torch.TrainerCallback()])."""

        def on_train_begin(self, args, state, control, **_):
            _enter("load")

        def on_step_begin(self, args, state, control, **_):
            _enter("compute")

        def on_step_end(self, args, state, control, **_):
            step(state.global_step)
            _enter("load")

        def on_log(self, args, state, control, logs=None, **_):
            for name in ("loss", "eval_loss"):
                if name in (logs or {}):
                    with contextlib.suppress(Error):  # the program has logged as many names as there may be
                        log_scalar(name, logs[name])

        def on_train_end(self, args, state, control, **_):
            _enter("idle")

    return TrainerCallback


_CALLBACKS = {"StepCallback": (_lightning_callback, "lightning"), "TrainerCallback": (_hugging_face_callback, "transformers")}


def __getattr__(name):
    if name not in _CALLBACKS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    make, library = _CALLBACKS[name]
    try:
        made = make()
    except ImportError as error:
        raise AttributeError(f"slurm_dp.torch.{name} needs {library}, which is not installed") from error
    setattr(sys.modules[__name__], name, made)
    return made
