# SPDX-License-Identifier: Apache-2.0
"""first_step.py BATCH FILE: a data-parallel training of cnn as PyTorch's users write it (DDP, Gloo, env://) up to its first step: rank 0 writes
the time (seconds since 1970) into the file."""
import sys
import time

import torch
from torch import distributed
from models import LOSSES, cnn, train_step
from samples import fashion_mnist


def main(rows, file):
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(cnn())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, target = fashion_mnist()
    chosen = torch.randperm(len(x))[rank * rows:(rank + 1) * rows]
    train_step(model, LOSSES["cnn"], optimizer, x[chosen], target[chosen])
    if rank == 0:
        with open(file, "w", encoding="ascii") as out:
            out.write(repr(time.time()))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
