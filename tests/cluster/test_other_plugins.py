# SPDX-License-Identifier: Apache-2.0
"""Beside another SPANK plugin, as NVIDIA's pyxis is one: it fails on a node, or brings along a world of its own."""
import contextlib
import os
import shlex

from localcluster.harness import BUILD

RANK = os.path.join(BUILD, "tests/rank")
OTHER = os.path.join(BUILD, "tests/other-plugin.so")
STEP = ["srun", "-N2", "-n4", "--ntasks-per-node=2"]


@contextlib.contextmanager
def behind(cluster, line):
    """Our line in plugstack.conf stands behind that one."""
    conf = "/etc/slurm/plugstack.conf"
    ours = cluster.node("head", ["cat", conf], check=True).stdout

    def write(text):
        cluster.node("head", f"printf %s {shlex.quote(text)} >{conf}", check=True)

    write(f"{line}\n{ours}")
    try:
        yield
    finally:
        write(ours)


def test_a_plugin_that_fails_on_one_node_ends_the_step_at_once(cluster):
    with behind(cluster, f"required {OTHER} fails-on=node02"):
        done = cluster.run([*STEP, "--dp-timeout=50", RANK, "meet", "0"], timeout=20)
    assert done.returncode != 0
    assert "other: there is no container here" in done.stderr
    assert done.stderr.count("slurm-dp:") == 1 and "node node02: its tasks ended before their rendezvous; ending the step" in done.stderr
    cluster.assert_idle()
    cluster.assert_nothing_left()


def test_a_world_that_a_plugin_brings_along_is_not_the_users(cluster):
    with behind(cluster, f"optional {OTHER} MASTER_ADDR=elsewhere MASTER_PORT=61007 RANK=77 OMP_NUM_THREADS=5"):
        done = cluster.run([*STEP, "--dp-store=torch", "sh", "-c", "echo $RANK $MASTER_ADDR:$MASTER_PORT $OMP_NUM_THREADS $TORCHELASTIC_USE_AGENT_STORE "
                            "$DP_RANK $DP_MASTER_ADDR:$DP_MASTER_PORT"], check=True)
    assert done.stderr == ""
    for line in done.stdout.splitlines():
        rank, master, threads, served, own_rank, own_master = line.split()
        assert (rank, master, threads, served) == (own_rank, own_master, "5", "True")
    cluster.assert_nothing_left()


def test_of_two_lines_of_ours_the_first_holds(cluster):
    """An include and a line with settings, say: Slurm loads the plugin once and calls it twice."""
    ours = cluster.node("head", "cat /etc/slurm/plugstack.conf", check=True).stdout.strip()
    with behind(cluster, f"{ours} timeout=77"):
        done = cluster.run([*STEP, "--dp-world=auto", "sh", "-c", f"echo timeout=$DP_TIMEOUT; exec {RANK} meet 0"], check=True)
        assert done.stdout.count("timeout=77") == done.stdout.count("met") == 4 and done.stderr == ""
        batch = cluster.run(["salloc", "-Q", "-n2", "--dp-timeout=5", "srun", "sh", "-c", "echo $DP_TIMEOUT"], check=True)
        assert (batch.stdout, batch.stderr) == ("5\n5\n", "")
    cluster.assert_nothing_left()
