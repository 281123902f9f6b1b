# SPDX-License-Identifier: Apache-2.0
"""Every framework finds its ranks, its world and its master with its own rules (programs/consumers.py), and the same ones as Slurm."""
import json

import pytest
from localcluster.harness import until

PYTHON = "/usr/bin/python3"
READERS = ["torch_env", "torchrun_child", "megatron", "deepspeed", "accelerate_gpu", "accelerate_cpu", "lightning", "jax", "composer"]


def read(cluster, programs, options, readers, env=None):
    """What each task's consumers found, by rank."""
    done = cluster.run(f"srun {options} {PYTHON} {programs}/consumers.py {' '.join(readers)}", env=env, check=True, timeout=120)
    assert "slurm-dp" not in done.stderr, done.stderr
    tasks = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda task: task["procid"])
    assert [task["procid"] for task in tasks] == list(range(len(tasks)))
    return tasks


@pytest.mark.parametrize("store", ["hold", "torch"])
@pytest.mark.parametrize("distribution, nodes", [("block", [0, 0, 1, 1]), ("cyclic", [0, 1, 0, 1])])
def test_every_framework_finds_the_same_world(cluster, programs, distribution, nodes, store):
    tasks = read(cluster, programs, f"-N2 -n4 --ntasks-per-node=2 -m {distribution} --dp-store={store}", READERS)
    master = tasks[0]["torch_env"]["master"]
    address, port = master.split(":")
    coordinator = tasks[0]["jax"]["coordinator"]
    assert coordinator.startswith(f"{address}:") and coordinator != master
    seen = {0: 0, 1: 0}
    for rank, task in enumerate(tasks):
        node, local = nodes[rank], seen[nodes[rank]]
        seen[node] += 1
        assert task["node"] == f"node{node + 1:02d}"
        place = {"rank": rank, "world_size": 4}
        assert task["torch_env"] == {**place, "master": master}
        assert task["torchrun_child"] == {
            "local_rank": local, "local_world_size": 2, "group_rank": node, "group_world_size": 2, "role_rank": rank, "role_world_size": 4,
            "torchelastic_restart_count": 0, "role": "default", "agent_store": store == "torch" and "USE_LIBUV" not in cluster.environment}
        assert task["megatron"] == {**place, "local_rank": local, "master": master}
        assert task["deepspeed"] == {**place, "local_rank": local}
        assert task["accelerate_gpu"] == {"distributed": True, "local_rank": local}
        assert task["accelerate_cpu"] == {**place, "local_rank": local, "local_size": 2}
        assert task["lightning"] == {**place, "local_rank": local, "node_rank": node, "tasks_a_node": 2, "master": master}
        assert task["jax"] == {**place, "local_rank": local, "coordinator": coordinator}
        assert task["composer"] == {**place, "master": master, "local_rank": local, "local_world_size": 2, "node_rank": node}


def test_lightning_and_openmp_where_nobody_gave_a_number_a_node(cluster, programs):
    """srun -n alone: Slurm does not say how many tasks a node has, and Lightning would refuse."""
    tasks = read(cluster, programs, "-N2 -n2 -c3 --dp-world=auto", ["lightning", "openmp"])
    assert [task["lightning"]["tasks_a_node"] for task in tasks] == [1, 1]
    # The nodes claim more CPUs than the machine below them has, and no task gets more than it is bound to.
    assert [task["openmp"]["threads"] for task in tasks] == [min(3, task["openmp"]["bound"]) for task in tasks]


def test_a_script_with_lightnings_rules_requeues_its_job_at_sigusr1(cluster, programs):
    """Nothing is unset by its user. (Lightning itself is not in Debian.)"""
    cluster.run("rm -rf requeued requeued.out && mkdir requeued", cwd="/home/alice", check=True)
    script = f"#!/bin/bash\nsrun --dp-world=auto {PYTHON} {programs}/requeues_like_lightning.py requeued\n"
    job = cluster.run(["sbatch", "--parsable", "--requeue", "--open-mode=append", "-N2", "--ntasks-per-node=2", "-o", "requeued.out"],
                      cwd="/home/alice", input=script, check=True).stdout.strip()

    def said():
        cluster.let_go(job)
        return cluster.run("cat requeued.out 2>/dev/null", cwd="/home/alice").stdout

    until(lambda: said().count(" trains\n") == 4, 60, "four ranks that train")
    cluster.run(["scancel", "--signal=USR1", job], check=True)  # as sbatch --signal=USR1@… does: to the ranks of all steps
    until(lambda: said().count(" of 4 goes on from step 12, restart 1\n") == 4, 150, "four ranks that go on")
    cluster.assert_idle()
    cluster.assert_nothing_left()


@pytest.mark.parametrize("store", ["hold", "torch"])
def test_torchrun_as_one_launcher_a_node(cluster, programs, store):
    """The way of `srun --ntasks-per-node=1 torchrun --nproc_per_node=2`: torch's own parse_args, configuration and rendezvous find
    nodes, rank and endpoint without an argument, and the two agents meet at a port that the first of them binds."""
    tasks = read(cluster, programs, f"-N2 --ntasks-per-node=1 --dp-store={store}", ["torchrun", "torch_env"])
    for node, task in enumerate(tasks):
        agent = task["torchrun"]
        assert (agent["nodes"], agent["node_rank"], agent["hosts"]) == (2, node, ["node01", "node02"])
        assert (agent["endpoint"] == task["torch_env"]["master"]) == (store == "hold")
        assert agent["endpoint"] == tasks[0]["torchrun"]["endpoint"]


def test_what_the_user_has_set_wins(cluster, programs):
    mine = {"OMP_NUM_THREADS": "7", "JAX_COORDINATOR_ADDRESS": "coordinator:1", "PET_NNODES": "5", "ROLE_NAME": "mine"}
    done = cluster.run(["srun", "-n2", "--dp-world=auto", "sh", "-c", "echo $OMP_NUM_THREADS $JAX_COORDINATOR_ADDRESS $PET_NNODES $ROLE_NAME"],
                       env=mine, check=True)
    assert done.stdout.splitlines() == ["7 coordinator:1 5 mine"] * 2
