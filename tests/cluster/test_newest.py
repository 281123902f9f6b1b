# SPDX-License-Identifier: Apache-2.0
"""What only the newest Slurm has, and what touches ranks of it."""
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
