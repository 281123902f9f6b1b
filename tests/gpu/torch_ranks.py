# SPDX-License-Identifier: Apache-2.0
"""PyTorch over NCCL on the ranks of `dpctl launch`. argv: ddp (torch's own env://; DistributedDataParallel comes to the loss of one process), or
death (rank 1 kills itself while the others wait for it in an all-reduce; each says what its wait ended with, and after how long)."""
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def trained(model, inputs, labels):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(20):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), labels)
        loss.backward()
        optimizer.step()
    return loss.detach()


def ddp(device):
    dist.init_process_group("nccl")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    inputs = torch.randn(64 * size, 8, device=device)
    labels = inputs @ torch.randn(8, 1, device=device)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
    alone = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
    alone.load_state_dict(model.state_dict())
    wanted = trained(alone, inputs, labels).item()
    loss = trained(DistributedDataParallel(model), inputs[rank::size], labels[rank::size])
    dist.all_reduce(loss)
    loss = loss.item() / size
    assert abs(loss - wanted) < 1e-4 * wanted, (loss, wanted)
    print(f"rank {rank} of {size}: loss {loss:.6f}, of one process {wanted:.6f}", flush=True)
    dist.destroy_process_group()


def death(device):
    import slurm_dp.torch  # pylint: disable=import-outside-toplevel
    slurm_dp.torch.init_process_group()
    rank = dist.get_rank()
    numbers = torch.ones(1 << 20, device=device)
    for _ in range(100):
        dist.all_reduce(numbers)
        numbers /= dist.get_world_size()
    torch.cuda.synchronize()
    path = sys.argv[2]
    if rank == 1:
        time.sleep(1)
        with open(path, "w", encoding="ascii") as file:
            file.write(repr(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            dist.all_reduce(numbers)
            numbers /= dist.get_world_size()
            torch.cuda.synchronize()
    except RuntimeError as error:
        told = time.time()
        with open(path, encoding="ascii") as file:
            print(f"rank {rank}: {type(error).__name__} after {told - float(file.read()):.3f} s: {error}", flush=True)


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    {"ddp": ddp, "death": death}[sys.argv[1]](device)


if __name__ == "__main__":
    main()
