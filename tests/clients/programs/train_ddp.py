# SPDX-License-Identifier: Apache-2.0
"""A training script as PyTorch's tutorials write them: env://, DistributedDataParallel, DistributedSampler. It knows nothing of Slurm."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(512, 8, generator=generator)
    labels = inputs @ torch.randn(8, 1, generator=generator)
    dataset = TensorDataset(inputs, labels)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)

    torch.manual_seed(rank)  # DDP makes the ranks' parameters equal
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loss_function = nn.MSELoss()
    with torch.no_grad():
        before = loss_function(model(inputs), labels).item()
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for batch, wanted in loader:
            optimizer.zero_grad()
            loss_function(model(batch), wanted).backward()
            optimizer.step()
    with torch.no_grad():
        loss = loss_function(model(inputs), labels).item()
    print(f"rank {rank} of {world_size}: loss {before:.9f} -> {loss:.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
