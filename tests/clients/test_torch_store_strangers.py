# SPDX-License-Identifier: Apache-2.0
"""PyTorch's store has no authentication, and PyTorch unpickles what is in it: who gets a byte from the broker, and who does not."""
import os
import re
import signal
import subprocess
import time
import warnings

import pytest
from localcluster.names import USERS
from localcluster.torch_client import CLIENT, REFUSED, SERVED

PYTHON = "/usr/bin/python3"


@pytest.fixture
def store(cluster):
    """A world of alice's on node01 and node02 with the broker's store; (step, address, port)."""
    wait = "test $RANK != 0 || echo $MASTER_ADDR $MASTER_PORT; exec sleep 600"
    step = cluster.popen(["srun", "-N2", "-n2", "-w", "node01,node02", "--overlap", "--dp-store=torch", "sh", "-c", wait])
    address, port = step.stdout.readline().split()
    yield step, address, port
    if step.poll() is None:
        step.send_signal(signal.SIGKILL)
    step.communicate(timeout=30)


def ask(cluster, where, user, address, port):
    """On that node, as that user, in a step of his own."""
    return cluster.run(["srun", "-w", where, "-n1", "--overlap", PYTHON, "-c", CLIENT, address, port], user=user, timeout=60,
                       check=True).stdout.strip()


def end_and_read(step):
    step.send_signal(signal.SIGTERM)
    return step.communicate(timeout=30)[1]


@pytest.mark.parametrize("node", ["node01", "node02"])
def test_the_steps_user_on_its_nodes_is_served(cluster, store, node):
    step, address, port = store
    assert ask(cluster, node, "alice", address, port) == SERVED, end_and_read(step)  # the broker says why not


@pytest.mark.parametrize("node", ["node01", "node02"])
def test_another_user_on_the_steps_nodes_gets_nothing(cluster, store, node):
    step, address, port = store
    assert ask(cluster, node, "bob", address, port) == REFUSED
    if node == "node01":
        assert ask(cluster, node, "bob", "127.0.0.1", port) == REFUSED
        assert ask(cluster, node, "alice", "127.0.0.1", port) == SERVED  # loopback is the broker's own node
    err = end_and_read(step)
    assert re.search(r"slurm-dp: closed a connection from \S+ to PyTorch's store \(MASTER_PORT\): it belongs to user id 1002, and this step "
                     r"to user id 1001", err), err


def test_root_gets_nothing_either(cluster, store):
    _, address, port = store
    done = cluster.node("node02", [PYTHON, "-c", CLIENT, address, port], check=True)
    assert done.stdout.strip() == REFUSED


def test_the_same_user_elsewhere_gets_nothing(cluster, store):
    step, address, port = store
    assert ask(cluster, "node03", "alice", address, port) == REFUSED
    done = cluster.run([PYTHON, "-c", CLIENT, address, port], check=True)  # on the head
    assert done.stdout.strip() == REFUSED
    assert "no node of this step has that address" in end_and_read(step)


NETWORK = """
ip link add inner netns {pid} type veth peer name outer
ip addr add 192.168.77.1/24 dev outer && ip link set outer up && sysctl -qw net.ipv4.ip_forward=1
nft 'table ip dp_test {{ chain out {{ type nat hook postrouting priority 100; ip saddr 192.168.77.0/24 masquerade; }}; }}'
nsenter --net=/proc/{pid}/ns/net sh -ec 'ip addr add 192.168.77.2/24 dev inner; ip link set inner up; ip route add default via 192.168.77.1'
"""


def test_the_same_user_in_a_network_of_his_own_gets_nothing(cluster, store):
    """As in a container: he speaks with the node's address, but its kernel does not know his socket."""
    step, address, port = store
    node = f"--net=/proc/{cluster.processes(['node02'], everyone=True)[0]['pid']}/ns/net"
    alice = ["setpriv", f"--reuid={USERS['alice']}", f"--regid={USERS['alice']}", "--clear-groups"]
    inside = subprocess.Popen(["nsenter", node, "unshare", "--net", "sleep", "600"])
    try:
        # It begins in this process's network, enters the node's, and then has its own.
        others = {os.readlink("/proc/self/ns/net"), os.readlink(node[len("--net="):])}
        end = time.monotonic() + 10
        while os.readlink(f"/proc/{inside.pid}/ns/net") in others:
            assert time.monotonic() < end
            time.sleep(0.02)
        subprocess.run(["nsenter", node, "sh", "-ec", NETWORK.format(pid=inside.pid)], check=True)
        done = subprocess.run(["nsenter", f"--net=/proc/{inside.pid}/ns/net", *alice, PYTHON, "-c", CLIENT, address, port],
                              capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.strip() == REFUSED
        # From the node itself he is served.
        on_the_node = ["nsenter", node, *alice, PYTHON, "-c", CLIENT, address, port]
        tries = [subprocess.run(on_the_node, capture_output=True, text=True, timeout=60, check=True)]
        if tries[0].stdout.strip() != SERVED:  # seen twice in some hundred runs, on busy machines; see below
            tries.append(subprocess.run(on_the_node, capture_output=True, text=True, timeout=60, check=True))
    finally:
        subprocess.run(["nsenter", node, "sh", "-c", "nft delete table ip dp_test; ip link del outer; sysctl -qw net.ipv4.ip_forward=0"], check=False)
        inside.kill()
        inside.wait()
    err = end_and_read(step)
    said = [(done.stdout, done.stderr) for done in tries]
    assert tries[-1].stdout.strip() == SERVED, (said, err)  # the broker says why not
    refused = re.findall(r"slurm-dp: closed a connection from \S+ to PyTorch's store \(MASTER_PORT\): (.*)", err)
    assert refused, err
    if len(tries) > 1:
        # A kernel may reset a connection by mistake: where data comes on one CPU while another replaces the request by the
        # connection in its table, neither is found. Then nobody has it open any more; any other reason is ours.
        assert refused[1:] == ["no process of its node has it open any more"], (said, err)
        warnings.warn(f"served at the second try only: {said} {err}")


def test_a_node_that_does_not_answer_vouches_for_nobody(cluster, store):
    """Its relay is stopped: the connection is closed after the deadline, and those from elsewhere are served meanwhile."""
    step, address, port = store
    relay = [p["pid"] for p in cluster.processes(["node02"]) if p["command"].startswith("dp-rendezvousd")]
    assert len(relay) == 1
    os.kill(relay[0], signal.SIGSTOP)
    try:
        began = time.monotonic()
        late = cluster.popen(["srun", "-w", "node02", "-n1", "--overlap", PYTHON, "-c", CLIENT, address, port])
        assert ask(cluster, "node01", "alice", address, port) == SERVED
        out, err = late.communicate(timeout=60)
        assert out.strip() == REFUSED, err
        assert 4 < time.monotonic() - began < 15
    finally:
        os.kill(relay[0], signal.SIGCONT)
    assert ask(cluster, "node02", "alice", address, port) == SERVED
    assert "did not say within 5 s to whom it belongs" in end_and_read(step)
