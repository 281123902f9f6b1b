# SPDX-License-Identifier: Apache-2.0
"""Where the benchmarks' programs are, in this build and in one to compare with, how one of them is run, and what is missing."""
import json
import os
import subprocess
import sys

from localcluster.harness import BUILD
from localcluster.names import CHECKOUT

DAEMON = os.path.join(BUILD, "bin/dp-rendezvousd")
LONGEST = 1200  # seconds that one program may take
BEFORE = ", before"  # behind the name of what is run from the build of --against


def built(name, build=BUILD):
    """The path of a program of tests/bench/programs."""
    return os.path.join(build, "tests", name)


def daemon_of(build):
    return os.path.join(build, "bin/dp-rendezvousd")


def builds(options):
    """{what stands behind a case's name: build folder}: this one, and that of --against."""
    return {"": BUILD, **({BEFORE: options.against} if options.against else {})}


def require(*paths):
    for path in paths:
        if not os.path.exists(path):
            raise SystemExit(f"tests/bench/run: {os.path.relpath(path, CHECKOUT)} is not built; cmake --preset release -DDP_TESTS=ON && "
                             "cmake --build --preset release")


def cluster_name():
    # tests/run sets it, so that it can clear up after a benchmark that was killed.
    return os.environ.get("DP_TEST_CLUSTER") or f"bench-{os.getpid()}"


def left_out(peer, why):
    print(f"tests/bench/run: {peer} is left out: {why}", file=sys.stderr, flush=True)


def progress(text):
    print(text, file=sys.stderr, flush=True)


def rounds_of(command):
    """The JSON lines of a program of the benchmarks."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"tests/bench/run: {' '.join(words)}: has not ended after {LONGEST} s") from None
    if done.returncode != 0:
        raise SystemExit(f"tests/bench/run: {' '.join(words)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def warn_if_busy(machine):
    load = machine["load"][0]
    if load > os.cpu_count() / 2:
        print(f"tests/bench/run: this machine is busy (load {load:.1f}); figures from it say little", file=sys.stderr)
