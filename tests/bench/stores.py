# SPDX-License-Identifier: Apache-2.0
"""The stores that bring an id to simulated ranks: PyTorch's own server, the broker in its place, redis. Each is a server on loopback."""
import contextlib
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from programs import DAEMON, built, rounds_of

PYTHON = "/usr/bin/python3"  # Debian's python3-torch
PATIENCE = 30  # seconds for a server to start or to end
ROOM = 19000  # clients of redis, below the usual limit of open files
# Serves until standard input ends.
TORCH_SERVER = """
import json, os, resource, sys
from torch.distributed import TCPStore
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
store = TCPStore("127.0.0.1", 0, None, True)
print(json.dumps({"port": store.port, "pid": os.getpid()}), flush=True)
sys.stdin.read()
"""


def torch_problem():
    """Why there is no PyTorch, or None."""
    found = subprocess.run([PYTHON, "-c", "import torch.distributed"], capture_output=True, text=True, check=False, timeout=120)
    return "Debian's python3-torch is not installed (packaging/install-dependencies bench)" if found.returncode != 0 else None


def redis_problem():
    return None if shutil.which("redis-server") else "redis-server is not installed (packaging/install-dependencies bench)"


@contextlib.contextmanager
def _until_input_ends(command):
    """A server that says its port and pid in a line of JSON → that."""
    with subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            if not line:
                raise SystemExit(f"tests/bench/run: {command[0]} has ended with exit code {process.wait(PATIENCE)}")
            yield json.loads(line)
        finally:
            process.stdin.close()
            _end(process)


def torch_server(_ranks):
    return _until_input_ends([PYTHON, "-c", TORCH_SERVER])


def torch_face(ranks):
    return _until_input_ends([built("bench-torch-face"), DAEMON, ranks])


@contextlib.contextmanager
def redis_server(_ranks):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--maxclients", str(ROOM),
               "--protected-mode", "no",  # else only 127.0.0.1 may come, and not 127.0.0.2 and up
               "--tcp-backlog", "4096", "--logfile", "/dev/null"]
    with subprocess.Popen(command) as process:
        try:
            _wait_for(port, process)
            yield {"port": port, "pid": process.pid}
        finally:
            process.terminate()
            _end(process)


def _wait_for(port, process):
    end = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit("tests/bench/run: redis-server does not start") from None
            time.sleep(0.02)


def _end(process):
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@dataclass(frozen=True)
class Store:
    protocol: str       # how its clients speak
    server: Callable    # ranks → what serves them
    problem: Callable   # → why it is not there, or None
    sources: tuple = ()
    most: int = 16384   # ranks
    no_more: str = ""   # and why


STORES = {
    "TCPStore, PyTorch's server": Store("torch", torch_server, torch_problem, most=1024,
                                        no_more="its server resets connections when many more come at once"),
    "TCPStore, --dp-store=torch": Store("torch", torch_face, lambda: None, ("one-address",), 1024,
                                        "its clients have to come from the node's own address, whose ports run out"),
    "redis, BLPOP": Store("redis", redis_server, redis_problem),
}


def rounds_with(name, ranks, rounds):
    """The JSON lines of bench-store with that store."""
    store = STORES[name]
    with store.server(ranks) as there:
        return rounds_of([built("bench-store"), store.protocol, there["port"], there["pid"], ranks, rounds, *store.sources])
