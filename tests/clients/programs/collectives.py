# SPDX-License-Identifier: Apache-2.0
"""What else programs ask of the store behind env://: groups, pickled objects, barriers with a deadline, keys of their own."""
import datetime
import os

import torch
import torch.distributed as dist


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    dist.init_process_group("gloo", init_method="env://", timeout=datetime.timedelta(seconds=60))
    rank, world_size = dist.get_rank(), dist.get_world_size()

    everybody = [None] * world_size
    dist.all_gather_object(everybody, {"rank": rank, "local_rank": local_rank, "host": os.uname().nodename})
    assert [one["rank"] for one in everybody] == list(range(world_size)), everybody

    # Groups are made by everybody in the same order, also those that one is not in.
    halves = [dist.new_group(ranks) for ranks in (range(0, world_size, 2), range(1, world_size, 2))]
    total = torch.tensor([rank])
    dist.all_reduce(total, group=halves[rank % 2])
    assert total.item() == sum(range(rank % 2, world_size, 2)), total

    dist.monitored_barrier(timeout=datetime.timedelta(seconds=30))

    store = dist.distributed_c10d._get_default_store()
    store.set(f"from {rank}", b"x" * 1000000)
    assert len(store.get(f"from {(rank + 1) % world_size}")) == 1000000
    assert store.compare_set("first", "", str(rank)) == store.get("first")
    store.add("arrived", 1)
    while int(store.add("arrived", 0)) < world_size:
        pass
    try:
        store.wait([f"never {rank}"], datetime.timedelta(milliseconds=300))
        raise AssertionError("a key that nobody sets has come")
    except RuntimeError:
        pass  # "Socket Timeout"
    # Afterwards the connection is as good as before, also when the key comes late.
    store.set(f"never {rank}", "now")
    assert store.add("after", 1) >= 1
    assert store.delete_key(f"from {rank}")
    dist.barrier()
    print(f"rank {rank} of {world_size}: met {len({one['host'] for one in everybody})} hosts", flush=True)


if __name__ == "__main__":
    main()
