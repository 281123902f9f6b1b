# SPDX-License-Identifier: Apache-2.0
"""A rank's world in a step of slurm-dp, on libdp's functions. What each method does is said in _api.py's World."""
import ctypes
import os
import threading

from . import _checks, _library
from ._api import Changes, Event, Group, Place, Watch, World
from ._calls import Calls, closed
from ._library import Error

_of_thread = threading.local()  # room: for the longest value, because making one costs more than a call; in_callback
_PAST_64_BITS = 1 << 64


def _room():
    try:
        return _of_thread.room
    except AttributeError:
        _of_thread.room = ctypes.create_string_buffer(_library.MAX_VALUE_BYTES)
        return _of_thread.room


class StepWorld(World):
    """The world of a rank of a step."""

    def __init__(self, library):
        self._library = library
        self._at_step = library.dp_at_step
        self._context = ctypes.c_void_p()
        self._owner = os.getpid()
        self._calls = Calls()
        self._is_open = True
        self._watches = {}  # number -> what libdp calls, which must live as long
        self._thrown = None  # by a callback, not said yet
        self._phase = "idle"
        library.check(library.dp_open(ctypes.byref(self._context)))
        self._read_world()

    def _read_world(self):
        found = self._library.dp_get_world(self._context).contents
        for name, _ in found._fields_:
            value = getattr(found, name)
            setattr(self, name, value.decode() if isinstance(value, bytes) else value)
        self.tensor, self.data, self.pipeline = (self._place(number) for number in range(len(_library.DIMENSIONS)))

    # ---- calls ----

    def _check(self):
        self._say_what_was_thrown()
        if not self._is_open:
            raise closed()
        if os.getpid() != self._owner:
            raise Error("invalid", f"this process is a child of rank {self.rank}: only the rank itself, process {self._owner}, may use its world")

    def _call(self, function, *arguments, timeout, result=None):
        """Calls one of libdp's functions whose last argument is the timeout. result: what gives the value, on the thread that called."""
        self._check()
        milliseconds = _checks.milliseconds(timeout)

        def called():
            self._library.check(function(self._context, *arguments, milliseconds))
            return result() if result else None

        return self._calls.run(called, milliseconds)

    def _call_for_value(self, function, *arguments, timeout):
        """The same for functions that end with room for a value, its size and the timeout."""
        self._check()
        milliseconds = _checks.milliseconds(timeout)

        def called():
            room, size = _room(), ctypes.c_size_t()
            self._library.check(function(self._context, *arguments, room, len(room), ctypes.byref(size), milliseconds))
            return ctypes.string_at(room, size.value)

        return self._calls.run(called, milliseconds)

    def _say_what_was_thrown(self):
        thrown, self._thrown = self._thrown, None
        if thrown:
            raise Error("invalid", f"the callback of on_event raised {type(thrown).__name__}: {thrown}") from thrown

    @staticmethod
    def _group(group):
        if _checks.group(group) is None:
            return None
        members = (ctypes.c_uint32 * len(group.members))(*group.members)
        return ctypes.byref(_library.Group(_checks.text(group.name, "a group's name"), members, len(members)))

    def _place(self, dimension):
        place = _library.Place()
        self._library.check(self._library.dp_get_place(self._context, dimension, ctypes.byref(place)))
        members = tuple(place.group.members[i] for i in range(place.group.count))
        return Place(place.rank, place.size, Group(place.group.name.decode(), members))

    # ---- World ----

    def barrier(self, group=None, timeout=None):
        self._call(self._library.dp_barrier, self._group(group), timeout=timeout)

    def broadcast(self, value=b"", group=None, timeout=None):
        data = _checks.value(value)
        return self._call_for_value(self._library.dp_broadcast, self._group(group), data, len(data), timeout=timeout)

    def unique_id(self, group=None, make=None, timeout=None):
        room = ctypes.create_string_buffer(_library.UNIQUE_ID_BYTES)
        failed = []

        def made(_, to):
            try:
                value = _checks.unique_id((make or _library.nccl_unique_id)(), _library.UNIQUE_ID_BYTES)
                ctypes.memmove(to, value, len(value))
                return 0
            except BaseException as error:  # pylint: disable=broad-except  # raised below
                failed.append(error)
                return 1

        try:
            return self._call(self._library.dp_unique_id, self._group(group), _library.MAKE_ID(made), None, room,
                              timeout=timeout, result=lambda: room.raw)
        except Error as error:
            if failed:
                raise Error(error.status, f"no unique id could be made: {failed[0]!r}") from failed[0]
            raise

    def agree(self, facts, group=None, distinct=False, remedy="", timeout=None):
        said = _checks.facts(facts)
        advice = _checks.text(remedy, "a remedy")
        told = (_library.Fact * len(said))(*(_library.Fact(name, value, 1 if distinct else 0, advice) for name, value in said.items()))
        self._call(self._library.dp_agree, self._group(group), told, len(told), timeout=timeout)

    def set(self, key, value, timeout=None):
        data = _checks.value(value)
        self._call(self._library.dp_set, _checks.text(key, "a key"), data, len(data), timeout=timeout)

    def get(self, key, timeout=None):
        return self._call_for_value(self._library.dp_get, _checks.text(key, "a key"), timeout=timeout)

    def wait(self, *keys, timeout=None):
        names = (ctypes.c_char_p * len(keys))(*(_checks.text(key, "a key") for key in keys))
        self._call(self._library.dp_wait, names, len(names), timeout=timeout)

    def add(self, key, amount=1, timeout=None):
        total = ctypes.c_int64()
        return self._call(self._library.dp_add, _checks.text(key, "a key"), _checks.number(amount, 64, "an amount"), ctypes.byref(total),
                          timeout=timeout, result=lambda: total.value)

    def compare_set(self, key, expected, desired, timeout=None):
        before, after = _checks.value(expected), _checks.value(desired)
        return self._call_for_value(self._library.dp_compare_set, _checks.text(key, "a key"), before, len(before), after, len(after),
                                    timeout=timeout)

    def on_event(self, callback):
        _checks.callback(callback)
        self._check()
        number = ctypes.c_uint64()

        def told(_, event):
            found = event.contents
            ranks = tuple(found.ranks[i] for i in range(found.count))
            _of_thread.in_callback = True
            try:
                callback(Event(_library.EVENTS[found.kind], found.reason.decode(errors="replace"), ranks))
            except BaseException as error:  # pylint: disable=broad-except  # the next call says it
                self._thrown = error
            finally:
                _of_thread.in_callback = False

        kept = _library.ON_EVENT(told)
        self._library.check(self._library.dp_on_event(self._context, kept, None, ctypes.byref(number)))
        self._watches[number.value] = kept
        return Watch(lambda: self._forget(number.value))

    def _forget(self, number):
        if self.is_open and number in self._watches:
            self._library.dp_forget_event(self._context, number)
            del self._watches[number]

    def enable_rejoin(self):
        self._check()
        self._library.dp_enable_rejoin(self._context)

    def rejoin(self, timeout=None):
        raw = _library.Changes()

        def changes():
            return Changes(raw.previous_rank, raw.previous_size, raw.reason.decode(errors="replace"),
                           tuple(raw.replaced[i] for i in range(raw.replaced_count)))

        found = self._call(self._library.dp_rejoin, ctypes.byref(raw), timeout=timeout, result=changes)
        self._read_world()
        return found

    def step(self, number):
        if self._is_open:
            if type(number) is not int or not 0 <= number < _PAST_64_BITS:  # pylint: disable=unidiomatic-typecheck  # cheaper than the check
                number = _checks.number(number, 64, "a step", signed=False)
            self._at_step(self._context, number)

    def log_scalar(self, name, value):
        name, number = _checks.scalar(name, value)
        if self.is_open:
            self._library.check(self._library.dp_log_scalar(self._context, name, number))

    def enter_phase(self, phase):
        number = _checks.phase(phase)
        if not self.is_open:
            return
        self._phase = phase
        self._library.check(self._library.dp_phase(self._context, number))

    @property
    def phase(self):
        return self._phase

    def close(self):
        if getattr(_of_thread, "in_callback", False):
            raise Error("invalid", "a callback of on_event cannot close the world; let another thread do it")
        if os.getpid() != self._owner or not self._calls.end():
            return  # the conversation is the parent's, or has ended
        self._is_open = False
        self._library.dp_end(self._context)
        self._calls.wait_for_all()
        self._library.dp_close(self._context)
        self._watches.clear()

    def __exit__(self, kind, *_):
        self.close()
        if kind is None:
            self._say_what_was_thrown()

    @property
    def is_open(self):
        return self._is_open and os.getpid() == self._owner
