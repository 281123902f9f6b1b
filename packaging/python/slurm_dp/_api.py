# SPDX-License-Identifier: Apache-2.0
"""What a program sees of a world: the same inside of a step (_step_world.py) and outside (_lone_world.py)."""
from __future__ import annotations

TYPE_CHECKING = False  # as typing has it, without the 5 ms of importing that
if TYPE_CHECKING:
    from typing import Callable, Iterable, Mapping, Union

    Bytes = Union[bytes, bytearray, memoryview, str]
else:
    # For typing.get_type_hints, from Python 3.10 on. This module is what collections.abc has, loaded with the interpreter.
    from _collections_abc import Callable, Iterable, Mapping

    Bytes = "bytes | bytearray | memoryview | str"


class _Record:
    """Values with names, equal where the values are."""
    __slots__ = ()

    def __eq__(self, other):
        return type(self) is type(other) and all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self):
        return hash(tuple(getattr(self, name) for name in self.__slots__))

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"


class Group(_Record):
    """Ranks that act together. members: world ranks, ascending; the first is the root."""
    __slots__ = ("name", "members")

    def __init__(self, name: str, members: tuple[int, ...]):
        self.name = name
        self.members = members


class Place(_Record):
    """A rank's place among those that differ from it in one dimension of model parallelism only. rank: 0 to size - 1."""
    __slots__ = ("rank", "size", "group")

    def __init__(self, rank: int, size: int, group: Group):
        self.rank = rank
        self.size = size
        self.group = group


class Event(_Record):
    """What happened to the step.

    kind: "deaths" (ranks have died and the others continue), "ending" (the step is being ended, and this process is about to get SIGTERM),
    "lost" (this node's daemon is gone) or "peer lost" (after enable_rejoin(): call rejoin() to enter the next generation). reason: one line.
    ranks: the dead ones, ascending.
    """
    __slots__ = ("kind", "reason", "ranks")

    def __init__(self, kind: str, reason: str, ranks: tuple[int, ...]):
        self.kind = kind
        self.reason = reason
        self.ranks = ranks


class Changes(_Record):
    """What changed from one generation to the next.

    previous_rank, previous_size: of this process and the world before. reason: who died, in one line. replaced: ranks of the new world
    with a new process, ascending; the others kept their state.
    """
    __slots__ = ("previous_rank", "previous_size", "reason", "replaced")

    def __init__(self, previous_rank: int, previous_size: int, reason: str, replaced: tuple[int, ...]):
        self.previous_rank = previous_rank
        self.previous_size = previous_size
        self.reason = reason
        self.replaced = replaced


