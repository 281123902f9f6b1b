# SPDX-License-Identifier: Apache-2.0
"""Ranks, nodes and generations are Slurm's own, however the tasks are laid out and however the step came to be."""
import os
import re
import time

import pytest
from localcluster.harness import BUILD, until

pytestmark = pytest.mark.essential  # on every Slurm, also where time is short

RANK = os.path.join(BUILD, "tests/rank")

# What Slurm says of a task, and what we say.
SHOW = ("echo task=$SLURM_PROCID node=$SLURM_NODEID local=$SLURM_LOCALID rank=$RANK node_rank=$NODE_RANK local_rank=$LOCAL_RANK "
        "size=$WORLD_SIZE nodes=$GROUP_WORLD_SIZE local_size=$LOCAL_WORLD_SIZE master=$MASTER_ADDR:$MASTER_PORT address=$DP_NODE_ADDR "
        "generation=$DP_GENERATION host=$(hostname)")


def tasks(text):
    """SHOW's lines as dictionaries, by task."""
    found = [dict(word.split("=", 1) for word in line.split()) for line in text.splitlines() if line.startswith("task=")]
    return sorted(found, key=lambda task: int(task["task"]))


def check(found, size):
    """Each task is the rank that Slurm numbers it, and all agree on the address of rank 0's node."""
    assert [int(task["rank"]) for task in found] == list(range(size))
    for task in found:
        assert (task["rank"], task["node_rank"], task["local_rank"]) == (task["task"], task["node"], task["local"])
        assert task["size"] == str(size)
        mates = [other for other in found if other["node"] == task["node"]]
        assert task["local_size"] == str(len(mates))
    assert len({task["master"] for task in found}) == 1
    assert found[0]["master"].split(":")[0] == found[0]["address"]
    assert {task["nodes"] for task in found} == {str(len({task["node"] for task in found}))}


@pytest.mark.parametrize("layout", [
    ["-N2", "-n8", "--ntasks-per-node=4", "--distribution=block"],
    ["-N2", "-n8", "--ntasks-per-node=4", "--distribution=cyclic"],
    ["-N2", "-n8", "--ntasks-per-node=4", "--distribution=plane=2"],
    ["-N2", "-n7", "--distribution=cyclic"],
    ["-N2", "-n3", "--distribution=plane=2"],
    ["-N1", "-n3"],
    ["-N1", "-n1"],
], ids=" ".join)
def test_distributions(cluster, layout):
    done = cluster.run(["srun", *layout, "--dp-world=auto", "sh", "-c", SHOW], check=True)
    check(tasks(done.stdout), int(next(word[2:] for word in layout if word.startswith("-n"))))


def test_an_arbitrary_distribution(cluster):
    """The host file says the hosts by task; Slurm sorts the nodes."""
    cluster.run("printf 'node02\\nnode01\\nnode02\\nnode02\\n' > /home/alice/arbitrary", check=True)
    done = cluster.run(["srun", "-n4", "--distribution=arbitrary", "--dp-world=auto", "sh", "-c", SHOW],
                       env={"SLURM_HOSTFILE": "/home/alice/arbitrary"}, check=True)
    found = tasks(done.stdout)
    assert [task["host"] for task in found] == ["node02", "node01", "node02", "node02"]
    assert [task["node"] for task in found] == ["1", "0", "1", "1"]  # Slurm's own: its nodes are sorted
    assert [task["node_rank"] for task in found] == ["0", "1", "0", "0"]
    for task in found:
        task["node"] = task["node_rank"]
    check(found, 4)


