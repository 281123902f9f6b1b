# SPDX-License-Identifier: Apache-2.0
"""One srun option makes a world: ranks, addresses, ids, the store; in srun, sbatch and side by side."""
import os
import re

import pytest
from localcluster.harness import BUILD

pytestmark = pytest.mark.essential  # on every Slurm, also where time is short

RANK = os.path.join(BUILD, "tests/rank")
TRAINER = os.path.join(BUILD, "bin/trainer")


def lines(done):
    return sorted(done.stdout.splitlines())


def facts(done):
    """The lines of `rank world` as dictionaries, by rank."""
    found = [dict(word.split("=", 1) for word in line.split()) for line in done.stdout.splitlines() if line.startswith("rank=")]
    return sorted(found, key=lambda fact: int(fact["rank"]))


def test_every_task_is_a_rank_and_knows_its_place(cluster):
    done = cluster.run(["srun", "-N2", "--ntasks-per-node=4", "--dp-world=auto", RANK, "world"], check=True)
    ranks = facts(done)
    assert [int(r["rank"]) for r in ranks] == list(range(8))
    assert [int(r["local_rank"]) for r in ranks] == [0, 1, 2, 3] * 2
    assert [int(r["node_rank"]) for r in ranks] == [0] * 4 + [1] * 4
    assert {(r["size"], r["local_size"], r["nodes"]) for r in ranks} == {("8", "4", "2")}
    address, port = ranks[0]["master"].split(":")
    assert {r["master"] for r in ranks} == {f"{address}:{port}"}
    assert not address.startswith("127.") and 20000 <= int(port) <= 32767
    assert ranks[0]["node"] == address and ranks[7]["node"] != address
    assert done.stderr == ""


def test_a_tasks_epilog_knows_the_world_and_its_node(cluster):
    """Slurm runs it with the node's environment, so it has what the node's tasks share, and their prologs have everything."""
    kept = "/home/alice/scripts-of-tasks"
    cluster.run(f"rm -rf {kept}; mkdir {kept}", check=True)
    for name in ("prolog", "epilog"):
        cluster.run(f"""printf '#!/bin/sh\\necho %s $NODE_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $DP_NODES $RANK >> {kept}/said\\n' {name} > {kept}/{name}
                        chmod +x {kept}/{name}""", check=True)
    step = ["srun", "-N2", "-n3", "--distribution=cyclic", f"--task-prolog={kept}/prolog", f"--task-epilog={kept}/epilog"]
    done = cluster.run([*step, "--dp-world=auto", RANK, "meet", "0"], check=True)
    assert done.stderr == ""
    said = cluster.run(f"sort {kept}/said", check=True).stdout.splitlines()
    assert said == ["epilog 0 3 2 2", "epilog 0 3 2 2", "epilog 1 3 1 2", "prolog 0 3 2 2 0", "prolog 0 3 2 2 2", "prolog 1 3 1 2 1"]
    users = cluster.run([*step[:4], step[-1], "--dp-world=auto", "true"], env={"WORLD_SIZE": "77"}, check=True)
    assert "WORLD_SIZE=77" in users.stderr
    assert cluster.run(f"tail -n1 {kept}/said", check=True).stdout.split()[:3:2] == ["epilog", "77"]


def test_the_usual_variables_are_there_and_no_secret_is(cluster):
    done = cluster.run(["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-world=4", "sh", "-c", "env; cat /proc/$PPID/cmdline 2>/dev/null | tr '\\0' ' '; echo"],
                       check=True)
    for name in ["MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK",
                 "GROUP_WORLD_SIZE", "DP_SOCKET", "DP_RANK", "DP_WORLD_SIZE", "DP_GENERATION"]:
        assert len(re.findall(f"^{name}=.", done.stdout, re.M)) == 4, name
    assert "SLURM_DP_SECRET" not in done.stdout and "SLURM_DP_SLOT" not in done.stdout
    assert not re.search("[0-9a-f]{64}", done.stdout)


def test_without_an_option_the_plugin_does_nothing(cluster):
    done = cluster.run(["srun", "-n2", "env"], check=True)
    assert not re.search("^(DP_RANK|DP_SOCKET|DP_WORLD|SLURM_DP|MASTER_|WORLD_SIZE|RANK=)", done.stdout, re.M)


