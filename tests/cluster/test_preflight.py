# SPDX-License-Identifier: Apache-2.0
"""--dp-preflight: nodes are examined before ranks start. Who is not fit is named and does not take part; who is hears nothing of it."""
import os
import re

import pytest
from conftest import cluster_name, planted_on
from localcluster.harness import BUILD, TestCluster

QUICK, FULL = "--dp-preflight=quick", "--dp-preflight=full"
RESTART = ["--dp-on-failure=restart", "--no-kill"]
SPARE = [*RESTART, "--dp-spares=1"]
RANKS = ["sh", "-c", "echo rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME"]
FULL_TMP = ("mount -t tmpfs -o size=64k,mode=1777 none /tmp && head -c 1M /dev/zero > /tmp/x; true", "umount /tmp")
TRIES = 3  # other tests use these cores, too: a link may be slow for as long as it is measured
NOT_FIT = "slurm-dp: 1 node is not fit for this step (--dp-preflight): "


@pytest.fixture(scope="module")
def four():
    with TestCluster(cluster_name("-four"), nodes=4) as up:
        yield up


def start(cluster, *options, nodes=4, tasks=1, program=RANKS):
    return cluster.run(["srun", f"-N{nodes}", f"--ntasks-per-node={tasks}", "-m", "block", *options, *program], cwd="/home/alice", timeout=120)


def start_full(cluster, *options):
    """The nodes are one machine, on which other tests run: where one seems slower than the others, again."""
    for _ in range(TRIES):
        done = start(cluster, FULL, *options)
        if not re.search(r"(memory|cores): node\d+ has ", done.stderr):
            break
    return done


def ranks_of(done):
    return sorted(done.stdout.splitlines())


@pytest.mark.parametrize("tasks", [1, 2])
def test_fit_nodes_hear_nothing_of_it(four, tasks):
    done = start(four, QUICK, tasks=tasks)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert len(ranks_of(done)) == 4 * tasks
    four.assert_nothing_left()


def test_a_step_with_an_unfit_node_is_refused_with_what_to_exclude(four):
    with planted_on(four, "node03", *FULL_TMP):
        refused = start(four, QUICK, program=["touch", "/home/alice/launched"])
        dry = start(four, QUICK, "--dp-dry-run")
        exclude = re.search(r"--exclude=\S+(?=;)", refused.stderr)[0]
        without = start(four, QUICK, exclude, nodes=3)
        anyway = start(four, "--dp-preflight=off", "--dp-world=auto")
    line = NOT_FIT + "node03: temporary files: /tmp: full; start without it: --exclude=node03; to start all the same: --dp-preflight=off"
    for done in (refused, dry):
        assert done.returncode != 0
        assert [said for said in done.stderr.splitlines() if said.startswith("slurm-dp")] == [line], done.stderr
    assert four.run(["test", "-e", "/home/alice/launched"]).returncode == 1
    assert without.returncode == 0 and len(ranks_of(without)) == 3, without.stderr
    assert anyway.returncode == 0 and len(ranks_of(anyway)) == 4, anyway.stderr
    four.assert_idle()
    four.assert_nothing_left()


def test_a_spare_takes_the_ranks_of_an_unfit_node(four):
    with planted_on(four, "node02", *FULL_TMP):
        done = start(four, QUICK, *SPARE, tasks=2)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == ["slurm-dp: not fit for this step (--dp-preflight): node02: temporary files: /tmp: full; it begins with spare node node04"]
    assert ranks_of(done) == [f"rank {rank} of 6 on {node}" for rank, node in enumerate(["node01", "node01", "node04", "node04", "node03", "node03"])]
    four.assert_nothing_left()


def test_the_world_begins_smaller_if_it_may(four):
    with planted_on(four, "node04", *FULL_TMP):
        done = start(four, QUICK, *RESTART, "--dp-min-nodes=2")
    assert done.returncode == 0, done.stderr
    assert "it begins with 3 ranks on 3 nodes" in done.stderr
    assert ranks_of(done) == [f"rank {rank} of 3 on node0{rank + 1}" for rank in range(3)]
    four.assert_nothing_left()


def test_a_node_with_another_mtu_is_named(four):
    with planted_on(four, "node03", "ip link set eth0 mtu 1280", "ip link set eth0 mtu 1500"):
        done = start(four, QUICK)
    assert done.returncode != 0 and NOT_FIT + "node03: MTU: node03 has 1280; 3 others have 1500; start without it: --exclude=node03" in done.stderr, done.stderr


def test_a_full_one_measures_the_links(four):
    for _ in range(TRIES):
        done = start_full(four)
        if "links: node" not in done.stderr:
            break
    assert done.returncode == 0 and len(ranks_of(done)) == 4, done.stderr
    measured, links = done.stderr.splitlines()
    assert re.fullmatch(r"slurm-dp: --dp-preflight: memory: [\d.]+ to [\d.]+ GB/s; cores: [\d.]+ to [\d.]+ Gflop/s", measured), done.stderr
    assert re.match(r"slurm-dp: --dp-preflight: links: 6 pairs between 4 nodes, [\d.]+ [MG]bit/s to ", links), done.stderr
    four.assert_nothing_left()


def test_a_node_behind_a_slow_link_is_named(four):
    slow = "tc qdisc add dev eth0 root tbf rate 1mbit burst 16kb latency 400ms"
    with planted_on(four, "node02", slow, "tc qdisc del dev eth0 root"):
        refused = start_full(four)
        spared = start_full(four, *SPARE)
    assert refused.returncode != 0 and NOT_FIT + "node02: links: node02 with all others: " in refused.stderr, refused.stderr
    assert "--exclude=node02" in refused.stderr
    assert spared.returncode == 0 and "it begins with spare node node04" in spared.stderr, spared.stderr
    assert "rank 1 of 3 on node04" in spared.stdout
    four.assert_nothing_left()


def test_two_nodes_that_cannot_reach_each_other_are_named(four):
    four.cut("node03", "node04")
    try:
        done = start_full(four)
    finally:
        four.heal("node03")
    assert done.returncode != 0
    assert "the nodes of this step do not fit together (--dp-preflight): links: node03 with node04: no connection to " in done.stderr, done.stderr


def test_a_site_may_ask_for_it(four):
    """Inherited, as from plugstack.conf; an sbatch hands it to its sruns."""
    script = f"#!/bin/sh\nsrun {' '.join(RANKS[:2])} '{RANKS[2]}'\n"
    with planted_on(four, "node03", *FULL_TMP):
        done = four.run(["sbatch", "--wait", "-N4", "--ntasks-per-node=1", QUICK, "-o", "/home/alice/preflight.out"], cwd="/home/alice", input=script, timeout=120)
    assert done.returncode != 0
    assert NOT_FIT + "node03: " in four.run(["cat", "/home/alice/preflight.out"]).stdout


def test_one_machine_is_examined_alone(cluster):
    launch = [os.path.join(BUILD, "bin/dpctl"), "launch", "-n", "2", QUICK.replace("--dp-", "--"), "--", "sh", "-c", "echo rank $RANK"]
    done = cluster.run(launch, cwd="/home/alice", timeout=60)
    assert done.returncode == 0 and sorted(done.stdout.splitlines()) == ["rank 0", "rank 1"], done.stderr
