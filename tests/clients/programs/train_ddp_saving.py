# SPDX-License-Identifier: Apache-2.0
"""A training script that goes on from its last checkpoint, as PyTorch's tutorials write them: env://, DistributedDataParallel, torch.save by rank
0. It knows nothing of Slurm. argv: the checkpoint, epochs, seconds that each takes at least."""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main(path, epochs, seconds):
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(512, 8, generator=generator)
    labels = inputs @ torch.randn(8, 1, generator=generator)
    dataset = TensorDataset(inputs, labels)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)

    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    first = 0
    if os.path.exists(path):
        saved = torch.load(path)
        network.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epoch"] + 1
    loss_function = nn.MSELoss()
    for epoch in range(first, epochs):
        sampler.set_epoch(epoch)
        for batch, wanted in loader:
            optimizer.zero_grad()
            loss_function(model(batch), wanted).backward()
            optimizer.step()
        if rank == 0:
            torch.save({"model": network.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, path + ".new")
            os.rename(path + ".new", path)
            print(f"epoch {epoch} is saved", flush=True)
        time.sleep(seconds)
    with torch.no_grad():
        loss = loss_function(model(inputs), labels).item()
    print(f"rank {rank} of {world_size}: loss {loss:.12f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
