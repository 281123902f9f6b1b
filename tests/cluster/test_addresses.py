# SPDX-License-Identifier: Apache-2.0
"""MASTER_ADDR is one that the other nodes reach, on the network that was asked for."""
import os
import re

import pytest
from localcluster.harness import BUILD

RANK = os.path.join(BUILD, "tests/rank")
SHOW = "echo rank=$RANK master=$MASTER_ADDR node=$DP_NODE_ADDR nccl=$NCCL_SOCKET_IFNAME gloo=$GLOO_SOCKET_IFNAME jax=$JAX_COORDINATOR_ADDRESS"


def said(done):
    return [line[line.index("slurm-dp:"):] for line in done.stderr.splitlines() if "slurm-dp:" in line]


def shown(done):
    lines = [dict(word.split("=", 1) for word in line.split()) for line in done.stdout.splitlines() if line.startswith("rank=")]
    return sorted(lines, key=lambda line: int(line["rank"]))


def rendezvous_address(site, options):
    """Where node02's daemon has its connection to node01's."""
    step = site.popen(["srun", "-N2", "-n2", "--dp-world=auto", *options, RANK, "meet", "600"])
    assert all(" met" in step.stdout.readline() for _ in range(2))
    connected = site.node("node02", ["ss", "-Htnp"], check=True).stdout
    step.terminate()
    step.communicate(timeout=30)
    peers = [line.split()[4].rsplit(":", 1)[0].strip("[]") for line in connected.splitlines() if "dp-rendezvousd" in line]
    assert len(peers) == 1, connected
    return peers[0].removeprefix("::ffff:")


@pytest.fixture(scope="module")
def fast(cluster):
    """A second network beside the first: 10.99.0.N and fd99::N on each node, under the interface's name fast0 and the host name nodeNN-fast."""
    names = "".join(f"10.99.0.{number} {node}-fast\\n" for number, node in enumerate(cluster.nodes, 1))
    for number, node in enumerate(cluster.nodes, 1):
        cluster.node(node, "link=$(ip -o -4 route show default | awk '{print $5}'); link=${link:-$(ip -o link | awk -F': ' '/state UP/ {print $2; exit}')}; "
                     f"ip link add link ${{link%@*}} name fast0 type macvlan mode bridge && ip link set fast0 up && "
                     f"ip addr add 10.99.0.{number}/24 dev fast0 && ip -6 addr add fd99::{number}/64 dev fast0 nodad", check=True)
    cluster.node("head", f"printf '{names}' >> /etc/hosts", check=True)
    yield cluster
    for node in cluster.nodes:
        cluster.node(node, "ip link del fast0", check=True)
    cluster.node("head", "sed -i /-fast/d /etc/hosts 2>/dev/null || { grep -v -- -fast /etc/hosts > /tmp/hosts.new; cat /tmp/hosts.new > /etc/hosts; }", check=True)


@pytest.mark.parametrize("interface, network", [("fast0", "10.99.0."), ("10.99.0.0/16", "10.99.0."), ("fd99::/64", "fd99::")])
def test_the_chosen_interface_is_the_masters_and_ncclss_and_gloos(fast, interface, network):
    done = fast.run(["srun", "-N2", "-n4", "--ntasks-per-node=2", f"--dp-interface={interface}", "sh", "-c", f"{SHOW}; {RANK} world"], check=True)
    ranks = shown(done)
    ranks = [rank for rank in ranks if "nccl" in rank]
    assert [rank["node"] for rank in ranks] == [network + "1", network + "1", network + "2", network + "2"]
    assert {(rank["master"], rank["nccl"], rank["gloo"]) for rank in ranks} == {(network + "1", "=fast0", "fast0")}
    expected = f"[{network}1]:" if ":" in network else f"{network}1:"
    assert all(rank["jax"].startswith(expected) for rank in ranks)
    assert done.stdout.count("size=4") == 4