def test_what_the_user_set_for_the_world_wins_and_what_he_set_for_one_rank_does_not(cluster):
    done = cluster.run(["srun", "-n2", "--dp-world=auto", "sh", "-c", "echo $MASTER_PORT $RANK $DP_MASTER_PORT"],
                       env={"MASTER_PORT": "12345", "RANK": "7"}, check=True)
    assert [line.split()[:2] for line in lines(done)] == [["12345", "0"], ["12345", "1"]]
    assert all(line.split()[2] != "12345" for line in lines(done))
    warnings = [line for line in done.stderr.splitlines() if line.startswith("slurm-dp:")]
    assert len(warnings) == 2 and "MASTER_PORT=12345" in warnings[0] and "RANK=7" in warnings[1]


def test_a_steps_unique_id_is_one_real_id_for_all_ranks_and_new_for_each_step(cluster):
    seen = set()
    for _ in range(2):
        done = cluster.run(["srun", "-N2", "-n8", "--ntasks-per-node=4", "--dp-world=auto", RANK, "id", "world"], check=True)
        for turn in (0, 1):
            ids = re.findall(f"round={turn} id=([0-9a-f]*)", done.stdout)
            assert len(ids) == 8 and len(set(ids)) == 1
            assert len(ids[0]) == 256 and ids[0] != "0" * 256
            seen.add(ids[0])
    assert len(seen) == 4
    if "libnccl" not in cluster.run(["ldd", RANK]).stdout:
        pytest.skip("built without NCCL: the ids were random bytes, not ncclGetUniqueId's")


@pytest.mark.parametrize("distribution", [[], ["-m", "block"]], ids=["any", "block"])
def test_a_hostfile_has_the_steps_nodes_and_tasks(cluster, distribution):
    done = cluster.run(["srun", "-N2", "-n5", *distribution, "--dp-world=auto", "sh", "-c", "if [ $RANK = 4 ]; then cat ${DP_HOSTFILE:-/dev/null}; fi"])
    tasks = cluster.run(["srun", "-N2", "-n5", *distribution, "hostname"], check=True).stdout.split()
    assert done.stdout == "".join(f"{node} slots={tasks.count(node)}\n" for node in sorted(set(tasks))), done


@pytest.mark.parametrize("step, lines", [
    (["-n3", "-m", "arbitrary", "-w", "node02,node01,node02"], ["node02 slots=2", "node01 slots=1"]),
    (["-N1", "-n1", ":", "-N1", "-n2"], ["node01 slots=1", "node02 slots=2"]),
], ids=["arbitrary", "heterogeneous"])
def test_a_hostfile_has_the_nodes_in_the_order_of_their_ranks(cluster, step, lines):
    program = ["sh", "-c", "[ $RANK != 2 ] || cat ${DP_HOSTFILE:-/dev/null}"]
    words = [word for part in " ".join(step).split(" : ") for word in (":", *part.split(), "--dp-world=auto", *program)][1:]
    done = cluster.run(["srun", *words], check=True)
    assert done.stdout.splitlines() == lines, done


def test_the_store_works_across_nodes(cluster):
    done = cluster.run(["srun", "-N2", "-n6", "--dp-world=auto", RANK, "store"], check=True)
    assert done.stdout.splitlines() == ["store ok"] * 6


@pytest.mark.parametrize("distribution", ["cyclic", "block"])
def test_distributions_and_uneven_nodes(cluster, distribution):
    done = cluster.run(["srun", "-N2", "-n5", f"--distribution={distribution}", "--dp-world=auto", RANK, "world"], check=True)
    ranks = facts(done)
    expected = {"cyclic": [0, 1, 0, 0, 0], "block": [0, 0, 0, 0, 1]}[distribution]
    assert [int(r["node_rank"]) for r in ranks] == expected


def test_rank_zero_need_not_be_on_the_first_node(cluster):
    cluster.run("printf 'node02\\nnode01\\nnode02\\n' > /home/alice/hosts", check=True)
    done = cluster.run(["srun", "-n3", "--distribution=arbitrary", "--dp-world=auto", RANK, "world"],
                       env={"SLURM_HOSTFILE": "/home/alice/hosts"}, check=True)
    ranks = facts(done)
    second = cluster.node("node02", ["getent", "hosts", "node02"]).stdout.split()[0]
    assert ranks[0]["master"].split(":")[0] == second == ranks[0]["node"]


