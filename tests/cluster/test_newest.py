# SPDX-License-Identifier: Apache-2.0
"""What only the newest Slurm has, and what touches ranks of it."""
import re

import pytest
from conftest import cluster_name
from localcluster.harness import TestCluster

pytestmark = pytest.mark.since("26.05")
STEP = "srun --mpi=none --async --parsable -N2 --ntasks-per-node=2"
WAIT = "while squeue --noheader --steps | grep -q '^ *'$SLURM_JOB_ID'[.][0-9]'; do sleep 0.2; done"


@pytest.fixture(scope="module")
def site():
    """Steps that srun only submits need a step manager in the job."""
    with TestCluster(cluster_name("-newest"), conf=("SlurmctldParameters=enable_stepmgr", "PrologFlags=contain")) as up:
        yield up


def run(site, script):
    """A batch job's output."""
    done = site.run(["sbatch", "--wait", "-N2", "--ntasks-per-node=2", "--output=/home/alice/job.out", "--wrap", script], timeout=90, cwd="/home/alice")
    return done.returncode, site.run(["cat", "/home/alice/job.out"], check=True).stdout


def test_a_step_that_srun_only_submits_is_a_world(site):
    code, output = run(site, f"""{STEP} --output=ranks.out --dp-world=auto sh -c 'echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR; sleep 1'
        sleep 1; {WAIT}; cat ranks.out""")
    lines = sorted(line for line in output.splitlines() if line.startswith("rank"))
    assert code == 0 and [line.split(" at ")[0] for line in lines] == [f"rank {rank} of 4" for rank in range(4)], output
    assert len({line.split(" at ")[1] for line in lines}) == 1
    site.assert_nothing_left()


def test_its_dead_rank_is_named_in_its_output_and_ends_it(site):
    code, output = run(site, f"""{STEP} --output=ranks.out --dp-world=auto sh -c '[ $RANK = 2 ] && kill -9 $$; exec sleep 60'
        sleep 1; {WAIT}; cat ranks.out""")
    # Each node writes it to the file that it has opened; here both have opened the same.
    assert code == 0 and 1 <= output.count("slurm-dp: rank 2 on node02 was killed by signal 9 (SIGKILL); ending the step") <= 2, output
    site.assert_nothing_left()


def test_a_srun_of_the_same_job_that_waits_works_beside_it(site):
    code, output = run(site, f"{STEP} --overlap --output=/dev/null --dp-world=auto sleep 5; "
                             "srun --mpi=none --overlap -N2 -n4 --dp-world=auto sh -c 'echo sync $RANK'")
    assert code == 0 and sorted(line for line in output.splitlines() if line.startswith("sync")) == [f"sync {rank}" for rank in range(4)], output


# ---- srun orders tasks by the switches ----

def test_ranks_and_their_nodes_follow_the_order_of_the_switches(another_cluster):
    """Without --distribution, tasks are laid out switch by switch, so that the nodes' order is not that of their names."""
    site = another_cluster(nodes=4, conf=("TopologyPlugin=topology/tree", "SwitchName=near Nodes=node02,node04", "SwitchName=far Nodes=node01,node03",
                                          "SwitchName=core Switches=near,far"))
    show = "echo $RANK $SLURM_PROCID $NODE_RANK $DP_NODE_RANK $(hostname) $DP_NODE_ADDR $MASTER_ADDR $SLURM_TOPOLOGY_ADDR"
    done = site.run(["srun", "-N4", "--ntasks-per-node=2", "--dp-world=auto", "sh", "-c", show], check=True)
    tasks = sorted(line.split() for line in done.stdout.splitlines())
    assert [task[:2] for task in tasks] == [[str(rank)] * 2 for rank in range(8)], done.stdout
    assert [task[2:4] for task in tasks] == [[str(rank // 2)] * 2 for rank in range(8)], done.stdout
    hosts = [task[4] for task in tasks]
    assert {frozenset(hosts[:4]), frozenset(hosts[4:])} == {frozenset({"node02", "node04"}), frozenset({"node01", "node03"})}, done.stdout
    assert hosts != sorted(hosts) and {task[6] for task in tasks} == {tasks[0][5]}, done.stdout
    for task in tasks:
        assert re.fullmatch(rf"core[.](near|far)[.]{task[4]}", task[7]), done.stdout
    site.assert_nothing_left()


# ---- sbatch --requeue=expedite: a job whose script failed and whose node's epilog found something starts again, before all others ----

EPILOG = """#!/bin/sh
[ "$(hostname)" != node02 ] || ! rm /home/shared/sick 2>/dev/null
"""
TWICE = """echo life $SLURM_RESTART_COUNT
srun -N2 -n4 --dp-world=auto sh -c 'echo rank $RANK port $MASTER_PORT; [ ! -e /home/shared/sick ] || [ $RANK != 3 ] || kill -9 $$; sleep 1'
"""


def test_a_job_that_expedites_its_requeue_starts_its_world_again(another_cluster):
    site = another_cluster(conf=("SlurmctldParameters=enable_expedited_requeue", "Epilog=/home/shared/epilog"))
    site.run(["sh", "-c", f"cd /home/shared && printf %s '{EPILOG}' > epilog && chmod 755 epilog && touch sick && chmod 666 sick"], user="root", check=True)
    submitted = site.run(["sbatch", "--parsable", "--requeue=expedite", "-N2", "-n4", "--ntasks-per-node=2", "--open-mode=append",
                          "--output=/home/alice/twice.out", "--wrap", TWICE], cwd="/home/alice", check=True).stdout.strip()
    wait = f"""for i in $(seq 150); do
        scontrol update nodename=node02 state=resume 2>/dev/null
        squeue --noheader --jobs={submitted} 2>/dev/null | grep -q . || break
        sleep 0.2
    done; cat /home/alice/twice.out"""
    output = site.run(["sh", "-c", wait], user="root", timeout=60, check=True).stdout
    assert output.count("life 1") == 1, output
    first, second = output.split("life 1")
    assert "slurm-dp: rank 3 on node02 was killed by signal 9 (SIGKILL); ending the step" in first, output
    assert sorted(re.findall(r"rank \d", second)) == [f"rank {rank}" for rank in range(4)] and "slurm-dp" not in second, output
    assert len(set(re.findall(r"port \d+", second))) == 1
    site.assert_nothing_left()
