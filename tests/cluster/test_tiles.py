# SPDX-License-Identifier: Apache-2.0
"""--dp-tiles: each rank its part of the accelerators that its job owns, in its vendor's words, and never one of somebody else's."""
import contextlib
import csv
import io
import os
import random
import re
import shlex
import string
import time

import pytest
from localcluster.harness import BUILD, until
from localcluster.names import Cluster

DPCTL = os.path.join(BUILD, "bin/dpctl")
GPUS = "nodes=node[01-99] vendor=nvidia devices=4 files=/dev/gpu[0-3]"
SN30_BY_TILE = "nodes=node[01-99] vendor=sambanova devices=8 tiles-per-device=8 gres=tile"
SN30_BY_UNIT = "nodes=node[01-99] vendor=sambanova devices=8 tiles-per-device=8 tiles-per-unit=64"
SN10 = "nodes=node[01-99] vendor=sambanova devices=8 tiles-per-device=4 files=/dev/rdu[0-7]"
DAWN = "nodes=node[01-99] vendor=intel devices=4 tiles-per-device=2 numa=0,0,1,1"

# What a task has, and which of the fake GPUs it could open.
SHOW = ("echo rank=$RANK local=$LOCAL_RANK host=$(hostname) $(env | grep -E '^(DP_TILE_|SF_RNT|ZE_|CUDA_VIS|ROCR|OMP_NUM)') "
        "open=$(for n in 0 1 2 3; do [ -w /dev/gpu$n ] && printf $n; done) cpus=$(sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status)")


@contextlib.contextmanager
def tiles_conf(cluster, text):
    path = os.path.join(Cluster(cluster.name).etc, "slurm", "tiles.conf")
    with open(path, "w", encoding="ascii") as conf:
        conf.write(text + "\n")
    try:
        yield
    finally:
        os.unlink(path)


def shown(done):
    """SHOW's lines as dictionaries, by rank."""
    assert done.returncode == 0, done.stdout + done.stderr
    found = [dict(word.split("=", 1) for word in line.split()) for line in done.stdout.splitlines() if line.startswith("rank=")]
    return sorted(found, key=lambda task: int(task["rank"]))


@pytest.mark.essential
@pytest.mark.parametrize("conf, gres", [(SN30_BY_TILE, "tile:64"), (SN30_BY_UNIT, "rdu:1")])
def test_the_sn30_seed(cluster, conf, gres):
    with tiles_conf(cluster, conf):
        found = shown(cluster.run(["srun", "-N2", "--ntasks-per-node=16", f"--gres={gres}", "--dp-tiles=4", "sh", "-c", SHOW]))
    assert len(found) == 32
    for host in ("node01", "node02"):
        masks = {int(task["local"]): int(task["DP_TILE_MASK"], 16) for task in found if task["host"] == host}
        assert masks[3] == 0xf000
        assert sum(masks.values()) == 2**64 - 1, "every tile once"
    assert all(task["SF_RNT_TILE_AFFINITY"] == task["DP_TILE_MASK"] and task["DP_TILE_COUNT"] == "4" for task in found)
    assert found[3]["DP_TILE_LIST"] == "12,13,14,15"


def test_the_sn10_seed_and_what_another_job_holds(cluster):
    with tiles_conf(cluster, SN10):
        other = cluster.popen(["srun", "-N1", "-n6", "-w", "node01", "--gres=rdu:6", "--dp-tiles=4", "sh", "-c", SHOW + "; sleep 600"])
        try:
            until(lambda: "rank=" in other.stdout.readline(), 30, "the other job has started")
            ours = ["srun", "-N1", "-w", "node01", "--gres=rdu:2"]
            found = shown(cluster.run([*ours, "-n2", "--dp-tiles=4", "sh", "-c", SHOW]))
            assert [task["DP_TILE_MASK"] for task in found] == ["0xf000000", "0xf0000000"]
            assert [task["DP_TILE_DEVICE"] for task in found] == ["6", "7"]
            done = cluster.run([*ours, "-n2", "--dp-tiles=5", "echo", "ran"])
            assert done.returncode != 0 and "ran" not in done.stdout
            assert "--dp-tiles=5 for 2 ranks needs 10 tiles, and the step owns 8 tiles on this node" in done.stderr
            assert done.stderr.count("slurm-dp:") == 1
        finally:
            other.terminate()
            other.communicate(timeout=60)
    cluster.assert_idle(deadline=40)