def test_torchruns_node_0_is_the_masters_in_an_arbitrary_distribution(cluster):
    """torchrun's static rendezvous is served by its node 0, at MASTER_ADDR: all others would wait for it for ever."""
    cluster.run("printf 'node02\\nnode01\\n' > /home/alice/launchers", check=True)
    show = "echo host=$(hostname) node=$PET_NODE_RANK group=$GROUP_RANK dp=$DP_NODE_RANK address=$DP_NODE_ADDR master=$PET_MASTER_ADDR"
    srun = ["srun", "-n2", "--distribution=arbitrary", "--dp-world=auto"]
    mine = {"SLURM_HOSTFILE": "/home/alice/launchers"}
    found = sorted(re.findall(r"host=(\S+) node=(\d) group=(\d) dp=(\d) address=(\S+) master=(\S+)",
                              cluster.run([*srun, "sh", "-c", show], env=mine, check=True).stdout))
    assert [task[:4] for task in found] == [("node01", "1", "1", "1"), ("node02", "0", "0", "0")]
    assert found[1][4] == found[0][5] == found[1][5]
    table = cluster.run([*srun, "--dp-dry-run", "true"], env=mine, check=True).stdout
    assert re.search(r"^0 +0 +0 .*node02$", table, re.M) and re.search(r"^1 +1 +0 .*node01$", table, re.M), table


# Slurm itself refuses components that share a node.
@pytest.mark.parametrize("components", [
    ["-N1 -n1 -w node02", "-N1 -n3 -w node01"],
    ["-N1 -n2 -w node01", "-N1 -n1 -w node02"],
], ids=" : ".join)
def test_a_heterogeneous_step_is_one_world(cluster, components):
    step = " : ".join(f"{part} --dp-world=auto --overlap sh -c '{SHOW}'" for part in components)
    done = cluster.run(f"salloc -Q -N2 -n8 --ntasks-per-node=4 srun {step}", check=True)
    found = tasks(done.stdout)
    size = sum(int(re.search(r"-n(\d)", part).group(1)) for part in components)
    assert [int(task["rank"]) for task in found] == list(range(size))
    assert all((task["rank"], task["node_rank"], task["local_rank"]) == (task["task"], task["node"], task["local"]) for task in found)
    assert {(task["size"], task["master"]) for task in found} == {(str(size), found[0]["master"])}
    assert found[0]["master"].split(":")[0] == found[0]["address"]
    cluster.assert_nothing_left()


def test_a_heterogeneous_job_is_one_world(cluster):
    """Its components are jobs of their own, with ids of their own."""
    done = cluster.run(["salloc", "-Q", "-N1", "-n3", ":", "-N1", "-n1", "srun", "--het-group=0,1", "--dp-world=auto", "sh", "-c", SHOW], check=True)
    found = tasks(done.stdout)
    assert [int(task["rank"]) for task in found] == [0, 1, 2, 3]
    met = cluster.run(["salloc", "-Q", "-N1", "-n3", ":", "-N1", "-n1", "srun", "--het-group=0,1", "--dp-world=auto", RANK, "meet", "0"], check=True)
    assert met.stdout.count(" met\n") == 4
    met = cluster.run(["srun", "-N1", "-n3", "--dp-world=auto", RANK, "meet", "0", ":", "-N1", "-n1", RANK, "meet", "0"], check=True)
    assert met.stdout.count(" met\n") == 4
    assert {(task["size"], task["nodes"], task["master"]) for task in found} == {("4", "2", found[0]["master"])}
    assert found[0]["master"].split(":")[0] == found[0]["address"] != found[3]["address"]
    cluster.assert_idle()


def test_the_ranks_of_a_heterogeneous_step_meet(cluster):
    done = cluster.run(f"salloc -Q -N2 -n8 --ntasks-per-node=4 srun -N1 -n2 --dp-world=5 {RANK} meet 0 : -N1 -n3 {RANK} meet 0", check=True)
    assert done.stdout.count(" met\n") == 5
    cluster.assert_nothing_left()


def test_a_heterogeneous_step_of_another_size_is_refused(cluster):
    done = cluster.run("salloc -Q -N2 -n8 --ntasks-per-node=4 srun -N1 -n2 --dp-world=6 hostname : -N1 -n3 hostname")
    assert done.returncode != 0 and "node0" not in done.stdout
    assert "slurm-dp: node node01: --dp-world=6, but this step has 5 tasks; give -n 6" in done.stderr
    cluster.assert_idle()


