# SPDX-License-Identifier: Apache-2.0
"""`srun --dp-world=auto python3 -m slurm_dp`: what each rank sees, a line a rank."""
import socket
import sys

from . import Error, open as open_world


def main() -> int:
    try:
        with open_world() as world:
            world.barrier()
            sys.stdout.write(f"rank {world.rank} of {world.size}: local rank {world.local_rank} of {world.local_size} on {socket.gethostname()} "
                             f"(node {world.node_rank} of {world.nodes}, {world.node_addr}), master {world.master_addr}:{world.master_port}, "
                             f"generation {world.generation}\n")
    except Error as error:
        sys.stderr.write(f"slurm_dp: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
