# SPDX-License-Identifier: Apache-2.0
"""A rank's world in a step of slurm-dp, on libdp's functions. What each method does is said in _api.py's World."""
import ctypes
import os
import threading

from . import _library
from ._api import Event, Group, Place, Watch, World
from ._calls import Interruptible
from ._library import Error

_buffers = threading.local()


def _milliseconds(timeout):
    if timeout is None:
        return _library.DEFAULT_TIMEOUT
    if not timeout >= 0:
        raise Error("invalid", f"a timeout is a number of seconds from 0 on, not {timeout!r}")
    return int(min(timeout, 1e9) * 1000)


def _encoded(text, what):
    if not isinstance(text, str) or "\0" in text:
        raise Error("invalid", f"{what} is a string without NUL, not {text!r}")
    return text.encode()


def _bytes(value, what):
    if isinstance(value, str):
        return value.encode()
    try:
        return bytes(memoryview(value))
    except TypeError:
        raise Error("invalid", f"{what} is bytes or a string, not {type(value).__name__}") from None


def _buffer():
    """Room for the longest value; one for each thread, because making one costs more than a call."""
    try:
        return _buffers.room
    except AttributeError:
        _buffers.room = ctypes.create_string_buffer(_library.MAX_VALUE_BYTES)
        return _buffers.room