def test_sbatch_passes_its_options_to_the_sruns_inside(cluster):
    script = f"srun {RANK} world; srun -n1 sh -c 'echo alone=$DP_WORLD_SIZE'"
    cluster.run(["sbatch", "-W", "-N2", "-n4", "--ntasks-per-node=2", "--dp-world=4", "-o", "/home/alice/inherit.out", "--wrap", script], check=True,
                cwd="/home/alice")
    text = cluster.run(["cat", "/home/alice/inherit.out"], check=True).stdout
    assert text.count("size=4") == 4
    assert "alone=\n" in text  # a step of another size is left alone


def test_sbatch_with_the_srun_line_in_it(cluster):
    cluster.run(["sbatch", "-W", "-N2", "-n8", "--ntasks-per-node=4", "-o", "/home/alice/batch-world.out", "--wrap",
                 f"srun -N2 --ntasks-per-node=4 --dp-world=auto {RANK} world"], check=True, cwd="/home/alice")
    assert cluster.run(["cat", "/home/alice/batch-world.out"]).stdout.count("size=8") == 8


def test_two_worlds_at_once_in_one_allocation(cluster):
    inner = f"srun --overlap -N2 -n8 --ntasks-per-node=4 --dp-world=auto {RANK} meet 1"
    done = cluster.run(["salloc", "-Q", "-N2", "-n8", "--ntasks-per-node=4", "sh", "-c", f"{inner} & {inner} & wait"], check=True)
    assert done.stdout.count(" met\n") == 16
    cluster.assert_nothing_left()


def test_two_users_share_the_nodes(cluster):
    started = [cluster.popen(["srun", "-N2", "-n8", "--ntasks-per-node=4", "--dp-world=auto", RANK, "meet", "1"], user=user) for user in ("alice", "bob")]
    for one in started:
        out, err = one.communicate(timeout=60)
        assert one.returncode == 0, err
        assert out.count(" met\n") == 8
    cluster.assert_nothing_left()


def test_dry_run_prints_the_table_and_runs_nothing(cluster):
    done = cluster.run(["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-dry-run", "touch", "/home/alice/must-not-be"], check=True)
    table = [line.split() for line in done.stdout.splitlines()]
    assert table[0][0] == "slurm-dp:" and "WORLD_SIZE=4" in table[0]
    assert table[1] == ["RANK", "NODE_RANK", "LOCAL_RANK", "ADDRESS", "HOST"]
    assert [(row[0], row[4]) for row in table[2:]] == [("0", "node01"), ("1", "node01"), ("2", "node02"), ("3", "node02")]
    assert cluster.run(["test", "-e", "/home/alice/must-not-be"]).returncode == 1


def test_verbose_prints_the_table_and_launches(cluster):
    done = cluster.run(["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-verbose", RANK, "world"], check=True)
    assert "MASTER_ADDR=" in done.stderr and len(facts(done)) == 4


def test_a_step_takes_no_second_longer(cluster):
    step = ["srun", "-N2", "-n8", "--ntasks-per-node=4"]
    cluster.assert_no_second_longer([*step, "--dp-world=auto", RANK, "world"], [*step, "true"], pairs=10)


def test_a_rank_that_leaves_without_goodbye_is_named(cluster):
    done = cluster.run(["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-world=auto", RANK, "leave", "2"], check=True)
    assert "slurm-dp: rank 2 on node02 exited with code 0 without a goodbye" in done.stderr


@pytest.mark.parametrize("export", ["NONE", "HOME"])
def test_no_export_and_a_short_one_reach_the_ranks_all_the_same(cluster, export):
    done = cluster.run(["srun", "-N2", "-n2", f"--export={export}", "--dp-world=auto", RANK, "world"], check=True)
    assert done.stdout.count("size=2") == 2
    cluster.run(["sbatch", "-W", "-N2", "-n2", f"--export={export}", "--dp-world=auto", "-o", "/home/alice/export.out", "--wrap",
                 f"srun --export={export} {RANK} world"], check=True, cwd="/home/alice")
    assert cluster.run(["cat", "/home/alice/export.out"]).stdout.count("size=2") == 2


