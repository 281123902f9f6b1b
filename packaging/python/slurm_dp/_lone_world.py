# SPDX-License-Identifier: Apache-2.0
"""A world of one, outside a step: a script runs in a notebook as it is. Its store is a dictionary. What it is given is checked as in a step."""
import threading
import time

from . import _checks
from ._api import Group, Place, Watch, World
from ._calls import closed
from ._library import DIMENSIONS, UNIQUE_ID_BYTES, Error, nccl_unique_id


class LoneWorld(World):
    """The world of a process that is no rank of a step."""
    rank = local_rank = node_rank = generation = master_port = 0
    size = local_size = nodes = 1
    master_addr = node_addr = "127.0.0.1"

    def __init__(self):
        self.tensor, self.data, self.pipeline = (Place(0, 1, Group(name, (0,))) for name in DIMENSIONS)
        self._values = {}
        self._changed = threading.Condition()
        self._is_open = True
        self._phase = "idle"

    def _check(self, group=None, timeout=None):
        _checks.group(group)
        _checks.milliseconds(timeout)
        if not self._is_open:
            raise closed()

    def barrier(self, group=None, timeout=None):
        self._check(group, timeout)

    def broadcast(self, value=b"", group=None, timeout=None):
        self._check(group, timeout)
        return _checks.value(value)

    def unique_id(self, group=None, make=None, timeout=None):
        self._check(group, timeout)
        return _checks.unique_id((make or nccl_unique_id)(), UNIQUE_ID_BYTES)

    def agree(self, facts, group=None, distinct=False, remedy="", timeout=None):
        self._check(group, timeout)
        _checks.facts(facts)
        _checks.text(remedy, "a remedy")

    def set(self, key, value, timeout=None):
        self._check(timeout=timeout)
        with self._changed:
            self._values[_checks.text(key, "a key")] = _checks.value(value)
            self._changed.notify_all()

    def get(self, key, timeout=None):
        self._check(timeout=timeout)
        name = _checks.text(key, "a key")
        with self._changed:
            if timeout == 0 and name not in self._values:
                raise Error("not found", f'no key "{key}"')
            self.wait(key, timeout=timeout)
            return self._values[name]

    def wait(self, *keys, timeout=None):
        """Another thread may set them. Without a timeout this one waits for ever: there is no step that has one."""
        self._check(timeout=timeout)
        names = [_checks.text(key, "a key") for key in keys]
        end = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while missing := [name.decode() for name in names if name not in self._values]:
                left = None if end is None else min(end - time.monotonic(), threading.TIMEOUT_MAX)
                if left is not None and left <= 0:
                    raise Error("timed out", f'nobody has set "{missing[0]}" within {timeout:g} s')
                self._changed.wait(left)
                self._check()

    def add(self, key, amount=1, timeout=None):
        self._check(timeout=timeout)
        name = _checks.text(key, "a key")
        with self._changed:
            try:
                total = _checks.number(int(self._values.get(name, b"0")) + _checks.number(amount, 64, "an amount"), 64, "the sum")
            except ValueError:
                raise Error("invalid", f'the key "{key}" holds no number') from None
            self._values[name] = str(total).encode()
            self._changed.notify_all()
        return total

    def compare_set(self, key, expected, desired, timeout=None):
        self._check(timeout=timeout)
        name = _checks.text(key, "a key")
        with self._changed:
            if self._values.get(name, b"") == _checks.value(expected):
                self._values[name] = _checks.value(desired)
                self._changed.notify_all()
            return self._values.get(name, b"")

    def on_event(self, callback):
        _checks.callback(callback)
        self._check()
        return Watch(lambda: None)

    def enable_rejoin(self):
        self._check()

    def rejoin(self, timeout=None):
        self._check(timeout=timeout)
        raise Error("invalid", "a world of one has no peers that could die, so there is no other generation to join")

    def step(self, number):
        _checks.number(number, 64, "a step", signed=False)

    def log_scalar(self, name, value):
        _checks.scalar(name, value)

    def enter_phase(self, phase):
        _checks.phase(phase)
        self._phase = phase

    @property
    def phase(self):
        return self._phase

    def close(self):
        with self._changed:
            self._is_open = False
            self._changed.notify_all()

    @property
    def is_open(self):
        return self._is_open
