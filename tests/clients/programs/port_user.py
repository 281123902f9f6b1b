# SPDX-License-Identifier: Apache-2.0
"""What a framework does with MASTER_PORT, without the framework: rank 0 listens there, all connect and find their own world's rank 0."""
import os
import socket
import time

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
world = os.environ["SLURM_STEP_ID"].encode()
server = None
if rank == 0:
    server = socket.create_server(("", address[1]), backlog=world_size)  # sets SO_REUSEADDR, as practically all do
deadline = time.monotonic() + 30
while True:
    try:
        client = socket.create_connection(address, timeout=10)
        break
    except ConnectionRefusedError:
        assert time.monotonic() < deadline, "nobody listens"
        time.sleep(0.02)
if server:
    for _ in range(world_size):
        server.accept()[0].sendall(world)
assert client.recv(100) == world, "another world's rank 0"
print(f"rank {rank} of {world_size}: port {address[1]}", flush=True)