class Watch:
    """A callback of World.on_event. Once close() returns, it no longer runs (except from inside the callback itself)."""

    def __init__(self, forget: Callable[[], None]):
        self._forget = forget

    def close(self) -> None:
        self._forget()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class World:
    """This rank's place in its step, and what the ranks do together.

    rank: 0 to size - 1. local_rank: 0 to local_size - 1 on this node. node_rank: 0 to nodes - 1. generation: 0, then one more after each
    restart of the job or its ranks. master_addr: numeric address of rank 0's node. master_port: a port that is held free there for the rank that binds
    it. node_addr: numeric address of this node, as other nodes reach it. tensor, data, pipeline: this rank's Place in its tensor-parallel
    group (--dp-tensor), its data-parallel group and its pipeline (--dp-pipeline).

    Any thread may call. While a call waits, other threads run, and Ctrl-C and other signals reach their handlers. Timeouts are in seconds;
    None is the step's --dp-timeout, and in a world of one for ever. Time in which the step is suspended does not count. All failures are
    slurm_dp.Error.

    In calls that take a group, every member calls, in the same order; None is the whole world. The members' shortest timeout counts for all
    of them.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    node_rank: int
    nodes: int
    generation: int
    master_addr: str
    master_port: int
    node_addr: str
    tensor: Place
    data: Place
    pipeline: Place

    @property
    def is_open(self) -> bool:
        """Until close(); in a forked child it is closed, because the parent is the rank."""
        raise NotImplementedError

    @property
    def phase(self) -> str:
        """What this rank does, as enter_phase said last; "idle" before."""
        raise NotImplementedError

    def group(self, name: str, members: Iterable[int]) -> Group:
        """Names a group of world ranks, at least one, for the calls below. Every member gives the same name and members; nothing is sent."""
        from ._checks import members as checked
        return Group(name, checked(members, self.size))

    def barrier(self, group: Group | None = None, timeout: float | None = None) -> None:
        """Waits until every member has called. The error names who is missing, with hosts."""
        raise NotImplementedError

    def broadcast(self, value: Bytes = b"", group: Group | None = None, timeout: float | None = None) -> bytes:
        """Gives the root's value, at most 1 MiB, to every member; what other members pass is ignored."""
        raise NotImplementedError

    def unique_id(self, group: Group | None = None, make: Callable[[], bytes] | None = None, timeout: float | None = None) -> bytes:
        """Gives every member the same new NCCL unique id (128 bytes). make: makes it, on the root, on whichever thread;
        ncclGetUniqueId if not given."""
        raise NotImplementedError

    def agree(self, facts: Mapping[str, str | None], group: Group | None = None, distinct: bool = False, remedy: str = "",
              timeout: float | None = None) -> None:
        """A barrier that compares what the members say, at most 16 facts: {"NCCL's version": "2.28"}. All values of a name must be equal, or
        with distinct all different; else every member gets an error that names the ranks, their hosts and values, and ends with the remedy.
        A value of None is not compared."""
        raise NotImplementedError

    def set(self, key: str, value: Bytes, timeout: float | None = None) -> None:
        """Sets a key of the step's store. A key has at most 8 KiB, a value 1 MiB."""
        raise NotImplementedError

    def get(self, key: str, timeout: float | None = None) -> bytes:
        """Waits until the key exists, and returns its value. With timeout=0 it does not wait: the error's status is then "not found"."""
        raise NotImplementedError

    def wait(self, *keys: str, timeout: float | None = None) -> None:
        """Waits until all keys exist."""
        raise NotImplementedError

    def add(self, key: str, amount: int = 1, timeout: float | None = None) -> int:
        """Adds to a counter, whose value is decimal text (a missing key counts as 0), and returns the sum."""
        raise NotImplementedError

    def compare_set(self, key: str, expected: Bytes, desired: Bytes, timeout: float | None = None) -> bytes:
        """Sets the key to `desired` if it holds `expected`, or if it is missing and `expected` is empty. Returns what it then holds (of a
        missing key b"")."""
        raise NotImplementedError

    def on_event(self, callback: Callable[[Event], None]) -> Watch:
        """Calls back for each event from now on, on a thread of libdp, and for earlier ones at once. A callback cannot make calls that wait,
        or close the world. An exception that it raises becomes the __cause__ of the Error that the next call raises."""
        raise NotImplementedError

    def enable_rejoin(self) -> None:
        """Declares that this process will call rejoin() when others die (--dp-on-failure=restart). Otherwise it is ended and restarted with
        them."""
        raise NotImplementedError

    def rejoin(self, timeout: float | None = None) -> Changes:
        """After an Error whose status is "peer lost": leaves the ending generation and waits for the next, in which rank, size and other
        attributes may differ (os.environ is not updated). Call it once no other thread uses the world and the old communicators are aborted.
        A process that does not call within --dp-grace seconds (one second at most if rank 0's node falls silent) is ended and restarted."""
        raise NotImplementedError

    def step(self, number: int) -> None:
        """Says how far the training is, so that a message about this rank's death can say so. Meant for every step; never waits."""
        raise NotImplementedError

    def log_scalar(self, name: str, value: float) -> None:
        """Logs a number of the training, such as "loss" or "samples_per_second", for dpctl report; see slurm_dp.log_scalar."""
        raise NotImplementedError

    def enter_phase(self, phase: str) -> None:
        """Says what this rank does from now on: "idle", "compute", "load", "communication" or "checkpoint"."""
        raise NotImplementedError

    def close(self) -> None:
        """Says goodbye. Other threads' pending calls fail. Closing twice is allowed, and a program that ends has closed."""
        raise NotImplementedError

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


for _public in (Changes, Event, Group, Place, Watch, World):
    _public.__module__ = "slurm_dp"
