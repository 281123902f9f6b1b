# SPDX-License-Identifier: Apache-2.0
"""Our trainer and its peer in PyTorch (torch_trainer/) as commands, and the text that both take."""
import contextlib
import glob
import os
import subprocess
import tempfile
import threading
from typing import NamedTuple

from localcluster.harness import BUILD
from localcluster.names import CHECKOUT
from stores import PYTHON


def trainer_of(build):
    return os.path.join(build, "bin/trainer")


TRAINER = trainer_of(BUILD)
LONGEST = 600  # seconds that one command may take
THREADS = len(os.sched_getaffinity(0))


def peer(program, *words):
    """A program of torch_trainer."""
    return [PYTHON, "-B", os.path.join(CHECKOUT, "tests/bench/torch_trainer", program), *map(str, words)]


class Done(NamedTuple):
    lines: list  # of what it printed
    peak: int    # bytes of memory that were resident at most


def done_with(command, settings=None):
    """A command that has ended, here, with all CPUs. settings: more variables of its environment."""
    words = [str(word) for word in command]
    environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS), **(settings or {})}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(words, env=environment, stdout=out, stderr=errors, stdin=subprocess.DEVNULL)
        timer = threading.Timer(LONGEST, process.kill)
        timer.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            timer.cancel()
            if process.returncode is None:
                process.kill()
        for file in (out, errors):
            file.seek(0)
        if process.returncode != 0:
            raise SystemExit(f"tests/bench/run: {' '.join(words)}: exit code {process.returncode}\n{errors.read()[-2000:]}")
        return Done(out.read().splitlines(), usage.ru_maxrss * 1024)


def lines_of(command, settings=None):
    return done_with(command, settings).lines


@contextlib.contextmanager
def text_tokens():
    """A directory with a text that is at hand everywhere, the trainer's own source, as tokens of a byte each."""
    with tempfile.TemporaryDirectory() as parent:
        directory = os.path.join(parent, "tokens")
        files = sorted(glob.glob(os.path.join(CHECKOUT, "trainer/**/*.cpp"), recursive=True))
        lines_of([TRAINER, "prepare", "--text", *files, "--tokenizer=bytes", f"--output={directory}"])
        yield directory