def test_inherited_sizes_leave_a_heterogeneous_step_alone_that_they_do_not_fit(cluster):
    done = cluster.run("salloc -Q -N2 -n8 --ntasks-per-node=4 --dp-world=8 srun -N1 -n1 sh -c 'echo alone=$RANK$SLURM_DP_SECRET' : "
                       "-N1 -n1 sh -c 'echo alone=$RANK$SLURM_DP_SECRET'", check=True)
    assert done.stdout == "alone=\n" * 2 and "slurm-dp" not in done.stderr


def test_an_asked_port_need_be_free_on_the_first_component_only(cluster):
    holder = cluster.popen(["srun", "-w", "node02", "-N1", "-n1", "/usr/bin/python3", "-c",
                            "import socket, time; s = socket.socket(); s.bind(('', 15123)); s.listen(); print('up', flush=True); time.sleep(60)"])
    assert holder.stdout.readline() == "up\n"
    try:
        for first, second, fine in (("node01", "node02", True), ("node02", "node01", False)):
            done = cluster.run(["salloc", "-Q", "-w", first, "-N1", "-n1", ":", "-w", second, "-N1", "-n1", "srun", "--het-group=0,1",
                                "--dp-port=15123", "--dp-timeout=30", "sh", "-c", "echo port=$MASTER_PORT"])
            if fine:
                assert done.stdout == "port=15123\n" * 2, done.stderr
            else:
                assert done.returncode != 0 and "slurm-dp: node node02: port 15123 for MASTER_PORT is in use" in done.stderr
    finally:
        holder.terminate()
        holder.communicate(timeout=30)
    cluster.assert_idle()


def test_a_component_that_fails_ends_the_whole_heterogeneous_job(cluster):
    """Its own job id would end it alone, and the others wait for --dp-timeout."""
    cluster.node("node01", "ip link add link eth0 name only01 type macvlan mode bridge && ip link set only01 up && ip addr add 10.98.0.1/24 dev only01",
                 check=True)
    began = time.monotonic()
    done = cluster.run(["salloc", "-Q", "-w", "node01", "-N1", "-n1", ":", "-w", "node02", "-N1", "-n1", "srun", "--het-group=0,1",
                        "--dp-interface=only01", "--dp-timeout=40", "hostname"], timeout=90)
    took = time.monotonic() - began
    cluster.node("node01", "ip link del only01", check=True)
    assert done.returncode != 0 and done.stdout == "" and "node02 has no such interface" in done.stderr
    assert took < 20
    cluster.assert_idle()


def test_steps_in_a_row_on_part_of_the_allocation_and_with_overlap(cluster):
    script = (f"srun -N1 -n2 --dp-world=auto sh -c '{SHOW}'; echo ==; srun -N1 -n1 -w node02 --dp-world=auto sh -c '{SHOW}'; echo ==; "
              f"srun --overlap -N2 -n4 --ntasks-per-node=2 --dp-world=auto sh -c '{SHOW}'")
    done = cluster.run(["salloc", "-Q", "-N2", "-n8", "--ntasks-per-node=4", "sh", "-c", script], check=True)
    first, second, third = (tasks(part) for part in done.stdout.split("==\n"))
    check(first, 2)
    check(second, 1)
    check(third, 4)
    assert second[0]["host"] == "node02"


def test_a_step_inside_a_step_is_a_world_of_its_own(cluster):
    """Nothing of the outer one reaches the inner one's tasks, and nothing of it counts as the user's wish."""
    inner = f"srun --overlap -N2 -n4 --ntasks-per-node=2 --dp-world=auto sh -c '{SHOW}'"
    done = cluster.run(["salloc", "-Q", "-N2", "-n8", "--ntasks-per-node=4", "srun", "-N1", "-n1", "--dp-world=auto", "sh", "-c", inner], check=True)
    check(tasks(done.stdout), 4)
    assert "slurm-dp" not in done.stderr


