# SPDX-License-Identifier: Apache-2.0
"""An MPI program runs beside --dp-world as it runs without: its own variables are Slurm's and are not touched."""
import os
import re
import shutil
import subprocess

import pytest

HERE = os.path.dirname(os.path.realpath(__file__))
LAYOUT = ["-N2", "-n4", "--ntasks-per-node=2"]


# UCX writes to stdout what went wrong between two ranks of which one has left without MPI_Finalize (below).
QUIET = {"UCX_LOG_LEVEL": "fatal"}


def require(cluster, mpi):
    done = cluster.run(["srun", "-n1", f"--mpi={mpi}", "true"])
    if done.returncode != 0 and "MPI" in done.stderr:
        pytest.skip(f"without any option of ours: {done.stderr.splitlines()[0]}")


def run(cluster, command):
    """Slurm 22.05's own plugin for PMIx now and then ends a step because it cannot reach its fellow on the other node ("exceeded the retry
    limit"), also where no --dp option is given: that step gets a second try."""
    done = cluster.run(command, env=QUIET)
    if done.returncode != 0 and "pmixp_" in done.stderr:
        print(done.stderr)
        done = cluster.run(command, env=QUIET)
    assert done.returncode == 0, done.stderr
    return done


# MPICH 4.0 on UCX hangs in MPI_Finalize in one of ten steps, also where no --dp option is given: its program leaves without.
@pytest.mark.parametrize("mpi, compiler", [("pmix", ["mpicc.openmpi"]), ("pmi2", ["mpicc.mpich", "-DWITHOUT_FINALIZE"])])
def test_an_mpi_program_runs_as_before(cluster, tmp_path, mpi, compiler):
    require(cluster, mpi)
    program = str(tmp_path / "mpi_hello")
    subprocess.run([*compiler, "-o", program, os.path.join(HERE, "programs/mpi_hello.c")], check=True)
    with open(program, "rb") as binary:
        there = cluster.host_path(f"/home/alice/mpi_hello_{mpi}")
        with open(there, "wb") as copy:
            copy.write(binary.read())
    os.chmod(there, 0o755)
    command = ["srun", *LAYOUT, f"--mpi={mpi}"]
    expected = [f"mpi {rank} of 4, sum 6" for rank in range(4)]
    for options in ([], ["--dp-world=auto"]):
        done = run(cluster, [*command, *options, f"/home/alice/mpi_hello_{mpi}"])
        assert sorted(done.stdout.splitlines()) == expected
        assert done.stderr == ""
    # MPI's rank and ours are the same task's.
    done = run(cluster, [*command, "--dp-world=auto", "sh", "-c", f"echo rank=$RANK; exec /home/alice/mpi_hello_{mpi}"])
    assert sorted(done.stdout.splitlines()) == expected + [f"rank={rank}" for rank in range(4)]


@pytest.mark.parametrize("mpi", ["pmix", "pmi2"])
def test_mpis_variables_are_slurms_own(cluster, mpi):
    require(cluster, mpi)

    def names(*options):
        text = run(cluster, ["srun", *LAYOUT, f"--mpi={mpi}", *options, "env"]).stdout
        return sorted(re.findall("^((?:PMI|PMIX|OMPI|MPI|MV2|I_MPI)[A-Z0-9_]*)=", text, re.M))

    assert names() == names("--dp-world=auto") != []


@pytest.fixture(scope="module")
def trainer(cluster, tmp_path_factory):
    """Of OpenMPI, which spins while it waits."""
    require(cluster, "pmix")
    program = str(tmp_path_factory.mktemp("mpi") / "mpi_train")
    subprocess.run(["mpicc.openmpi", "-O2", "-o", program, os.path.join(HERE, "programs/mpi_train.c")], check=True)
    there = cluster.host_path("/home/alice/mpi_train")
    shutil.copy(program, there)
    os.chmod(there, 0o755)
    return ["srun", *LAYOUT, "-m", "block", "--mpi=pmix", "--dp-hang-timeout=2", "/home/alice/mpi_train"]


def test_the_rank_that_hangs_is_named_though_the_others_spin(cluster, trainer):
    done = cluster.run([*trainer, "sleep", "1000", "1000"], env=QUIET, timeout=90)
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if "no progress" in line]
    assert len(lines) == 1 and re.match(r"slurm-dp: no progress for \d+ s \(--dp-hang-timeout\): rank 3 on node02 is in .*; "
                                        r"ranks 0-2 on node\[01-02\] wait in P?MPI_Allreduce ", lines[0]), done.stderr


@pytest.mark.parametrize("computing", [5000, 0])
def test_ranks_that_do_nothing_but_talk_do_not_hang(cluster, trainer, computing):
    done = run(cluster, [*trainer, "nothing", "25", str(computing)])
    assert done.stdout.count("trained\n") == 4
    assert "no progress" not in done.stderr
