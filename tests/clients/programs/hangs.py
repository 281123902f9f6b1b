# SPDX-License-Identifier: Apache-2.0
"""Four ranks train for some steps; then the last one does not come back from its data loader."""
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def load_batch(step):
    if step == 20 and dist.get_rank() == 3:
        time.sleep(1000)
    return torch.ones(8, 4)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1)) if sys.argv[1] == "ddp" else None
for step in range(30):
    batch = load_batch(step)
    if model is None:
        dist.all_reduce(batch)
    else:
        model(batch).sum().backward()
