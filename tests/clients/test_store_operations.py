# SPDX-License-Identifier: Apache-2.0
"""Whatever torch's TCPStore can do, it does the same on --dp-store=torch as on its own server, with the PyTorch that is installed."""
PYTHON = "/usr/bin/python3"


def test_every_operation_gives_what_torchs_own_server_gives(cluster, programs):
    step = "srun -N2 -n2 --ntasks-per-node=1 --dp-store="
    face = cluster.run(f"{step}torch {PYTHON} {programs}/store_operations.py face", timeout=90, check=True)
    own = cluster.run(f"{step}hold {PYTHON} {programs}/store_operations.py own 29877", timeout=90, check=True)
    assert sorted(face.stdout.splitlines()) == sorted(own.stdout.splitlines())
    assert len(face.stdout.splitlines()) >= 34 and "rank 1: the other's key: b'value" in face.stdout