def test_without_a_choice_nothing_is_said_to_nccl_and_gloo(fast):
    done = fast.run(["srun", "-N2", "-n2", "--dp-world=auto", "sh", "-c", SHOW], check=True)
    assert {(rank["nccl"], rank["gloo"]) for rank in shown(done)} == {("", "")}


def test_the_table_shows_the_chosen_addresses(fast):
    done = fast.run(["srun", "-N2", "-n2", "--dp-interface=fast0", "--dp-dry-run", "true"], check=True)
    assert "MASTER_ADDR=10.99.0.1" in done.stdout and re.search(r"^1 .*10\.99\.0\.2 ", done.stdout, re.M)


def test_an_interface_that_is_down_on_one_node_is_said_to_be_down(fast):
    fast.node("node02", "ip link set fast0 down", check=True)
    refused = [fast.run(["srun", "-N2", "-n2", f"--dp-interface={wanted}", "--dp-timeout=20", "hostname"]) for wanted in ("fast0", "10.99.0.0/16")]
    fast.node("node02", "ip link set fast0 up && ip -6 addr add fd99::2/64 dev fast0 nodad", check=True)
    for done in refused:
        assert done.returncode != 0 and done.stdout == ""
        assert len(said(done)) == 1, done.stderr
        assert re.match(r"slurm-dp: node node02: --dp-interface=\S+: fast0 of node02 is down; bring it up there \(ip link set fast0 up\), or give a "
                        r"name or a network that every node of the step has \(node02 has .*eth0", said(done)[0]), done.stderr
    fast.assert_idle()


def test_where_one_node_refuses_no_rank_of_the_others_starts(another_cluster):
    """node02 has reached the broker long before it is known that node03 never will."""
    site = another_cluster(nodes=3)
    for number, node in enumerate(site.nodes[:2], 1):
        site.node(node, "ip link add link eth0 name most0 type macvlan mode bridge && ip link set most0 up && "
                        f"ip addr add 10.98.0.{number}/24 dev most0", check=True)
    done = site.run(["srun", "-N3", "-n6", "--ntasks-per-node=2", "--dp-interface=most0", "--dp-timeout=40", "sh", "-c",
                     "touch /home/alice/started-$SLURM_PROCID; echo started; sleep 60"])
    assert done.returncode != 0 and done.stdout == ""
    assert len(said(done)) == 1 and said(done)[0].startswith("slurm-dp: node node03: --dp-interface=most0: node03 has no such interface"), done.stderr
    assert site.run("ls /home/alice").stdout.count("started-") == 0
    site.assert_idle()


def test_loopback_is_refused_where_there_are_other_nodes(cluster):
    done = cluster.run(["srun", "-N2", "-n2", "--dp-interface=lo", "hostname"])
    assert done.returncode != 0 and done.stdout == ""
    assert all("the other nodes cannot reach" in line for line in said(done)) and 1 <= len(said(done)) <= 2
    done = cluster.run(["srun", "-N1", "-n2", "--dp-interface=lo", "sh", "-c", SHOW], check=True)
    assert {rank["master"] for rank in shown(done)} == {"127.0.0.1"}
    cluster.assert_idle()


def test_a_host_name_that_is_loopback_is_no_address(cluster):
    """Debian's installer maps a host's name to 127.0.1.1."""
    cluster.node("node01", "cp /etc/hosts /tmp/hosts.test && (grep -v node01 /tmp/hosts.test; echo 127.0.1.1 node01) > /tmp/hosts.own && "
                 "mount --bind /tmp/hosts.own /etc/hosts", check=True)
    try:
        done = cluster.run(["srun", "-N2", "-n2", "--dp-world=auto", "sh", "-c", SHOW])
    finally:
        cluster.node("node01", "umount /etc/hosts", check=True)
    assert done.returncode == 0, done.stderr
    ranks = shown(done)
    assert not ranks[0]["master"].startswith("127.") and ranks[0]["master"] == ranks[0]["node"]


