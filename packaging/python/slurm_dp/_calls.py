# SPDX-License-Identifier: Apache-2.0
"""Calls that wait, in such a way that Ctrl-C and other signals reach Python's handlers meanwhile; and the end of all calls, for close().

Python runs signal handlers on the main thread, between its own instructions: never while that thread waits inside libdp. So another thread
waits in its place, and the main thread waits for that one, which a signal ends. Other threads wait by themselves, and so does the main
thread in a call of BRIEF at most, which is not worth two context switches: there a signal waits for the call.
"""
import threading

from ._library import Error

BRIEF = 100  # ms


def closed():
    return Error("invalid", "the world is closed")


class Calls:
    """A world's calls in progress. After an interrupt, the call's thread is left to its wait, which ends with its deadline or with the world,
    and then ends itself."""

    def __init__(self):
        self._changed = threading.Condition()
        self._running = 0
        self._ended = False
        self._worker = None

    def run(self, function, milliseconds):
        """Returns or raises what the function does. milliseconds: its timeout, as libdp takes it (-1: the step's)."""
        if 0 <= milliseconds <= BRIEF or threading.current_thread() is not threading.main_thread():
            return self._counted(function)
        worker, self._worker = self._worker or _Worker(), None
        interrupted = True
        try:
            worker.start(lambda: self._counted(function))
            worker.wait()  # an exception from a signal handler leaves here
            interrupted = False
        finally:
            if interrupted:
                worker.abandon()
            else:
                self._worker = worker
        return worker.result()

    def _counted(self, function):
        with self._changed:
            if self._ended:
                raise closed()
            self._running += 1
        try:
            return function()
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def end(self):
        """From now on no call begins. False if that is so already."""
        with self._changed:
            ended, self._ended = self._ended, True
        return not ended

    def wait_for_all(self):
        """Waits until no call is in progress, after end()."""
        with self._changed:
            self._changed.wait_for(lambda: self._running == 0)
        if self._worker:
            self._worker.abandon()
            self._worker = None


class _Worker:
    def __init__(self):
        self._go, self._done = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._done.acquire()
        self._function = self._value = self._error = None
        self._abandoned = False
        threading.Thread(target=self._work, name="slurm_dp", daemon=True).start()

    def start(self, function):
        self._function = function
        self._go.release()

    def wait(self):
        self._done.acquire()

    def result(self):
        value, error, self._value, self._error = self._value, self._error, None, None
        if error is not None:
            raise error
        return value

    def abandon(self):
        self._abandoned = True
        try:
            self._go.release()
        except RuntimeError:
            pass  # it has not taken its last call yet

    def _work(self):
        while True:
            self._go.acquire()
            function, self._function = self._function, None
            if function is None:
                return
            try:
                self._value = function()
            except BaseException as error:  # pylint: disable=broad-except  # it is the caller's
                self._error = error
            del function
            self._done.release()
            if self._abandoned:
                return
