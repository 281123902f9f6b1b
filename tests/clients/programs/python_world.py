# SPDX-License-Identifier: Apache-2.0
"""Everything that slurm_dp offers to a rank, checked by the ranks themselves; each prints a line when all is well."""
import signal
import sys
import threading
import time

import slurm_dp as dp


def error_of(call, *arguments, **options):
    try:
        return f"no error, but {call(*arguments, **options)!r}"
    except dp.Error as error:
        assert "\n" not in str(error), error
        return f"{error.status}: {error}"


def raise_interrupt(*_):
    raise KeyboardInterrupt


with dp.open() as world:
    assert dp.current() is world
    assert 0 <= world.rank < world.size == 8 and world.nodes == 2 and world.local_size == 4, vars(world)
    assert (world.node_rank, world.local_rank) == divmod(world.rank, 4) and world.generation == 0
    world.barrier()

    # The store.
    world.set(f"key {world.rank}", b"\0\xff" * world.rank)
    world.wait(*(f"key {rank}" for rank in range(8)), timeout=20)
    assert world.get("key 3") == b"\0\xff" * 3
    threads = threading.active_count()
    for _ in range(100):
        assert error_of(world.get, "no such key", timeout=0).startswith("not found: ")
    assert threading.active_count() <= threads, "each failure has left a thread"
    world.add("sum", world.rank)
    world.barrier()
    assert world.add("sum", 0) == sum(range(8))
    assert world.compare_set("first", "", str(world.rank)) == world.get("first")
    assert error_of(world.add, "key 0").startswith("invalid: ")
    assert error_of(world.set, "large", bytes((1 << 20) + 1)).startswith("too large: ")
    assert len(world.broadcast(bytes(1 << 20))) == 1 << 20

    # Collectives.
    assert world.broadcast(f"from {world.rank}") == b"from 0"
    ids = [world.unique_id(make=lambda: bytes([world.rank + 1]) * 128) for _ in range(2)]
    assert ids == [b"\1" * 128] * 2
    assert "root" in error_of(world.unique_id, make=lambda: bytes(3)) or world.rank == 0
    world.agree({"version": "2", "nothing": None})
    said = error_of(world.agree, {"colour": "red" if world.rank else "blue"}, remedy="use one colour")
    assert "blue" in said and "red" in said and said.endswith("use one colour"), said
    half = world.group("half", tuple(range(0, 8, 2)))
    if world.rank in half.members:
        world.barrier(group=half)
        assert world.broadcast(str(world.rank), group=half) == b"0"
    assert (world.data.rank, world.data.size, world.tensor.size) == (world.rank, 8, 1)

    # A timeout names who is missing, and whoever comes later learns it at once.
    if world.rank == 5:
        time.sleep(1)
    began = time.monotonic()
    said = error_of(world.barrier, timeout=0.5 if world.rank != 5 else 60)
    assert said.startswith("timed out: ") and "rank 5" in said and time.monotonic() - began < 20, said
    world.barrier()

    # Other threads run while one waits, and a signal's handler ends the wait.
    counted = []
    counter = threading.Thread(target=lambda: counted.extend(time.sleep(0.01) or number for number in range(10)))
    counter.start()
    signal.signal(signal.SIGALRM, raise_interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    began = time.monotonic()
    try:
        world.wait("nobody sets this", timeout=60)
        raise AssertionError("the wait has ended by itself")
    except KeyboardInterrupt:
        assert time.monotonic() - began < 30 and len(counted) == 10
    world.barrier()

    for number in range(3):
        with dp.phase("load"), dp.phase("compute"):
            dp.step(number)

assert error_of(world.barrier) == "invalid: the world is closed"
sys.stdout.write(f"rank {world.rank} of {world.size}: all is well\n")
