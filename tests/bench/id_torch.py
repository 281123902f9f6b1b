# SPDX-License-Identifier: Apache-2.0
"""A rank that gets rank 0's 128 bytes through PyTorch's TCPStore as its own users would: from the common start, connect and get.

argv: folders of start_line.py, one a round, with commas between them; then the host and the first port where rank 0 serves the store itself (a
port and a store a round), or nothing for MASTER_ADDR and MASTER_PORT, where somebody else serves it (--dp-store=torch). Importing PyTorch
takes each rank a second of CPU, so there is more than one round to a process.
"""
import datetime
import fcntl
import os
import signal
import sys
import time

STILL = 0.5  # as long as the ranks of the other cases: kStaysStill in programs/start_line.hpp


def append(path, text):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, text.encode())
    os.close(fd)


def wait_for_the_start(folder):
    with open(os.path.join(folder, "gate"), encoding="ascii") as gate:
        append(os.path.join(folder, "arrived"), ".")
        fcntl.flock(gate, fcntl.LOCK_SH)
        instant = int(gate.read() or 0)
    time.sleep(max(0, instant - time.monotonic_ns()) / 1e9)


def one_round(folder, number, host, port, serves):
    from torch.distributed import TCPStore
    rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    wait_for_the_start(folder)
    begin = time.monotonic_ns()
    plain = {"use_libuv": False} if hasattr(TCPStore, "libuvBackend") else {}  # Debian's PyTorch has no libuv
    store = TCPStore(host, port, world, serves and rank == 0, datetime.timedelta(seconds=60), **plain)
    if rank == 0:
        unique_id = os.urandom(128)
        store.set(f"id {number}", unique_id)
    else:
        unique_id = store.get(f"id {number}")
    end = time.monotonic_ns()
    time.sleep(STILL)
    append(os.path.join(folder, "times"), f"{rank} {begin} {end} {unique_id.hex()}\n")
    # Who serves the store stays until all have read.
    store.add(f"read {number}", 1)
    while rank == 0 and store.add(f"read {number}", 0) < world:
        time.sleep(0.01)


def main(folders, host=None, first_port=None):
    signal.alarm(300)  # the default action: a handler of Python's would not run inside of TCPStore
    for number, folder in enumerate(folders.split(",")):
        if host:
            one_round(folder, number, host, int(first_port) + number, serves=True)
        else:
            one_round(folder, number, os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), serves=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
