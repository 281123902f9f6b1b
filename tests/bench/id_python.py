# SPDX-License-Identifier: Apache-2.0
"""A rank in Python that has rank 0's 128 bytes, from the common start on: through slurm_dp's store, or torch.distributed's broadcast.

argv: open (slurm_dp.open and a broadcast), dp (slurm_dp.torch.init_process_group) or env (torch's own, env://); folders of start_line.py, one
a round, with commas between them; for env the first port of node01 where rank 0 serves, a port a round. Imports do not count.
"""
import os
import signal
import sys
import time

from id_torch import STILL, append, wait_for_the_start

RANK, WORLD = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])


def main(how, folders, first_port="0"):
    signal.alarm(300)
    if how == "open":
        import slurm_dp

        def start(_):
            world = slurm_dp.open()
            value = world.broadcast(os.urandom(128) if RANK == 0 else b"")
            return value, world.close
    else:
        import torch
        import torch.distributed as dist
        import slurm_dp.torch

        def start(number):
            if how == "dp":
                slurm_dp.torch.init_process_group("gloo")
            else:
                os.environ.setdefault("USE_LIBUV", "0")  # Debian's PyTorch has none, and env:// asks for it from 2.4 on
                os.environ.update(MASTER_ADDR="node01", MASTER_PORT=str(int(first_port) + number), RANK=str(RANK), WORLD_SIZE=str(WORLD))
                dist.init_process_group("gloo")
            value = torch.frombuffer(bytearray(os.urandom(128)), dtype=torch.uint8)
            dist.broadcast(value, 0)
            return bytes(value.numpy()), dist.destroy_process_group
    for number, folder in enumerate(folders.split(",")):
        wait_for_the_start(folder)
        begin = time.monotonic_ns()
        value, close = start(number)
        end = time.monotonic_ns()
        time.sleep(STILL)
        append(os.path.join(folder, "times"), f"{RANK} {begin} {end} {value.hex()}\n")
        close()


if __name__ == "__main__":
    main(*sys.argv[1:])
