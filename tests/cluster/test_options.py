# SPDX-License-Identifier: Apache-2.0
"""Options in srun, sbatch and salloc: who wins, what reaches the sruns inside, and what the help says."""
import os
import re

import pytest
from localcluster.harness import BUILD

pytestmark = pytest.mark.essential  # on every Slurm, also where time is short

DPCTL = os.path.join(BUILD, "bin/dpctl")
SHOW = "echo timeout=$DP_TIMEOUT tensor=$DP_TENSOR_SIZE port=$MASTER_PORT nccl=$NCCL_SOCKET_IFNAME store=$TORCHELASTIC_USE_AGENT_STORE"
ALL = ["--dp-world=4", "--dp-port=29618", "--dp-interface=eth0", "--dp-store=torch", "--dp-timeout=77", "--dp-on-failure=report", "--dp-tensor=2",
       "--dp-pipeline=1", "--dp-verbose"]
RESULT = "timeout=77 tensor=2 port=29618 nccl==eth0 store=True"


@pytest.fixture(scope="module")
def site():
    """A site with defaults of its own."""
    from conftest import cluster_name
    from localcluster.harness import TestCluster
    with TestCluster(cluster_name("-site"), plugstack_args="timeout=99 interface=eth0 store=torch on-failure=report") as up:
        yield up


def shown(text):
    return set(re.findall("^timeout=.*$", text, re.M))


def test_the_command_line_wins_over_the_environment_and_that_over_the_site(site):
    srun = ["srun", "-N2", "-n2"]
    assert shown(site.run([*srun, "--dp-world=auto", "sh", "-c", SHOW], check=True).stdout).pop().startswith("timeout=99 ")
    mine = {"SLURM_DP_TIMEOUT": "88", "SLURM_DP_STORE": "hold"}
    (line,) = shown(site.run([*srun, "--dp-world=auto", "sh", "-c", SHOW], env=mine, check=True).stdout)
    assert "timeout=88 " in line and line.endswith("store=")
    (line,) = shown(site.run([*srun, "--dp-timeout=77", "sh", "-c", SHOW], env=mine, check=True).stdout)
    assert "timeout=77 " in line and "nccl==eth0" in line


def test_a_sites_default_turns_nothing_on(site):
    assert shown(site.run(["srun", "-n2", "sh", "-c", SHOW], check=True).stdout) == {"timeout= tensor= port= nccl= store="}


def test_a_variable_alone_turns_the_plugin_on(cluster):
    done = cluster.run(["srun", "-n2", "sh", "-c", SHOW], env={"SLURM_DP_TENSOR": "2"}, check=True)
    assert "tensor=2" in shown(done.stdout).pop()


def test_every_option_of_srun_reaches_its_ranks(cluster):
    done = cluster.run(["srun", "-N2", "-n4", "--ntasks-per-node=2", *ALL, "sh", "-c", SHOW], check=True)
    assert shown(done.stdout) == {RESULT}


@pytest.mark.parametrize("export", ["ALL", "NONE", "HOME"])
def test_every_option_of_sbatch_reaches_the_sruns_inside(cluster, export):
    out = f"/home/alice/options-{export}.out"
    cluster.run(["sbatch", "-W", "-N2", "-n4", "--ntasks-per-node=2", f"--export={export}", *ALL, "-o", out, "--wrap",
                 f"srun /bin/sh -c '{SHOW}'; srun -n1 /bin/sh -c '{SHOW}'; srun --dp-timeout=5 --dp-world=auto --dp-port=auto -n2 /bin/sh -c '{SHOW}'"],
                check=True, cwd="/home/alice")
    text = cluster.run(["cat", out], check=True).stdout
    assert text.count(RESULT + "\n") == 4, text
    # A step of another size is left alone, and what stands nearer wins.
    assert text.count("timeout= tensor= port= ") == 1
    near = [line for line in text.splitlines() if line.startswith("timeout=5 tensor=2 ")]
    assert len(near) == 2 and "port=29618" not in near[0]


def test_every_option_of_salloc_reaches_the_sruns_inside(cluster):
    done = cluster.run(["salloc", "-Q", "-N2", "-n4", "--ntasks-per-node=2", *ALL, "srun", "sh", "-c", SHOW], check=True)
    assert shown(done.stdout) == {RESULT} and done.stdout.count(RESULT) == 4


@pytest.mark.parametrize("command", ["srun", "sbatch", "salloc"])
def test_the_help_names_every_option_within_80_columns(cluster, command):
    lines = cluster.run([command, "--help"], check=True).stdout.splitlines()
    ours = lines[next(i for i, line in enumerate(lines) if "--dp-world=auto|N" in line):]
    text = "\n".join(ours)
    for option in [*ALL, "--dp-dry-run"]:
        assert option.split("=")[0] in text
    assert max(map(len, ours)) <= 80


def test_the_commands_of_an_mpi_library_are_left_alone(cluster):
    """orted is no rank: the ranks are its children."""
    cluster.run("cp /usr/bin/env orted", cwd="/home/alice", check=True)
    done = cluster.run(["srun", "-n2", "--dp-world=auto", "/home/alice/orted"], check=True)
    assert not re.search("^(RANK|DP_RANK|SLURM_DP_SECRET)=.", done.stdout, re.M)


def test_dpctl_in_a_job_with_options_asks_about_the_jobs_step_and_not_its_own(cluster):
    cluster.run("rm -f asked", cwd="/home/alice", check=True)
    job = f"""srun sh -c 'until [ -e /home/alice/asked ]; do sleep 0.1; done' &
              until srun -Q --overlap -n1 {DPCTL} status 2>/dev/null; do sleep 0.1; done; touch /home/alice/asked; wait"""
    done = cluster.run(["salloc", "-Q", "-N1", "-n2", "--dp-on-failure=report", "sh", "-c", job], check=True, timeout=60)
    assert done.stdout.splitlines()[0].split(", for ")[0].endswith(": 2 ranks on 1 node"), done
