# SPDX-License-Identifier: Apache-2.0
"""A world of one, outside of a step: a script runs in a notebook as it is. Its store is a dictionary."""
import threading
import time

from ._api import Group, Place, Watch, World
from ._library import DIMENSIONS, MAX_VALUE_BYTES, Error


class LoneWorld(World):
    rank = local_rank = node_rank = generation = master_port = 0
    size = local_size = nodes = 1
    master_addr = node_addr = "127.0.0.1"

    def __init__(self):
        self.tensor, self.data, self.pipeline = (Place(0, 1, Group(name, (0,))) for name in DIMENSIONS)
        self._values = {}
        self._changed = threading.Condition()
        self.is_open = True

    def barrier(self, group=None, timeout=None):
        self._check()

    def broadcast(self, value=b"", group=None, timeout=None):
        self._check()
        return _bytes(value)

    def unique_id(self, group=None, make=None, timeout=None):
        self._check()
        from ._step_world import _nccl_unique_id
        return (make or _nccl_unique_id)()

    def agree(self, facts, group=None, distinct=False, remedy="", timeout=None):
        self._check()

    def set(self, key, value, timeout=None):
        self._check()
        with self._changed:
            self._values[key] = _bytes(value)
            self._changed.notify_all()

    def get(self, key, timeout=None):
        if timeout == 0 and key not in self._values:
            raise Error("not found", f"there is no key {key!r}")
        self.wait(key, timeout=timeout)
        return self._values[key]

    def wait(self, *keys, timeout=None):
        """Another thread may set them; without a timeout this one waits for ever, as there is no step that has one."""
        self._check()
        end = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while missing := [key for key in keys if key not in self._values]:
                if not self._changed.wait(None if end is None else max(0, end - time.monotonic())):
                    raise Error("timed out", f"waited {timeout:g} s for {', '.join(map(repr, missing))}, and nobody has set that")

    def add(self, key, amount=1, timeout=None):
        self._check()
        with self._changed:
            try:
                total = int(self._values.get(key, b"0")) + amount
            except ValueError:
                raise Error("invalid", f"the key {key!r} holds no number") from None
            self._values[key] = str(total).encode()
            self._changed.notify_all()
        return total

    def compare_set(self, key, expected, desired, timeout=None):
        self._check()
        with self._changed:
            if self._values.get(key, b"") == _bytes(expected):
                self._values[key] = _bytes(desired)
                self._changed.notify_all()
            return self._values.get(key, b"")

    def on_event(self, callback):
        self._check()
        return Watch(lambda: None)

    def step(self, number):
        pass

    def enter_phase(self, phase):
        pass

    def close(self):
        self.is_open = False

    def _check(self):
        if not self.is_open:
            raise Error("invalid", "the world is closed")


def _bytes(value):
    data = value.encode() if isinstance(value, str) else bytes(memoryview(value))
    if len(data) > MAX_VALUE_BYTES:
        raise Error("too large", f"a value has at most {MAX_VALUE_BYTES} bytes")
    return data