@pytest.mark.parametrize("hierarchy", ["FLAT", "COMPOSITE"])
def test_dawn(cluster, hierarchy):
    with tiles_conf(cluster, DAWN):
        found = shown(cluster.run(["srun", "-N2", "--ntasks-per-node=8", "--gres=gpu:4", "--dp-tiles=auto", "--dp-visible=own", "sh", "-c", SHOW],
                                  env={"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"} if hierarchy == "COMPOSITE" else {}))
    assert len(found) == 16
    for task in found:
        local = int(task["local"])
        assert task["ZE_AFFINITY_MASK"] == (f"{local // 2}.{local % 2}" if hierarchy == "COMPOSITE" else str(local))
        assert (task["ZE_FLAT_DEVICE_HIERARCHY"], task["ZE_ENABLE_PCI_ID_DEVICE_ORDER"]) == (hierarchy, "1")
        assert task["DP_TILE_NUMA"] == str(local // 4)


@pytest.mark.essential
def test_gpus_by_local_rank(cluster):
    """A program that says set_device(LOCAL_RANK) finds its own, although Slurm counts its job's GPUs from 0; alone on request."""
    with tiles_conf(cluster, GPUS):
        other = cluster.popen(["srun", "-N1", "-n1", "-w", "node01", "--gres=gpu:1", "sh", "-c", "echo up; sleep 600"])
        try:
            assert other.stdout.readline() == "up\n"
            for options in ([], ["--dp-visible=own"]):
                found = shown(cluster.run(["srun", "-N1", "-n3", "-w", "node01", "--gres=gpu:3", "--dp-tiles=1", *options, "sh", "-c", SHOW]))
                for local, task in enumerate(found):
                    assert task["DP_TILE_LIST"] == str(local + 1), "the other job has GPU 0"
                    assert task["open"] == "123"
                    visible = task["CUDA_VISIBLE_DEVICES"].split(",")
                    assert visible[int(task["DP_TILE_DEVICE"])] == str(local), "in the device cgroup GPU 1 is the first"
                    assert (task["DP_TILE_DEVICE"], len(visible)) == (("0", 1) if options else (str(local), 3))
        finally:
            other.terminate()
            other.communicate(timeout=60)
    cluster.assert_idle(deadline=40)


@pytest.mark.essential
def test_where_slurm_binds_each_task_nobody_opens_anothers(cluster):
    with tiles_conf(cluster, GPUS):
        for options in (["--gpus-per-task=1"], ["--gres=gpu:4", "--gpu-bind=single:1"]):
            found = shown(cluster.run(["srun", "-N1", "-n4", *options, "--dp-tiles=auto", "sh", "-c", SHOW]))
            assert sorted(task["open"] for task in found) == list("0123")
            assert all(task["DP_TILE_LIST"] == task["open"] and task["CUDA_VISIBLE_DEVICES"] == "0" for task in found)
        # The table has them of all ranks, though each task alone knows its own.
        done = cluster.run(["srun", "-N2", "-n8", "--ntasks-per-node=4", "--gpus-per-task=1", "--dp-tiles=auto", "--dp-dry-run", "true"], check=True)
        assert [line.split()[4:6] for line in done.stdout.splitlines()[2:]] == [[str(n), hex(1 << n)] for n in (0, 1, 2, 3)] * 2, done.stdout
        look = (f"if [ $RANK = 0 ]; then until [ $(ls met | wc -l) = 7 ]; do sleep 0.05; done; {DPCTL} top --once --csv; touch met/looked; "
                "else touch met/$RANK; until test -e met/looked; do sleep 0.05; done; fi")
        cluster.run("rm -rf met && mkdir met", cwd="/home/alice", check=True)
        done = cluster.run(["srun", "-N2", "-n8", "--ntasks-per-node=4", "--gpus-per-task=1", "--dp-tiles=auto", "sh", "-c", look], cwd="/home/alice",
                           check=True)
        assert [row["tile"] for row in csv.DictReader(io.StringIO(done.stdout))] == ["0", "1", "2", "3"] * 2, done.stdout
        # Slurm calls the GPUs of each task 0 and 1.
        found = shown(cluster.run(["srun", "-N1", "-n2", "--gpus-per-task=2", "--dp-tiles=1", "sh", "-c", SHOW]))
        assert [(task["DP_TILE_LIST"], task["open"]) for task in found] == [("0", "01"), ("2", "23")]
        short = ["-n4 --gres=gpu:2 --gpu-bind=per_task:1", "-n3 --gres=gpu:4 --gpu-bind=per_task:2", "-n2 --gres=gpu:1 --gpu-bind=per_task:1"]
        for options in (*short, "-n4 --gres=gpu:2 --gpu-bind=single:2", "-n2 --gres=gpu:2 --gpu-bind=map_gpu:0,0", "-n4 --gpus=2 --ntasks-per-gpu=2"):
            done = cluster.run(f"srun -N1 {options} --dp-tiles=1 echo ran")
            assert done.returncode != 0 and "ran" not in done.stdout
            assert done.stderr.count("Slurm binds the tasks to GPUs itself") == 1, done.stderr
        # The job's binding holds for its steps, also where one of them has fewer GPUs.
        step = "srun -n2 --gres=gpu:1"
        done = cluster.run(f"salloc -N1 -n2 --gpus-per-task=1 {step} --dp-tiles=1 echo ran")
        assert done.returncode != 0 and "ran" not in done.stdout
        assert done.stderr.count("Slurm binds the tasks to GPUs itself (per_task:1)") == 1, done.stderr
        done = cluster.run(f"salloc -N1 -n2 --gpus-per-task=1 {step} --gpu-bind=none --dp-tiles=1 echo ran")
        assert "--dp-tiles=1 for 2 ranks needs 2 tiles, and the step owns 1 tile on this node" in done.stderr, done.stderr
        done = cluster.run(["srun", "-N1", "-n4", "--gpus-per-task=1", "--dp-tiles=2", "echo", "ran"])
        assert done.returncode != 0 and "ran" not in done.stdout
        assert re.search(r"--dp-tiles=2 asks for 2 tiles a rank, and Slurm has bound rank \d to 1 tile; ", done.stderr), done.stderr
        assert done.stderr.count("slurm-dp:") == 1, done.stderr
        # Asked not to, it binds nobody.
        found = shown(cluster.run(["srun", "-N1", "-n2", "--gres=gpu:4", "--gpu-bind=none", "--dp-tiles=1", "sh", "-c", SHOW], check=True))
        assert [(task["DP_TILE_LIST"], task["CUDA_VISIBLE_DEVICES"], task["open"]) for task in found] == [("0", "0,1", "0123"), ("1", "0,1", "0123")]
    with tiles_conf(cluster, GPUS.replace(" files=/dev/gpu[0-3]", "")):
        done = cluster.run(["srun", "-N1", "-n2", "--gpus-per-task=1", "--dp-tiles=auto", "echo", "ran"])
        assert done.returncode != 0 and "ran" not in done.stdout
        assert "leave out --gpus-per-task and --gpu-bind" in done.stderr


def test_steps_of_one_job_have_what_slurm_gave_each(cluster):
    """Of GPUs Slurm tells a step its own; of the others nobody."""
    def steps(gres):
        # Each task stays until those of the other step are there, too.
        stay = "; mkdir -p met && touch met/$SLURM_STEP_ID.$RANK && until [ $(ls met | wc -l) = 4 ]; do sleep 0.05; done"
        one = f"srun --exact -n2 --gres={gres}:2 --dp-tiles=auto sh -c {shlex.quote(SHOW + stay)}"
        cluster.run(["rm", "-rf", "met"], cwd="/home/alice", check=True)
        return cluster.run(["salloc", "-Q", "-N1", "-n4", f"--gres={gres}:4", "sh", "-c", f"{one} & {one}; wait"], cwd="/home/alice")

    with tiles_conf(cluster, GPUS):
        found = steps("gpu")
        masks = [int(mask, 16) for mask in re.findall("DP_TILE_MASK=(0x[0-9a-f]+)", found.stdout)]
        assert len(masks) == 4 and sum(masks) == 0xf, found.stdout
    with tiles_conf(cluster, SN10):
        found = steps("rdu")
        assert "rank=" not in found.stdout
        assert "this step was given 2 of its job's 4 rdu on this node, and Slurm does not tell which" in found.stderr
    with tiles_conf(cluster, SN30_BY_TILE):
        found = cluster.run(["salloc", "-Q", "-N1", "-n2", "--gres=tile:4", "srun", "--gres=none", "--dp-tiles=auto", "echo", "ran"])
        assert "ran" not in found.stdout and "this step was given none of its job's 4 tile" in found.stderr, found.stderr
    cluster.assert_idle(deadline=40)


@pytest.mark.essential
@pytest.mark.parametrize("words, variables", [("--gpus=1", {}), ("-lG1", {}), ("--gpus-per-node=1", {}), ("--gpus-per-task=1", {}),
                                              ("--cpus-per-task=1", {"SLURM_GPUS": "1"})])
def test_a_step_that_asks_for_gpus_has_none_of_its_jobs_other_gres(cluster, words, variables):
    """Slurm gives another step of the job all of them meanwhile."""
    with tiles_conf(cluster, SN30_BY_TILE):
        found = cluster.run(["salloc", "-Q", "-N1", "-n2", "--gres=gpu:2,tile:8", "env", *(f"{name}={value}" for name, value in variables.items()),
                             "srun", "--exact", "-n1", words, "--dp-tiles=8", "echo", "ran"])
        assert "ran" not in found.stdout
        assert "this step was given none of its job's 8 tile on this node" in found.stderr and found.stderr.count("slurm-dp:") == 1, found.stderr
        # Whoever names them has them.
        kept = cluster.run(["salloc", "-Q", "-N1", "-n2", "--gres=gpu:2,tile:8", "srun", "-n2", "--gres=gpu:2,tile:8", "--dp-tiles=4", "sh", "-c", SHOW])
        assert [task["DP_TILE_MASK"] for task in shown(kept)] == ["0xf", "0xf0"]
    cluster.assert_idle(deadline=40)


@pytest.mark.essential
def test_an_outer_steps_binding_is_not_an_inner_steps(cluster):
    with tiles_conf(cluster, GPUS):
        # What newer Slurms leave the inner srun as options of its own is taken away.
        inner = f"env -u SLURM_TRES_PER_TASK -u SLURM_TRES_BIND srun --overlap -n2 --gres=gpu:4 --dp-tiles=2 sh -c {shlex.quote(SHOW)}"
        found = cluster.run(["salloc", "-Q", "-N1", "-n4", "--gres=gpu:4", "srun", "--overlap", "-n2", "--gpus-per-task=1", "sh", "-c",
                             f"test $SLURM_PROCID != 0 || {inner}"])
    assert [task["DP_TILE_LIST"] for task in shown(found)] == ["0,1", "2,3"], found
    cluster.assert_idle(deadline=40)


def test_a_heterogeneous_step_is_told_why(cluster):
    with tiles_conf(cluster, SN30_BY_TILE):
        done = cluster.run("srun -N1 -n1 --gres=tile:4 --dp-tiles=auto echo ran : -N1 -n1 --gres=tile:4 --dp-tiles=auto echo ran")
    assert "ran" not in done.stdout and "in a heterogeneous step (srun A : B) a node knows only" in done.stderr, done.stderr
    cluster.assert_idle(deadline=40)


def test_steps_that_overlap_share_what_the_job_owns(cluster):
    with tiles_conf(cluster, SN30_BY_TILE):
        step = f"srun --overlap -n2 --dp-tiles=auto sh -c {shlex.quote(SHOW)}"
        found = cluster.run(["salloc", "-Q", "-N1", "-n2", "--gres=tile:4", "sh", "-c", f"{step} & {step}; wait"], check=True).stdout
    masks = re.findall("DP_TILE_MASK=(0x[0-9a-f]+)", found)
    assert len(masks) == 4 and len(set(masks)) == 2, found


def test_sbatch_passes_it_on(cluster):
    with tiles_conf(cluster, SN30_BY_TILE):
        done = cluster.run(["sbatch", "--wait", "-N2", "--ntasks-per-node=2", "--gres=tile:8", "--dp-tiles=4", "-o", "/home/alice/tiles.out",
                            "--wrap", f"srun sh -c {shlex.quote(SHOW)}"], cwd="/home/alice", check=True)
        with open(cluster.host_path("/home/alice/tiles.out"), encoding="utf-8") as text:
            masks = sorted(re.findall("DP_TILE_MASK=(0x[0-9a-f]+)", text.read()))
    assert masks == ["0xf", "0xf", "0xf0", "0xf0"], done.stdout


@pytest.mark.parametrize("conf, options, message", [
    (GPUS, "--gres=gpu:2 --dp-tiles=0", "--dp-tiles=0: not a number of tiles; give auto"),
    (SN30_BY_TILE, "--gres=tile:64 --dp-tiles=65", "--dp-tiles=65 for 2 ranks needs 130 tiles, and the step owns 64 tiles"),
    (GPUS, "--gres=gpu:3 --dp-tiles=auto", "the step owns 3 tiles on this node, which do not divide evenly among 2 ranks; give --dp-tiles=1"),
    (GPUS, "--dp-tiles=1", "the job owns no gpu on this node"),
    (SN10 + " gres=counted", "--gres=counted:2 --dp-tiles=1", "Slurm only counts the gres counted of this node (counted(CNT:2))"),
    (GPUS, "--dp-visible=own", "--dp-visible needs --dp-tiles: it says which of the node's devices a task sees; give --dp-tiles, too"),
    (GPUS, "--dp-tiles=1 --dp-visible=all", "--dp-visible=all: no such view; give node"),
    ("nodes=elsewhere vendor=nvidia devices=1", "--gres=gpu:2 --dp-tiles=1", "/etc/slurm/tiles.conf does not name node node01"),
    (GPUS + " tiles=8", "--gres=gpu:2 --dp-tiles=1", "tiles.conf line 1: \"tiles=8\" is not understood; there are nodes="),
    (GPUS + "\nnodes=node02 vendor=amd devices=1", "--gres=gpu:2 --dp-tiles=1", "tiles.conf line 2: node02 is already in line 1"),
    (GPUS.replace("devices=4", "devices=2").replace("0-3", "0-1"), "--gres=gpu:4 --dp-tiles=1", "Slurm has given gpu 2, but the node's 2 tiles make only 2 units"),
    (GPUS.replace("/dev/gpu", "/dev/none"), "--gres=gpu:2 --dp-tiles=1", "may not open /dev/none0, its device 0: No such file"),
    (GPUS.replace("/dev/gpu[0-3]", "/dev/gpu[3,2,1,0]"), "--gres=gpu:2 --dp-tiles=1",
     "rank 0 may not open /dev/gpu3, its device 0: Operation not permitted"),
])
def test_bad_input(cluster, conf, options, message):
    with tiles_conf(cluster, conf):
        done = cluster.run(f"srun -N1 -n2 -w node01 {options} echo ran")
    assert done.returncode != 0 and "ran" not in done.stdout
    assert done.stderr.count("slurm-dp:") == 1 and message in done.stderr, done.stderr
    cluster.assert_idle(deadline=40)


def test_a_users_own_mask_is_every_ranks_so_it_is_replaced_with_a_warning(cluster):
    with tiles_conf(cluster, SN30_BY_TILE):
        done = cluster.run(["srun", "-N1", "-n2", "--gres=tile:2", "--dp-tiles=1", "sh", "-c", SHOW], env={"SF_RNT_TILE_AFFINITY": "0xff000000"})
    assert [task["SF_RNT_TILE_AFFINITY"] for task in shown(done)] == ["0x1", "0x2"]
    assert done.stderr.count("slurm-dp:") == 1
    assert "SF_RNT_TILE_AFFINITY=0xff000000 came from the job's environment, the same for every task" in done.stderr


def test_without_it_nothing_is_touched(cluster):
    with tiles_conf(cluster, GPUS):
        found = shown(cluster.run(["srun", "-N1", "-n2", "--gres=gpu:2", "--dp-world=auto", "sh", "-c", SHOW]))
    assert all(task["CUDA_VISIBLE_DEVICES"] == "0,1" and "DP_TILE_MASK" not in task for task in found)


# Takes each of the rank's tiles for a while: a folder that only one can make. A FIFO is opened when somebody has opened its other end: whoever waits
# for that needs no CPU, of which a hundred that look again and again leave the cluster nothing.
HOLD = r"""
for tile in $(echo $DP_TILE_LIST | tr , ' '); do
    mkdir /home/shared/held/$(hostname).$tile || echo "TAKEN $(hostname) $tile by $SLURM_JOB_ID"
done
: < /home/shared/pause
sleep $1
for tile in $(echo $DP_TILE_LIST | tr , ' '); do rmdir /home/shared/held/$(hostname).$tile; done
echo done $RANK of $WORLD_SIZE with $DP_TILE_COUNT
"""
LETTERS = string.ascii_letters + string.digits


def running_jobs(cluster):
    return dict(line.split() for line in cluster.run(["squeue", "-h", "-t", "R", "-o", "%A %B"], check=True).stdout.splitlines())


def taken(cluster):
    """How many tiles programs hold."""
    return len(os.listdir(cluster.host_path("/home/shared/held")))


def no_more_taken(cluster):
    before = taken(cluster)
    time.sleep(4)
    return before == taken(cluster) > 0


def picture(cluster):
    """Of all running steps, as each says it in `dpctl top`: a line a node, a place a tile, a letter a job."""
    places = {node: ["."] * 64 for node in cluster.nodes}
    for number, (job, host) in enumerate(sorted(running_jobs(cluster).items(), key=lambda one: int(one[0]))):
        done = cluster.node(host, ["setpriv", "--reuid=alice", "--regid=alice", "--clear-groups", DPCTL, "top", f"{job}.0", "--once", "-i", "0.1",
                                   "--csv"], check=True)
        for row in csv.DictReader(io.StringIO(done.stdout)):
            tile = int(row["tile"])
            assert places[row["host"]][tile] == ".", f"{row['host']} has tile {tile} in two masks"
            places[row["host"]][tile] = LETTERS[number % len(LETTERS)]
    return "\n".join(f"{node} {' '.join(''.join(tiles[first:first + 8]) for first in range(0, 64, 8))}" for node, tiles in places.items())


@pytest.mark.parametrize("jobs", [24, pytest.param(200, marks=pytest.mark.long)])
def test_random_jobs_at_once_never_share_a_tile(another_cluster, jobs):
    cluster = another_cluster(nodes=8)
    rng = random.Random(jobs)
    cluster.run("mkdir -m 777 /home/shared/held && mkfifo /home/shared/pause", check=True)
    with open(cluster.host_path("/home/shared/hold"), "w", encoding="ascii") as script:
        script.write(HOLD)
    with tiles_conf(cluster, SN30_BY_TILE):
        expected = 0
        for job in range(jobs):
            nodes, tasks, tiles = rng.choice([1, 1, 1, 2, 3]), rng.choice([1, 2, 3]), rng.choice([1, 2, 4, 5, 8])
            owned = min(64, tasks * tiles + rng.choice([0, 0, 3]))
            expected += nodes * tasks
            cluster.run(["sbatch", "-N", str(nodes), f"--ntasks-per-node={tasks}", f"--gres=tile:{owned}", f"--dp-tiles={tiles}",
                         "-o", f"/home/alice/random-{job}.out", "--wrap", f"srun sh /home/shared/hold {rng.uniform(0, 1):.1f}"],
                        cwd="/home/alice", check=True)
        # As many as fit at once hold what they have, until the picture is taken.
        until(lambda: no_more_taken(cluster), 180, "no more jobs start")
        drawn = picture(cluster)
        print(f"{len(running_jobs(cluster))} of {jobs} jobs run at once:\n{drawn}")
        assert sum(place not in ". " for line in drawn.splitlines() for place in line.split(" ", 1)[1]) == taken(cluster)
        open_end = os.open(cluster.host_path("/home/shared/pause"), os.O_WRONLY)  # not to be created: another user's in a folder for all
        end = time.monotonic() + 60 + 3 * jobs
        while cluster.run(["squeue", "-h"], check=True).stdout and time.monotonic() < end:
            time.sleep(1)
        os.close(open_end)
    said = ""
    for job in range(jobs):
        with open(cluster.host_path(f"/home/alice/random-{job}.out"), encoding="utf-8") as text:
            said += text.read()
    assert "TAKEN" not in said, said
    assert said.count("done ") == expected, said
    assert os.listdir(cluster.host_path("/home/shared/held")) == []


def test_ranks_have_the_cpus_near_their_tiles(cluster):
    """Two devices, one near each of this machine's first CPUs; ranks near the same one share it. OpenMP's threads follow."""
    cpus = sorted(os.sched_getaffinity(0))
    assert len(cpus) > 1
    near = GPUS + f" cpus={cpus[0]}/{cpus[0]}/{cpus[1]}/{cpus[1]}"
    step = ["srun", "-N1", "-n4", "--gres=gpu:4", "--dp-tiles=1"]
    with tiles_conf(cluster, near):
        done = cluster.run([*step, "sh", "-c", SHOW])
        assert [task["cpus"] for task in shown(done)] == [str(cpu) for cpu in (cpus[0], cpus[0], cpus[1], cpus[1])]
        assert done.stderr == "" and all(task["OMP_NUM_THREADS"] == "1" for task in shown(done))
        # Asked for by the user, a binding is left alone; a word of the program's own is no such wish.
        kept = {task["cpus"] for task in shown(cluster.run([*step, "--cpu-bind=none", "sh", "-c", SHOW]))}
        assert len(kept) == 1 and kept != {str(cpus[0])}
        kept = {task["cpus"] for task in shown(cluster.run([*step, "sh", "-c", SHOW], env={"SLURM_CPU_BIND": "none"}))}
        assert len(kept) == 1 and kept != {str(cpus[0])}
        alone = shown(cluster.run([*step, "sh", "-c", SHOW, "--cpu-bind=none"]))
        assert alone[3]["cpus"] == str(cpus[1])
        alone = shown(cluster.run(["srun", "-N1", "-n2", "--gpus-per-task=1", "--dp-tiles=auto", "sh", "-c", SHOW]))
        assert [task["cpus"] for task in alone] == [str(cpus[0])] * 2


def test_where_no_cpu_is_near_slurms_binding_stays_with_a_warning(cluster):
    with tiles_conf(cluster, GPUS + " cpus=9000/9000/9001/9001"):
        done = cluster.run(["srun", "-N1", "-n4", "--gres=gpu:4", "--dp-tiles=1", "sh", "-c", SHOW])
    assert len({task["cpus"] for task in shown(done)}) == 1
    assert done.stderr.count("slurm-dp:") == 2, "one for each place"
    assert "the tiles of rank 0 are near CPUs 9000, but Slurm gave it" in done.stderr


def test_memory_near_the_tiles_is_preferred(cluster):
    with tiles_conf(cluster, GPUS + " numa=0,0,0,0"):
        done = cluster.run(["srun", "-N1", "-n1", "--gres=gpu:1", "--dp-tiles=1", "head", "-n", "1", "/proc/self/numa_maps"], check=True)
    assert " prefer:0 " in done.stdout or " prefer (many):0 " in done.stdout, done.stdout