def test_a_suffix_of_the_site_leads_to_the_fast_network(another_cluster):
    site = another_cluster(plugstack_args="host-suffix=-fast")
    for number, node in enumerate(site.nodes, 1):
        site.node(node, f"ip addr add 10.99.0.{number}/24 dev eth0", check=True)
    # Nothing resolves yet: the plain name serves, and jobs still run.
    done = site.run(["srun", "-N2", "-n2", "--dp-world=auto", "sh", "-c", SHOW], check=True)
    assert shown(done)[0]["master"] != "10.99.0.1" and shown(done)[0]["master"] == shown(done)[0]["node"]
    names = "".join(f"10.99.0.{number} {node}-fast\\n" for number, node in enumerate(site.nodes, 1))
    site.node("head", f"printf '{names}' >> /etc/hosts", check=True)
    done = site.run(["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-world=auto", "sh", "-c", SHOW], check=True)
    ranks = shown(done)
    assert {rank["master"] for rank in ranks} == {"10.99.0.1"} and {rank["nccl"] for rank in ranks} == {""}
    assert [rank["node"] for rank in ranks] == ["10.99.0.1"] * 2 + ["10.99.0.2"] * 2
    assert rendezvous_address(site, []) == "10.99.0.1"


def test_the_rendezvous_takes_the_chosen_network_where_the_host_name_leads_there(another_cluster):
    site = another_cluster()
    for number, node in enumerate(site.nodes, 1):
        site.node(node, f"ip addr add 10.99.0.{number}/24 dev eth0", check=True)
    first = rendezvous_address(site, ["--dp-interface=10.99.0.0/24"])
    assert first != "10.99.0.1"  # its host name does not lead there
    site.node("head", "printf '10.99.0.1 node01\n10.99.0.2 node02\n' >> /etc/hosts", check=True)
    assert rendezvous_address(site, ["--dp-interface=10.99.0.0/24"]) == "10.99.0.1"
    assert rendezvous_address(site, [f"--dp-interface={first}/24"]) == first


def test_an_asked_port_is_the_masters_and_a_taken_one_is_refused(cluster):
    done = cluster.run(["srun", "-N2", "-n2", "--dp-port=29517", "sh", "-c", "echo $MASTER_PORT"], check=True)
    assert done.stdout == "29517\n" * 2
    listen = "import socket, time; s = socket.socket(); s.bind(('', 29517)); s.listen(); print('up', flush=True); time.sleep(60)"
    holder = cluster.popen(["srun", "-N1", "-n1", "-w", "node01", "/usr/bin/python3", "-c", listen])
    assert holder.stdout.readline() == "up\n"
    done = cluster.run(["srun", "-N2", "-n2", "--dp-port=29517", "hostname"])
    holder.terminate()
    holder.communicate(timeout=30)
    assert done.returncode != 0 and done.stdout == ""
    assert said(done) == ["slurm-dp: node node01: port 29517 for MASTER_PORT is in use on this node (--dp-port); give another one, or "
                          "--dp-port=auto"], done.stderr
    cluster.assert_idle()


# ---- the ports that the site has Slurm reserve ----

@pytest.mark.parametrize("first, warnings", [(15000, 0), (41000, 1)])
def test_reserved_ports_are_used_unless_outgoing_connections_may_own_them(another_cluster, first, warnings):
    site = another_cluster(conf=(f"MpiParams=ports={first}-{first + 100}",))
    done = site.run(["srun", "-N2", "-n4", "--dp-world=auto", "sh", "-c", "echo $MASTER_PORT $SLURM_STEP_RESV_PORTS"], check=True)
    assert len(set(done.stdout.splitlines())) == 1, done.stdout
    port, reserved = done.stdout.split()[:2]
    low, high = map(int, reserved.split("-"))
    assert first <= low and high <= first + 100 and (low <= int(port) <= high) == (not warnings), done.stdout
    said = [line for line in done.stderr.splitlines() if "slurm-dp" in line]
    assert len(said) == warnings, done.stderr
    if said:
        assert f"the ports that Slurm reserved for this step, {reserved} (MpiParams in slurm.conf), lie in the ephemeral range of" in said[0]
        assert "32768-60999" in said[0] and "tell the administrator to reserve ports outside that range" in said[0]