class StepWorld(World):
    """The world of a rank of a step."""

    def __init__(self, library):
        self._library = library
        self._context = ctypes.c_void_p()
        self._owner = os.getpid()
        self._calls = Interruptible()
        self._watches = {}  # number -> what libdp calls, which must live as long
        self._thrown = None  # by a call-back, not said yet
        library.check(library.dp_open(ctypes.byref(self._context)))
        found = library.dp_get_world(self._context).contents
        for name, _ in found._fields_:
            value = getattr(found, name)
            setattr(self, name, value.decode() if isinstance(value, bytes) else value)
        self.tensor, self.data, self.pipeline = (self._place(number) for number in range(len(_library.DIMENSIONS)))

    # ---- calls ----

    def _open_context(self):
        if self._context is None:
            raise Error("invalid", "the world is closed")
        if os.getpid() != self._owner:
            raise Error("invalid", f"this process is a child of rank {self.rank}: only the rank itself, process {self._owner}, may use its world")
        return self._context

    def _call(self, function, *arguments, result=None):
        """Calls one of libdp's functions that wait. result: what gives the value, on the thread that called."""
        self._say_what_was_thrown()
        context = self._open_context()

        def called():
            self._library.check(function(context, *arguments))
            return result() if result else None

        return self._calls.run(called)

    def _call_for_value(self, function, *arguments, timeout):
        """The same for functions that end with room for a value, its size and the timeout."""
        self._say_what_was_thrown()
        context, milliseconds = self._open_context(), _milliseconds(timeout)

        def called():
            room, size = _buffer(), ctypes.c_size_t()
            self._library.check(function(context, *arguments, room, len(room), ctypes.byref(size), milliseconds))
            return ctypes.string_at(room, size.value)

        return self._calls.run(called)

    def _say_what_was_thrown(self):
        thrown, self._thrown = self._thrown, None
        if thrown:
            raise Error("invalid", f"the call-back of on_event raised {type(thrown).__name__}: {thrown}") from thrown

    @staticmethod
    def _group(group):
        if group is None:
            return None
        if not isinstance(group, Group):
            raise Error("invalid", f"a group is made by World.group, not of {group!r}")
        members = (ctypes.c_uint32 * len(group.members))(*group.members)
        return ctypes.byref(_library.Group(_encoded(group.name, "a group's name"), members, len(members)))

    def _place(self, dimension):
        place = _library.Place()
        self._library.check(self._library.dp_get_place(self._context, dimension, ctypes.byref(place)))
        members = tuple(place.group.members[i] for i in range(place.group.count))
        return Place(place.rank, place.size, Group(place.group.name.decode(), members))

    # ---- World ----

    def barrier(self, group=None, timeout=None):
        self._call(self._library.dp_barrier, self._group(group), _milliseconds(timeout))

    def broadcast(self, value=b"", group=None, timeout=None):
        data = _bytes(value, "what is broadcast")
        return self._call_for_value(self._library.dp_broadcast, self._group(group), data, len(data), timeout=timeout)

    def unique_id(self, group=None, make=None, timeout=None):
        room = ctypes.create_string_buffer(_library.UNIQUE_ID_BYTES)
        failed = []

        def made(_, to):
            try:
                value = (make or _nccl_unique_id)()
                if len(value) != _library.UNIQUE_ID_BYTES:
                    raise Error("invalid", f"a unique id has {_library.UNIQUE_ID_BYTES} bytes, not {len(value)}")
                ctypes.memmove(to, value, len(value))
                return 0
            except Exception as error:  # pylint: disable=broad-except  # said below, and to the others
                failed.append(error)
                return 1

        try:
            return self._call(self._library.dp_unique_id, self._group(group), _library.MAKE_ID(made), None, room, _milliseconds(timeout),
                              result=lambda: room.raw)
        except Error as error:
            if failed:
                raise Error(error.status, f"no unique id could be made: {failed[0]}") from failed[0]
            raise

    def agree(self, facts, group=None, distinct=False, remedy="", timeout=None):
        told = (_library.Fact * len(facts))(*(
            _library.Fact(_encoded(name, "a fact's name"), None if value is None else _encoded(str(value), "a fact"), int(distinct),
                          _encoded(remedy, "a remedy")) for name, value in facts.items()))
        self._call(self._library.dp_agree, self._group(group), told, len(told), _milliseconds(timeout))

    def set(self, key, value, timeout=None):
        data = _bytes(value, "a value")
        self._call(self._library.dp_set, _encoded(key, "a key"), data, len(data), _milliseconds(timeout))

    def get(self, key, timeout=None):
        return self._call_for_value(self._library.dp_get, _encoded(key, "a key"), timeout=timeout)

    def wait(self, *keys, timeout=None):
        names = (ctypes.c_char_p * len(keys))(*(_encoded(key, "a key") for key in keys))
        self._call(self._library.dp_wait, names, len(names), _milliseconds(timeout))

    def add(self, key, amount=1, timeout=None):
        total = ctypes.c_int64()
        return self._call(self._library.dp_add, _encoded(key, "a key"), amount, ctypes.byref(total), _milliseconds(timeout),
                          result=lambda: total.value)

    def compare_set(self, key, expected, desired, timeout=None):
        before, after = _bytes(expected, "a value"), _bytes(desired, "a value")
        return self._call_for_value(self._library.dp_compare_set, _encoded(key, "a key"), before, len(before), after, len(after),
                                    timeout=timeout)

    def on_event(self, callback):
        if not callable(callback):
            raise Error("invalid", f"on_event needs a function to call, not {callback!r}")
        context, number = self._open_context(), ctypes.c_uint64()

        def told(_, event):
            found = event.contents
            ranks = tuple(found.ranks[i] for i in range(found.count))
            try:
                callback(Event(_library.EVENTS[found.kind], found.reason.decode(errors="replace"), ranks))
            except Exception as error:  # pylint: disable=broad-except  # the next call says it
                self._thrown = error

        kept = _library.ON_EVENT(told)
        self._library.check(self._library.dp_on_event(context, kept, None, ctypes.byref(number)))
        self._watches[number.value] = kept
        return Watch(lambda: self._forget(number.value))

    def _forget(self, number):
        if self._context is not None and os.getpid() == self._owner and number in self._watches:
            self._library.dp_forget_event(self._context, number)
            del self._watches[number]

    def step(self, number):
        if self._context is not None:
            self._library.dp_at_step(self._context, number)

    def enter_phase(self, phase):
        if self._context is not None:
            self._library.check(self._library.dp_phase(self._open_context(), _library.PHASES.index(phase)))

    def close(self):
        if self._context is None:
            return
        context, self._context = self._context, None
        if os.getpid() != self._owner:
            return  # the conversation is the parent's
        self._library.dp_close(context)
        self._calls.stop()
        self._watches.clear()
        self._say_what_was_thrown()

    @property
    def is_open(self):
        return self._context is not None


def _nccl_unique_id():
    """ncclGetUniqueId of the NCCL that is loaded, or else of the system's."""
    try:
        nccl = ctypes.CDLL("libnccl.so.2")
    except OSError as error:
        raise Error("backend", f"NCCL cannot be loaded: {error}; give make=, a function that returns an id") from None
    room = ctypes.create_string_buffer(_library.UNIQUE_ID_BYTES)
    status = nccl.ncclGetUniqueId(room)
    if status != 0:
        nccl.ncclGetErrorString.restype = ctypes.c_char_p
        raise Error("backend", f"ncclGetUniqueId failed: {nccl.ncclGetErrorString(status).decode()}")
    return room.raw
