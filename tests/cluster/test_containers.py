# SPDX-License-Identifier: Apache-2.0
"""In a container a rank still finds its node's daemon: nothing of the host's files, users or processes is needed, only its network."""
import os

import pytest
from localcluster.harness import BUILD

RANK = os.path.join(BUILD, "tests/rank")
STATIC = os.path.join(BUILD, "tests/rank-static")
STEP = ["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-world=auto"]

# What is run in a container is told from what is not by what it sees.
FRESH = ["unshare", "--mount", "--map-root-user", "sh", "-ec",
         'mount -t tmpfs none /tmp; mount -t tmpfs none /run; test -z "$(ls /tmp /run | grep -v :)"; test "$(id -u)" = 0; exec "$@"', "sh"]
PROCESSES = ["unshare", "--mount", "--map-root-user", "--pid", "--fork", "--mount-proc", "sh", "-ec", "test $$ = 1; exec \"$@\"", "sh"]


def assert_world(cluster, container, rank):
    """A barrier, and the world's unique id in all ranks."""
    done = cluster.run([*STEP, *container, rank, "meet", "0"], check=True)
    assert sorted(done.stdout.splitlines()) == [f"rank {n} met" for n in range(4)]
    done = cluster.run([*STEP, *container, rank, "id", "world"], check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 8 and len(set(lines)) == 2 and all(len(line) == len("round=0 id=") + 2 * 128 for line in lines)
    assert "slurm-dp" not in done.stderr
    cluster.assert_nothing_left()


@pytest.mark.parametrize("container", [FRESH, PROCESSES], ids=["fresh-tmp-and-run", "own-processes"])
def test_in_namespaces_of_its_own(cluster, container):
    # From /home: the checkout itself may lie below /tmp, which is fresh there.
    cluster.run(["cp", STATIC, "/home/alice/rank-static"], check=True)
    assert_world(cluster, container, "/home/alice/rank-static")


def test_in_a_root_with_nothing_but_the_program(cluster):
    cluster.run(["sh", "-ec", f"mkdir /home/alice/jail; cp {STATIC} /home/alice/jail/rank"], check=True)
    try:
        jail = ["unshare", "--map-root-user", "chroot", "/home/alice/jail"]
        # No file but the one, so no libc, no /proc, no /etc/hosts and no shell.
        assert "No such file" in cluster.run(["srun", "-n1", *jail, "/bin/sh", "-c", "true"]).stderr
        assert_world(cluster, jail, "/rank")
    finally:
        cluster.run(["rm", "-r", "/home/alice/jail"])


def test_without_the_nodes_network_the_message_says_so(cluster):
    done = cluster.run([*STEP, "unshare", "--net", "--map-root-user", RANK, "world"])
    assert done.returncode != 0
    assert "cannot open the world: cannot reach this node's rendezvous daemon at @slurm-dp/" in done.stderr
    assert "does this process run on the step's node and in its network namespace?" in done.stderr
