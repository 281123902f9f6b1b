# SPDX-License-Identifier: Apache-2.0
"""Rank 5 kills itself while all others wait for it; each prints what its wait ended with, and how long after the death (one machine's clock).

argv: barrier; torch (an all-reduce in which rank 2 is late: its neighbours wait for it, not for the dead), future (the same, by its future),
ddp (DistributedDataParallel is made); callback: a call-back that throws."""
import os
import signal
import sys
import time

import slurm_dp as dp


def close_in_it(_):
    try:
        world.close()
    except dp.Error as error:
        sys.stdout.write(f"rank {world.rank}: closing: {error}\n")


world = dp.open()
events = []
if sys.argv[1] == "callback":
    world.on_event(lambda event: {}[event.reason])
    world.on_event(close_in_it)
world.on_event(events.append)
world.barrier()
if sys.argv[1] in ("torch", "future", "ddp"):
    import torch
    import torch.distributed
    import slurm_dp.torch
    slurm_dp.torch.init_process_group("gloo")
    numbers = torch.ones(1000)
    torch.distributed.all_reduce(numbers)
    assert numbers[0] == world.size

died = os.path.join(os.environ["HOME"], f"died.{os.environ['SLURM_JOB_ID']}.{os.environ['SLURM_STEP_ID']}")
world.barrier()
if world.rank == 5:
    time.sleep(0.5)
    with open(died, "w", encoding="utf-8") as file:
        file.write(repr(time.time()))
    os.kill(os.getpid(), signal.SIGKILL)
try:
    if sys.argv[1] in ("torch", "future") and world.rank == 2:
        time.sleep(2)
    while sys.argv[1] == "torch":
        torch.distributed.all_reduce(numbers)
    while sys.argv[1] == "future":
        torch.distributed.all_reduce(numbers, async_op=True).get_future().wait()
    if sys.argv[1] == "ddp":
        torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    world.barrier()
except dp.Error as error:
    told = time.time()
    time.sleep(0.2)
    with open(died, encoding="utf-8") as file:
        sys.stdout.write(f"rank {world.rank}: after {told - float(file.read()):.3f} s: {error}\n")
    if sys.argv[1] == "torch":
        # As torch forgets its process groups when they are aborted over NCCL.
        torch.distributed.distributed_c10d._update_default_pg(None)
        try:
            torch.distributed.all_reduce(numbers)
        except dp.Error:
            told = None
        assert told is None, "torch says that there is no process group, and not why"
if sys.argv[1] == "callback":
    try:
        world.add("n")
    except dp.Error as error:
        sys.stdout.write(f"rank {world.rank}: call-back: {error}\n")
assert [(event.kind, event.ranks) for event in events] == [("deaths", (5,))], events
