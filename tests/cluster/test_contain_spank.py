# SPDX-License-Identifier: Apache-2.0
"""SlurmdParameters=contain_spank: slurmstepd runs user_init and other call-backs in processes of their own, and what they open is lost
to it (spank/shelf.hpp). On 22.05, which does not know the setting, these tests would show nothing."""
import os
import re
import signal
import time

import pytest
from conftest import cluster_name
from localcluster.harness import BUILD, TestCluster
from localcluster.torch_client import CLIENT, SERVED

pytestmark = [pytest.mark.since("24.05"), pytest.mark.essential]
RANK = os.path.join(BUILD, "tests/rank")
CONF = ["SlurmdParameters=config_overrides,contain_spank"]


@pytest.fixture(scope="module")
def contained():
    with TestCluster(cluster_name("-contained"), conf=CONF) as up:
        yield up


def test_the_ranks_meet(contained):
    for ranks in (4, 8):
        done = contained.run(["srun", "-N2", f"-n{ranks}", "--dp-world=auto", RANK, "meet", "0"], check=True)
        assert done.stdout.count(" met\n") == ranks
        assert done.stderr == ""
    contained.assert_nothing_left()
    contained.assert_idle()


def test_pytorchs_store_is_served(contained):
    client = f"/usr/bin/python3 -c '{CLIENT}' $MASTER_ADDR $MASTER_PORT"
    done = contained.run(["srun", "-N2", "-n2", "--dp-store=torch", "sh", "-c", client])
    assert (done.returncode, done.stdout.splitlines()) == (0, [SERVED] * 2), done.stderr


def test_a_killed_rank_is_named_and_ends_the_step(contained):
    done = contained.run(["srun", "-N2", "-n4", "--dp-world=auto", "sh", "-c", f"[ $RANK != 3 ] || kill -9 $$; exec {RANK} meet 600"], timeout=30)
    assert done.returncode != 0
    named = [line for line in done.stderr.splitlines() if line.startswith("slurm-dp:")]
    assert named == ["slurm-dp: rank 3 on node02 was killed by signal 9 (SIGKILL); ending the step"], done.stderr
    contained.assert_nothing_left()


def test_a_dead_rank_begins_the_next_generation(contained):
    script = "echo life $DP_GENERATION; [ $DP_GENERATION = 1 ] && exit 0; [ $RANK = 3 ] && { sleep 0.2; kill -9 $$; }; sleep 600"
    done = contained.run(["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-on-failure=restart", "sh", "-c", script], timeout=30)
    assert done.returncode == 0 and sorted(done.stdout.split()) == sorted(["life", "0"] * 4 + ["life", "1"] * 4), done.stderr
    assert re.search(r"slurm-dp: rank 3 on node02 was killed by signal 9 \(SIGKILL\); generation 1 began \d+\.\d\d s later", done.stderr), done.stderr
    contained.assert_nothing_left()


def test_a_killed_daemon_ends_the_ranks_of_the_other_node(contained):
    step = contained.popen(["srun", "-N2", "-n4", "--dp-world=auto", RANK, "meet", "600"])
    assert all(" met" in step.stdout.readline() for _ in range(4))
    daemons = [p for p in contained.processes(["node01"]) if "dp-rendezvousd" in p["command"]]
    assert len(daemons) == 1
    os.kill(daemons[0]["pid"], signal.SIGKILL)
    end = time.monotonic() + 3
    while [p for p in contained.processes(["node02"]) if p["command"].startswith(RANK)]:
        assert time.monotonic() < end, "node02's ranks have not ended"
        time.sleep(0.05)
    contained.run(["scancel", "-u", "alice"])
    step.communicate(timeout=60)
    assert step.returncode != 0
    contained.assert_nothing_left()
    contained.assert_idle()


def test_a_missing_daemon_is_one_line_and_drains_nothing(another_cluster):
    other = another_cluster(conf=CONF, plugstack_args="daemon=/nonexistent/dp-rendezvousd")
    done = other.run(["srun", "-N1", "-n2", "--dp-world=auto", RANK, "meet", "0"], timeout=30)
    assert done.returncode != 0
    assert sum("/nonexistent/dp-rendezvousd" in line for line in done.stderr.splitlines()) == 1, done.stderr
    other.assert_idle()


def test_a_program_has_no_descriptor_of_ours(contained):
    """But the file that DP_HOSTFILE names."""
    count = ["sh", "-c", "ls -l /proc/self/fd | grep -v slurm-dp-hostfile | wc -l"]
    with_dp = contained.run(["srun", "-N1", "-n1", "--dp-world=auto", *count], check=True)
    without = contained.run(["srun", "-N1", "-n1", *count], check=True)
    assert with_dp.stdout == without.stdout


def test_a_step_takes_no_second_longer(contained):
    """Its daemon is gone before Slurm looks (spank/node.cpp)."""
    contained.assert_no_second_longer(["srun", "-N2", "-n4", "--dp-world=auto", RANK, "meet", "0"], ["srun", "-N2", "-n4", "true"], pairs=5)


def test_a_killed_slurmstepd_takes_its_ranks_along(contained):
    """The last one: Slurm takes half a minute to see that slurmstepd is gone."""
    step = contained.popen(["srun", "-N2", "-n4", "--dp-world=auto", RANK, "meet", "600"])
    assert all(" met" in step.stdout.readline() for _ in range(4))
    stepds = [p for p in contained.processes(["node02"]) if p["command"].startswith("slurmstepd") and ".0" in p["command"]]
    assert stepds
    for p in stepds:
        os.kill(p["pid"], signal.SIGKILL)
    end = time.monotonic() + 3
    while [p for p in contained.processes() if p["command"].startswith(RANK)]:
        assert time.monotonic() < end, "the ranks have not ended"
        time.sleep(0.05)
    step.kill()
    step.communicate(timeout=10)
