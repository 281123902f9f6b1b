# SPDX-License-Identifier: Apache-2.0
"""A rank that trains: loads a batch, computes, meets the others. After some steps one rank (of "mutual": two) hangs in one of many ways, or the
ranks have a strange rhythm, but work.

argv: the kind; the timeout of --dp-hang-timeout in seconds; the ranks that do it, with commas between them; a seed."""
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

if __name__ == "__main__":  # hangs.py imports this for its kinds
    import distributed_c10d
KIND, TIMEOUT, SUSPECTS, SEED = sys.argv[1:] if __name__ == "__main__" else ("", "0", "0", "0")
TIMEOUT, SUSPECTS, SEED = float(TIMEOUT), [int(rank) for rank in SUSPECTS.split(",")], int(SEED)
RANK = int(os.environ.get("RANK", "0"))
DRAW = random.Random(f"{SEED} {RANK}")
COMMON = random.Random(SEED)  # what all draw alike
PYTHON = sys.executable


def all_reduce():
    distributed_c10d.all_reduce()


def busy(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(i * i for i in range(500))


# How a rank hangs.

def sleep():
    time.sleep(1e6)


def spin():
    while True:
        pass


def stopped():
    os.kill(os.getpid(), signal.SIGSTOP)


def lock():
    held = threading.Lock()
    dead = threading.Thread(target=held.acquire)
    dead.start()
    dead.join()
    held.acquire()


def fifo():
    path = tempfile.mktemp()
    os.mkfifo(path)
    with open(path, encoding="ascii"):
        pass


def stdin():
    sys.stdin.read()


def child():
    subprocess.run(["sleep", "1000000"], check=False)


def peer():
    here, there = socket.socketpair()
    here.recv(1)
    there.close()


def loader():
    batches = queue.Queue()
    threading.Thread(target=lambda: (time.sleep(1e6), batches.put(1)), daemon=True).start()
    batches.get()


def left():
    sys.exit(0)


def other():
    distributed_c10d.broadcast()


def mutual():
    distributed_c10d.recv()


# Rhythms in which nobody hangs.

def waits_of_all_lengths():
    for _ in range(4):
        time.sleep(DRAW.uniform(0, 0.9) * TIMEOUT)
        all_reduce()


def one_computes():
    if RANK in SUSPECTS:
        busy(2.5 * TIMEOUT)
    all_reduce()


def all_compute_in_turn():
    for rank in COMMON.sample(range(16), 4):
        if RANK == rank:
            busy(0.7 * TIMEOUT)
        all_reduce()


def one_is_in_a_library():
    if RANK in SUSPECTS:
        begin = time.monotonic()
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 100000)
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", int(100000 * 2 * TIMEOUT / (time.monotonic() - begin)))
    all_reduce()


def one_compiles():
    if RANK in SUSPECTS:
        code = f"import time\nend = time.monotonic() + {2 * TIMEOUT}\nwhile time.monotonic() < end: pass"
        subprocess.run([PYTHON, "-c", code], check=True)
    all_reduce()


def one_saves_slowly():
    if RANK in SUSPECTS:
        with tempfile.NamedTemporaryFile(buffering=0) as file:
            end = time.monotonic() + 2 * TIMEOUT
            while time.monotonic() < end:
                file.write(bytes(100000))
                time.sleep(0.3)
    all_reduce()


def one_polls():
    if RANK in SUSPECTS:
        ready = time.monotonic() + 2 * TIMEOUT
        count = 0
        while time.monotonic() < ready:  # as long as another step of the same job writes a file, say
            count += 1
            busy(0.05)
            time.sleep(0.1)
    all_reduce()


def a_loader_thread_works():
    if RANK in SUSPECTS:
        batches = queue.Queue()
        threading.Thread(target=lambda: (busy(2 * TIMEOUT), batches.put(1)), daemon=True).start()
        batches.get()
    all_reduce()


def worker_processes_load():
    if RANK in SUSPECTS:
        code = f"import time\nend = time.monotonic() + {2 * TIMEOUT}\nwhile time.monotonic() < end: sum(range(1000))\nprint('batch')"
        with subprocess.Popen([PYTHON, "-c", code], stdout=subprocess.PIPE) as worker:
            worker.stdout.read()
    all_reduce()


def messages_come_slowly():
    if RANK in SUSPECTS:
        here, there = socket.socketpair()

        def speak():
            for _ in range(5):
                time.sleep(0.5 * TIMEOUT)
                there.send(b"x")
        threading.Thread(target=speak, daemon=True).start()
        for _ in range(5):
            here.recv(1)
    all_reduce()


def a_worker_downloads():
    """Over TCP, at some megabytes a second: that takes hardly any CPU."""
    if RANK in SUSPECTS:
        def serve():
            peer, _ = server.accept()
            end = time.monotonic() + 2.5 * TIMEOUT
            while time.monotonic() < end:
                peer.sendall(bytes(500000))
                time.sleep(0.1)
            peer.close()
        server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=serve, daemon=True).start()
        code = f"import socket\npeer = socket.create_connection({server.getsockname()!r})\nwhile peer.recv(1 << 20): pass"
        with subprocess.Popen([PYTHON, "-c", code]) as worker:
            worker.wait()
    all_reduce()


HANGS = {function.__name__: function for function in (sleep, spin, stopped, lock, fifo, stdin, child, peer, loader, left, other, mutual)}
WORKS = {function.__name__: function for function in (
    waits_of_all_lengths, one_computes, all_compute_in_turn, one_is_in_a_library, one_compiles, one_saves_slowly, one_polls,
    a_loader_thread_works, worker_processes_load, messages_come_slowly, a_worker_downloads)}


def load_batch():
    HANGS[KIND]()


def train():
    distributed_c10d.init_process_group()
    for _ in range(COMMON.randrange(1, 5)):
        json.dumps([DRAW.random() for _ in range(1000)])
        time.sleep(DRAW.uniform(0, 0.1))
        all_reduce()
    if KIND in WORKS:
        WORKS[KIND]()
    elif RANK in SUSPECTS:
        load_batch()
    all_reduce()


if __name__ == "__main__":
    train()