def test_salloc_passes_its_options_on_and_a_closer_one_wins(cluster):
    done = cluster.run(["salloc", "-Q", "-N2", "-n4", "--ntasks-per-node=2", "--dp-world=auto", "sh", "-c",
                        f"srun {RANK} world; srun --dp-world=3 {RANK} world"])
    assert done.stdout.count("size=4") == 4
    assert "--dp-world=3, but this step has 4 tasks" in done.stderr


def test_tensor_and_pipeline_sizes_divide_the_world_in_megatrons_order(cluster):
    done = cluster.run(["srun", "-N2", "-n8", "--ntasks-per-node=4", "--dp-tensor=2", "--dp-pipeline=2", "sh", "-c",
                        f"echo $RANK $DP_TENSOR_RANK $DP_DATA_RANK $DP_PIPELINE_RANK $DP_TENSOR_SIZE $DP_DATA_SIZE $DP_PIPELINE_SIZE; {RANK} groups"],
                       check=True)
    assert "using world size: 8, data-parallel-size: 2, tensor-model-parallel size: 2, pipeline-model-parallel size: 2\n" in done.stderr
    numbers = sorted([int(word) for word in line.split()] for line in done.stdout.splitlines() if not line.startswith("rank="))
    assert numbers == [[rank, rank % 2, rank // 2 % 2, rank // 4, 2, 2, 2] for rank in range(8)]
    seen = {}
    for line in facts(done):
        rank = int(line["rank"])
        groups = {"tensor": (rank % 2, rank // 2), "data": (rank // 2 % 2, rank % 2 + rank // 4 * 2), "pipeline": (rank // 4, rank % 4)}
        for name, (place, group) in groups.items():
            at, identity = line[name].split(":")
            assert at == f"{place}/2"
            seen.setdefault((name, group), set()).add(identity)
    # One id a group, and no two groups share one.
    assert len(seen) == 12 and all(len(ids) == 1 for ids in seen.values())
    assert len(set.union(*seen.values())) == 12


def test_the_seeds_line_is_printed(cluster):
    done = cluster.run(["srun", "-N2", "-n4", "--dp-tensor=2", "--dp-pipeline=2", "true"], check=True)
    assert done.stderr == "using world size: 4, data-parallel-size: 1, tensor-model-parallel size: 2, pipeline-model-parallel size: 2\n"


def test_inherited_sizes_leave_steps_alone_that_they_do_not_divide(cluster):
    done = cluster.run(["salloc", "-Q", "-N2", "-n8", "--ntasks-per-node=4", "--dp-tensor=4", "sh", "-c",
                        "srun -N1 -n1 sh -c 'echo alone=$RANK'; srun sh -c 'echo rank=$RANK'"], check=True)
    assert "alone=\n" in done.stdout and done.stdout.count("rank=") == 8


def test_report_names_the_dead_and_lets_the_others_go_on(cluster):
    done = cluster.run(["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-on-failure=report", "sh", "-c",
                        "[ $RANK != 2 ] || kill -9 $$; sleep 1; echo survived"])
    assert done.stdout == "survived\n" * 3
    assert "slurm-dp: rank 2 on node02 was killed by signal 9 (SIGKILL); the other ranks continue (--dp-on-failure=report)" in done.stderr
    cluster.assert_idle()


def test_openmp_gets_the_cpus_of_the_task_unless_the_user_said_so(cluster):
    command = ["srun", "-n2", "-c1", "--dp-world=auto", "sh", "-c", "echo $OMP_NUM_THREADS"]
    assert cluster.run(command, check=True).stdout == "1\n1\n"
    assert cluster.run(command, env={"OMP_NUM_THREADS": "7"}, check=True).stdout == "7\n7\n"


def test_a_users_own_world_that_contradicts_the_plan_is_kept_with_one_warning(cluster):
    done = cluster.run(["srun", "-N2", "-n2", "--dp-world=auto", "sh", "-c", "echo $WORLD_SIZE $MASTER_ADDR $PET_MASTER_ADDR $RANK"],
                       env={"WORLD_SIZE": "16", "MASTER_ADDR": "elsewhere"}, check=True)
    assert lines(done) == ["16 elsewhere elsewhere 0", "16 elsewhere elsewhere 1"]
    warnings = [line for line in done.stderr.splitlines() if "slurm-dp" in line]
    assert len(warnings) == 1 and "MASTER_ADDR=elsewhere (this" in warnings[0] and "WORLD_SIZE=16 (this step's is 2)" in warnings[0], done.stderr
