# SPDX-License-Identifier: Apache-2.0
"""A client of PyTorch's store in a few lines of Python, for where PyTorch itself is not needed."""

# Sets a key and asks for it, as PyTorch 1.13 would. argv: address, port. Prints what came back.
CLIENT = r"""
import socket, struct, sys
def text(b): return struct.pack("<Q", len(b)) + b
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20)
got = b""
try:
    s.sendall(b"\0" + text(b"key") + text(b"value") + b"\2" + text(b"key"))
    while len(got) < 13:
        more = s.recv(4096)
        if not more:
            break
        got += more
except ConnectionError as error:
    print(error, file=sys.stderr)
print("got", got.hex() or "nothing")
"""
SERVED = "got " + (5).to_bytes(8, "little").hex() + b"value".hex()
REFUSED = "got nothing"
