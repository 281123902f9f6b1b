# SPDX-License-Identifier: Apache-2.0
"""Our trainer and its peer in PyTorch (torch_trainer/) as commands, and the text that both take."""
import contextlib
import glob
import json
import os
import subprocess
import tempfile

from localcluster.harness import BUILD
from localcluster.names import CHECKOUT
from stores import PYTHON

TRAINER = os.path.join(BUILD, "bin/trainer")
LONGEST = 600  # seconds that one command may take
THREADS = len(os.sched_getaffinity(0))


def peer(program, *words):
    """A program of torch_trainer."""
    return [PYTHON, "-B", os.path.join(CHECKOUT, "tests/bench/torch_trainer", program), *map(str, words)]


def lines_of(command, settings=None):
    """What a command prints, here, with all CPUs. settings: more variables of its environment."""
    words = [str(word) for word in command]
    environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS), **(settings or {})}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=LONGEST, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise SystemExit(f"tests/bench/run: {' '.join(words)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout.splitlines()


def summary_of(command, settings=None):
    """The line of JSON at the end."""
    return json.loads(lines_of(command, settings)[-1])


@contextlib.contextmanager
def text_tokens():
    """A directory with a text that is at hand everywhere, the trainer's own source, as tokens of a byte each."""
    with tempfile.TemporaryDirectory() as parent:
        directory = os.path.join(parent, "tokens")
        files = sorted(glob.glob(os.path.join(CHECKOUT, "trainer/**/*.cpp"), recursive=True))
        lines_of([TRAINER, "prepare", "--text", *files, "--tokenizer=bytes", f"--output={directory}"])
        yield directory
