# SPDX-License-Identifier: Apache-2.0
"""What a framework does with MASTER_PORT, without the framework: rank 0 listens there, all connect and find their own world's rank 0.

Others may knock, too: a relay of another step that still looks for its broker on a port that both steps' lists have. As a framework's server does, rank 0
serves them none of what is its ranks'."""
import os
import selectors
import socket
import sys
import time

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
hello = b"a rank"
answer = f"step {os.environ['SLURM_STEP_ID']}".encode()


def serve(server):
    """Until all ranks have been here."""
    waiting = selectors.DefaultSelector()
    waiting.register(server, selectors.EVENT_READ)
    served = 0
    while served < world_size:
        for key, _ in waiting.select():
            if key.fileobj is server:
                waiting.register(server.accept()[0], selectors.EVENT_READ)
                continue
            visitor = key.fileobj
            try:
                said = visitor.recv(100)
            except ConnectionResetError:
                said = b""
            if said == hello:
                served += 1
                visitor.sendall(answer)
            else:
                print(f"on port {address[1]} a stranger said {said!r}", file=sys.stderr, flush=True)
            waiting.unregister(visitor)
            visitor.close()


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
client.sendall(hello)
if rank == 0:
    serve(server)
assert client.recv(100) == answer, "another world's rank 0"
print(f"rank {rank} of {world_size}: port {address[1]}", flush=True)
