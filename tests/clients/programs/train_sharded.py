# SPDX-License-Identifier: Apache-2.0
"""What the tutorials of PyTorch 2.x use: FSDP2, DTensor on a 2-D device mesh, a distributed checkpoint that is read in another layout.
Each rank prints what it got. argv: a folder for the checkpoint, the same on every node and not there yet."""
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

BATCH, WIDTH = 32, 16


def model_of(mesh):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, 1))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def whole(model):
    return {name: value.full_tensor() for name, value in model.state_dict().items()}


def train(model, mesh):
    generator = torch.Generator().manual_seed(mesh.get_rank())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(20):
        inputs = torch.randn(BATCH, WIDTH, generator=generator)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.detach()


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()

    def tell(what, value):
        print(f"rank {rank} of {size}: {what} {value:.9g}", flush=True)

    flat = init_device_mesh("cpu", (size,))
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicas", "shards"))
    trained = model_of(flat)
    loss = train(trained, flat)
    dist.all_reduce(loss)
    tell("fsdp2", loss.item())

    checkpoint.save({"model": trained.state_dict()}, checkpoint_id=sys.argv[1])
    other = model_of(mesh)  # sharded over half of the ranks, with a copy on the other half
    state = other.state_dict()
    checkpoint.load({"model": state}, checkpoint_id=sys.argv[1])
    other.load_state_dict(state)
    for name, value in whole(trained).items():
        assert torch.equal(value, whole(other)[name]), name
    tell("checkpoint", sum(value.double().sum().item() for value in whole(other).values()))

    torch.manual_seed(2)
    left, right = torch.randn(8, 6, dtype=torch.float64), torch.randn(6, 4, dtype=torch.float64)
    product = distribute_tensor(left, mesh, [Shard(0), Shard(1)]) @ distribute_tensor(right, mesh, [Replicate(), Shard(0)])
    torch.testing.assert_close(product.full_tensor(), left @ right)
    tell("dtensor", product.redistribute(mesh, [Shard(1), Replicate()]).to_local().square().sum().item())

    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
