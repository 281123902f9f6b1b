# SPDX-License-Identifier: Apache-2.0
"""Calls that wait, in such a way that Ctrl-C and other signals reach Python's handlers meanwhile.

Python runs signal handlers on the main thread, between its own instructions: never while that thread waits inside of libdp. So for the
main thread another one waits, and the main thread waits for that one, which a signal ends. Other threads wait by themselves.
"""
import threading


class Interruptible:
    """Runs functions for the main thread on a thread of its own. After an interrupt that thread is left to its wait, which ends with its
    deadline or when the world is closed, and the next call gets a new one."""

    def __init__(self):
        self._worker = None

    def run(self, function):
        """Returns or raises what the function does."""
        if threading.current_thread() is not threading.main_thread():
            return function()
        worker, self._worker = self._worker or _Worker(), None
        result = worker.run(function)
        self._worker = worker
        return result

    def stop(self):
        if self._worker:
            self._worker.stop()
            self._worker = None


class _Worker:
    def __init__(self):
        self._go, self._done = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._done.acquire()
        self._function = self._result = self._error = None
        threading.Thread(target=self._work, name="slurm_dp", daemon=True).start()

    def run(self, function):
        self._function = function
        self._go.release()
        self._done.acquire()  # what a signal's handler raises, leaves from here
        result, error, self._result, self._error = self._result, self._error, None, None
        if error is not None:
            raise error
        return result

    def stop(self):
        self._function = None
        self._go.release()

    def _work(self):
        while True:
            self._go.acquire()
            function, self._function = self._function, None
            if function is None:
                return
            try:
                self._result = function()
            except BaseException as error:  # pylint: disable=broad-except  # it is the caller's
                self._error = error
            function = None
            self._done.release()
