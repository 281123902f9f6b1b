# SPDX-License-Identifier: Apache-2.0
"""A rank that trains: loads a batch, computes, meets the others. After some steps one rank (of "mutual": two) hangs in one of many ways, or the
ranks have a strange rhythm, but work.

argv: the kind; the timeout of --dp-hang-timeout in seconds; the ranks that do it, with commas between them; a seed. It prints the moment
(CLOCK_MONOTONIC, seconds) at which it begins to hang."""
import hashlib
import json
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

# hangs.py imports it for its kinds.
KIND, TIMEOUT, SUSPECTS, SEED = sys.argv[1:] if __name__ == "__main__" else ("", "0", "0", "0")
TIMEOUT, SUSPECTS, SEED = float(TIMEOUT), [int(rank) for rank in SUSPECTS.split(",")], int(SEED)
RANK = int(os.environ.get("RANK", "0"))
DRAW = random.Random(f"{SEED} {RANK}")
COMMON = random.Random(SEED)  # what all draw alike
PYTHON = sys.executable


def busy(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(i * i for i in range(500))


# How a rank hangs.

def sleep(_):
    time.sleep(1e6)


def spin(_):
    while True:
        pass


def stopped(_):
    os.kill(os.getpid(), signal.SIGSTOP)


def lock(_):
    held = threading.Lock()
    dead = threading.Thread(target=held.acquire)
    dead.start()
    dead.join()
    held.acquire()


def fifo(_):
    path = tempfile.mktemp()
    os.mkfifo(path)
    with open(path, encoding="ascii"):
        pass


def stdin(_):
    sys.stdin.read()


def child(_):
    subprocess.run(["sleep", "1000000"], check=False)


def peer(_):
    here, there = socket.socketpair()
    here.recv(1)
    there.close()


def loader(_):
    batches = queue.Queue()
    threading.Thread(target=lambda: (time.sleep(1e6), batches.put(1)), daemon=True).start()
    batches.get()


def left(world):
    world.close()
    sys.exit(0)


def other(world):
    world.broadcast(b"x")


def mutual(world):
    world.wait(f"from {SUSPECTS[1 - SUSPECTS.index(RANK)]} to {RANK}")


# Rhythms in which nobody hangs.

def waits_of_all_lengths(world):
    for _ in range(4):
        time.sleep(DRAW.uniform(0, 0.9) * TIMEOUT)
        world.barrier()


def one_computes(world):
    if RANK in SUSPECTS:
        busy(2.5 * TIMEOUT)
    world.barrier()


def all_compute_in_turn(world):
    for rank in COMMON.sample(range(16), 4):
        if RANK == rank:
            busy(0.7 * TIMEOUT)
        world.barrier()


def one_is_in_a_library(world):
    if RANK in SUSPECTS:
        begin = time.monotonic()
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 100000)
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", int(100000 * 2 * TIMEOUT / (time.monotonic() - begin)))
    world.barrier()


def one_compiles(world):
    if RANK in SUSPECTS:
        code = f"import time\nend = time.monotonic() + {2 * TIMEOUT}\nwhile time.monotonic() < end: pass"
        subprocess.run([PYTHON, "-c", code], check=True)
    world.barrier()


def one_saves_slowly(world):
    if RANK in SUSPECTS:
        with tempfile.NamedTemporaryFile(buffering=0) as file:
            end = time.monotonic() + 2 * TIMEOUT
            while time.monotonic() < end:
                file.write(bytes(100000))
                time.sleep(0.3)
    world.barrier()


def one_polls(world):
    if RANK in SUSPECTS:
        ready = time.monotonic() + 2 * TIMEOUT
        count = 0
        while time.monotonic() < ready:  # as long as another step of the same job writes a file, say
            count += 1
            busy(0.05)
            time.sleep(0.1)
    world.barrier()


def a_loader_thread_works(world):
    if RANK in SUSPECTS:
        batches = queue.Queue()
        threading.Thread(target=lambda: (busy(2 * TIMEOUT), batches.put(1)), daemon=True).start()
        batches.get()
    world.barrier()


def worker_processes_load(world):
    if RANK in SUSPECTS:
        code = f"import time\nend = time.monotonic() + {2 * TIMEOUT}\nwhile time.monotonic() < end: sum(range(1000))\nprint('batch')"
        with subprocess.Popen([PYTHON, "-c", code], stdout=subprocess.PIPE) as worker:
            worker.stdout.read()
    world.barrier()


def messages_come_slowly(world):
    if RANK in SUSPECTS:
        here, there = socket.socketpair()

        def speak():
            for _ in range(5):
                time.sleep(0.5 * TIMEOUT)
                there.send(b"x")
        threading.Thread(target=speak, daemon=True).start()
        for _ in range(5):
            here.recv(1)
    world.barrier()


HANGS = {function.__name__: function for function in (sleep, spin, stopped, lock, fifo, stdin, child, peer, loader, left, other, mutual)}
WORKS = {function.__name__: function for function in (
    waits_of_all_lengths, one_computes, all_compute_in_turn, one_is_in_a_library, one_compiles, one_saves_slowly, one_polls,
    a_loader_thread_works, worker_processes_load, messages_come_slowly)}


def load_batch(world):
    print(RANK, time.monotonic(), flush=True)
    HANGS[KIND](world)


def train():
    import slurm_dp as dp
    with dp.open() as world:
        for _ in range(COMMON.randrange(1, 5)):
            json.dumps([DRAW.random() for _ in range(1000)])
            time.sleep(DRAW.uniform(0, 0.1))
            world.barrier()
        if KIND in WORKS:
            WORKS[KIND](world)
        elif RANK in SUSPECTS:
            load_batch(world)
        world.barrier()


if __name__ == "__main__":
    train()