def test_a_plain_srun_inside_a_rank_has_no_place_in_its_world(cluster):
    """It inherits the rank's variables: its tasks would take the rank's place, or find no daemon on their node."""
    plain = f"srun --overlap -N2 -n2 {RANK} world"
    for inner, fine in ((plain, False), (f"env -u DP_SOCKET {plain}", False), (plain.replace("-n2", "-n2 --dp-world=auto"), True)):
        done = cluster.run(["salloc", "-Q", "-N2", "-n8", "--ntasks-per-node=4", "srun", "-N1", "-n1", "--dp-world=auto", "sh", "-c", inner])
        if fine:
            assert done.returncode == 0 and done.stdout.count("size=2") == 2, done.stderr
        elif inner == plain:
            assert done.returncode != 0 and done.stdout == ""
            told = re.findall(r"cannot open the world: the DP_ variables are those of step \d+\.0, and this is a task of step \d+\.1: (.*)", done.stderr)
            assert len(told) == 2 and all("start it with --dp-world=auto" in line for line in told), done.stderr
        else:
            assert "this process is not a rank of slurm-dp" in done.stderr
    cluster.assert_idle()


def test_what_a_batch_script_exports_does_not_leak_into_the_ranks(cluster):
    """Megatron's habit: NODE_RANK and RANK exported in the script, the same for every task."""
    script = f"export NODE_RANK=0 RANK=0 LOCAL_RANK=0; srun --dp-world=auto sh -c '{SHOW}'"
    cluster.run(["sbatch", "-W", "-N2", "-n4", "--ntasks-per-node=2", "-o", "/home/alice/leak.out", "--wrap", script], check=True, cwd="/home/alice")
    text = cluster.run(["cat", "/home/alice/leak.out"], check=True).stdout
    check(tasks(text), 4)
    warnings = [line for line in text.splitlines() if line.startswith("slurm-dp:")]
    assert len(warnings) == 1 and "NODE_RANK=0" in warnings[0]


def test_a_job_array_has_a_world_for_each_element(cluster):
    cluster.run(["sbatch", "-W", "--array=0-2", "-N2", "-n2", "--ntasks-per-node=1", "-o", "/home/alice/array-%a.out", "--dp-world=auto", "--wrap",
                 f"srun sh -c '{SHOW}'"], check=True, cwd="/home/alice")
    masters = set()
    for element in range(3):
        found = tasks(cluster.run(["cat", f"/home/alice/array-{element}.out"], check=True).stdout)
        check(found, 2)
        masters.add(found[0]["master"])
    assert len(masters) == 3


def test_a_requeued_job_is_a_new_generation_with_new_ids(cluster):
    script = (f"srun sh -c '{SHOW}'; srun {RANK} id world; "
              "[ -n \"$SLURM_RESTART_COUNT\" ] || { scontrol requeue $SLURM_JOB_ID; sleep 60; }")
    done = cluster.run(["sbatch", "--parsable", "-N2", "-n4", "--ntasks-per-node=2", "--dp-world=auto", "--open-mode=append",
                        "-o", "/home/alice/requeue.out", "--wrap", script], check=True, cwd="/home/alice")
    job = done.stdout.strip()

    def is_over():
        cluster.let_go(job)
        return cluster.run("cat requeue.out 2>/dev/null", cwd="/home/alice").stdout.count("round=1") >= 8

    until(is_over, 90, "the ranks of both rounds have their ids")
    text = cluster.run(["cat", "/home/alice/requeue.out"], check=True).stdout
    found = tasks(text)
    assert sorted(task["generation"] for task in found) == ["0"] * 4 + ["1"] * 4, text
    ids = re.findall("id=([0-9a-f]+)", text)
    assert len(ids) == 16 and len(set(ids)) == 4
