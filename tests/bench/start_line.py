# SPDX-License-Identifier: Apache-2.0
"""The common start of ranks on the local cluster, and what they then report: the other side of programs/start_line.hpp and id_torch.py."""
import fcntl
import os
import time

ALL_COME = 180  # seconds that ranks may take until all are at the start
SETTLE = 0.05  # the last of them goes from its word to the gate
LEAD = 0.1  # seconds from opening the gate to the start: all ranks are through by then


class StartLine:
    """A folder that all machines of the cluster see: `path` there, `host` here."""

    def __init__(self, cluster, name):
        self.path = f"/home/shared/{name}"
        self.host = cluster.host_path(self.path)
        os.makedirs(self.host, exist_ok=True)
        self._gate = None
        self.close()

    def close(self):
        """Before the ranks start: nobody is there, and nobody gets through. New files, so that an earlier step cannot reach them."""
        for name in ("arrived", "times", "gate"):
            path = os.path.join(self.host, name)
            if os.path.exists(path):
                os.unlink(path)
            with open(path, "w", encoding="ascii"):
                os.chmod(path, 0o666)
        self._let_go()
        self._gate = os.open(os.path.join(self.host, "gate"), os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(self._gate, fcntl.LOCK_EX)

    def open_for(self, ranks, over):
        """Waits until all ranks are there and lets them go. over(): whether they have ended before that."""
        end = time.monotonic() + ALL_COME
        while os.path.getsize(os.path.join(self.host, "arrived")) < ranks:
            if over() or time.monotonic() > end:
                break  # whoever waits may go on; finish or lines say what is wrong
            time.sleep(0.005)
        time.sleep(SETTLE)
        with open(os.path.join(self.host, "gate"), "w", encoding="ascii") as gate:
            gate.write(str(time.monotonic_ns() + int(LEAD * 1e9)))
        self._let_go()

    def lines(self):
        """What the ranks have reported: a list of words a line."""
        with open(os.path.join(self.host, "times"), encoding="utf-8") as text:
            return [line.split() for line in text]

    def _let_go(self):
        if self._gate is not None:
            os.close(self._gate)
        self._gate = None
