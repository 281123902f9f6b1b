# SPDX-License-Identifier: Apache-2.0
"""Ranks that go on, in the same process, when rank 1 kills itself in the first generation."""
import os
import signal

import slurm_dp as dp

with dp.open() as world:
    world.enable_rejoin()
    told = []
    world.on_event(lambda event: told.append(event.kind))
    world.barrier()
    if world.generation == 0:
        if world.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            world.barrier()
        except dp.Error as error:
            assert error.status == "peer lost", error.status
        changes = world.rejoin()
        print(f"rank {world.rank} of {world.size} goes on in generation {world.generation}: {changes} after {told}", flush=True)
        world.barrier()  # the first one of the new process
    else:
        print(f"rank {world.rank} begins in generation {world.generation}", flush=True)
    world.barrier()
    assert world.add("sum", world.rank) >= 0
