# SPDX-License-Identifier: Apache-2.0
"""Rank, world and store of a data-parallel step on Slurm, for programs started with `srun --dp-world=auto`.

    import slurm_dp as dp

    with dp.open() as world:
        print(world.rank, "of", world.size)
        world.barrier()
        for number, batch in enumerate(batches):
            with dp.phase("load"):
                batch = batch.to(device)
            loss = train(batch)
            dp.step(number)
            dp.log_scalar("loss", loss)

Outside a step, dp.open() is a world of one, so that a script runs in a notebook as it is. slurm_dp.torch starts torch.distributed on it.
Every failure is a dp.Error: one line that says what was tried, who is missing, and what to do. `python3 -m slurm_dp` prints the world.
"""
from __future__ import annotations

import atexit
import os
import threading

from ._api import Changes, Event, Group, Place, Watch, World
from ._library import PHASES, Error, Library

__all__ = ["Changes", "Error", "Event", "Group", "Place", "Watch", "World", "current", "log_scalar", "open", "phase", "step"]
__version__ = "0.1.0"

_lock = threading.Lock()
_opened = None  # the last one
_pid = 0        # whose it is


def open() -> World:  # pylint: disable=redefined-builtin  # reads as dp.open
    """Opens this process's world; it has one. A forked child has none: its parent is the rank."""
    global _opened, _pid
    with _lock:
        if _opened is not None and os.getpid() != _pid and "DP_SOCKET" in os.environ:
            raise Error("invalid", f"this process is a child of rank {_opened.rank}, which has opened the world; only the rank itself, "
                                   f"process {_pid}, may use it")
        if current() is not None:
            raise Error("invalid", "the world is open already: use that one (slurm_dp.current()), or close it first")
        if "DP_SOCKET" in os.environ:
            from ._step_world import StepWorld
            opened: World = StepWorld(Library())
        else:
            tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
            if tasks != "1":
                raise Error("no step", f"this process is one of {tasks} tasks of a step that slurm-dp did not start, and would be alone in its "
                                       "world: start the step with srun --dp-world=auto")
            from ._lone_world import LoneWorld
            opened = LoneWorld()
        if _opened is not None:
            atexit.unregister(_opened.close)
        _opened, _pid = opened, os.getpid()
        atexit.register(opened.close)  # a goodbye; a program that fails is named by its exit code all the same
        return opened


def current() -> World | None:
    """The open world, or None."""
    return _opened if _opened is not None and _opened.is_open else None


def step(number: int) -> None:
    """Says how far the training is: "rank 5 on node02 was killed by signal 9 (SIGKILL) at step 1200". Meant for the end of every step, with
    a number that grows over the whole training. Takes under a microsecond, sends at most every 10 ms, never waits, and does nothing where no world
    is open."""
    if _opened is not None:
        _opened.step(number)


def log_scalar(name: str, value: float) -> None:
    """Logs a number of the training for `dpctl report` (--dp-record), as TensorBoard's add_scalar: "loss", "samples_per_second". Meant to follow
    dp.step; may be NaN. A rank logs up to 8 names of up to 31 ASCII characters. A tensor on a GPU is waited for. Does nothing where no world is
    open, and in a forked child."""
    if world := current():
        world.log_scalar(name, value)


class phase:  # pylint: disable=invalid-name  # reads as dp.phase("load")
    """Says what this rank does with its time, for `dpctl top`; on exit, the previous phase is restored.

    name: "idle", "compute", "load", "communication" or "checkpoint". The phase is the rank's, whichever thread enters it. Does nothing where
    no world is open, and in a forked child (a DataLoader's worker).
    """

    def __init__(self, name: str):
        if name not in PHASES:
            raise Error("invalid", f"there is no phase {name!r}; there are {', '.join(PHASES)}")
        self._name = name
        self._before: list[str] = []

    def __enter__(self) -> phase:
        world = current()
        self._before.append(world.phase if world else "idle")
        if world:
            world.enter_phase(self._name)
        return self

    def __exit__(self, *_: object) -> None:
        before, world = self._before.pop(), current()
        if world:
            world.enter_phase(before)
