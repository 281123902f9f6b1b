# SPDX-License-Identifier: Apache-2.0
"""What the plugin leaves in the processes that it is loaded into: in a task the file that DP_HOSTFILE names, in slurmstepd one socket, and
no memory in any."""
import collections
import os
import re
import shutil
import signal
import time

import pytest
from localcluster.harness import BUILD, until
from localcluster.names import CHECKOUT

RANK = os.path.join(BUILD, "tests/rank")
STEP = ["srun", "-N2", "-n4", "--ntasks-per-node=2"]


# ---- descriptors ----

def descriptors(pid):
    """{number: what it is}, without the numbers of inodes."""
    found = {}
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[int(number)] = re.sub(r":?\[\d+\]", "", os.readlink(f"/proc/{pid}/fd/{number}"))
        except FileNotFoundError:
            pass  # the reader's own
    return found


def settled(processes):
    """Of each process the shortest list of ten looks in a second: slurmstepd has a connection open now and then."""
    looks = []
    for _ in range(10):
        looks.append([descriptors(p["pid"]) for p in processes])
        time.sleep(0.1)
    return [min(of_one, key=len) for of_one in zip(*looks)]


def of_running_step(cluster, *words):
    """Descriptors of the tasks and of their slurmstepds while the program runs: ([…], […])."""
    step = cluster.popen([*STEP, *words, "sh", "-c", "echo up; exec sleep 60"])
    assert [step.stdout.readline() for _ in range(4)] == ["up\n"] * 4

    def sleeping():
        return [p for p in cluster.processes() if "sleep 60" in p["command"] and "echo" not in p["command"]]

    until(lambda: len(sleeping()) == 4, 5, "the tasks sleep")
    tasks = sleeping()
    stepds = [p for p in cluster.processes() if re.match(r"slurmstepd: \[\d+\.0\]", p["command"])]
    found = settled(tasks), settled(stepds)
    step.send_signal(signal.SIGINT)
    step.send_signal(signal.SIGINT)
    cluster.run(["scancel", "-u", "alice"])
    step.communicate(timeout=30)
    cluster.assert_idle()
    return found


def without_hostfile(task):
    """A task's descriptors but the one of the file that DP_HOSTFILE names, which has to be there."""
    kept = {number: name for number, name in task.items() if "slurm-dp-hostfile" not in name}
    assert len(kept) == len(task) - 1, task
    return kept


def test_a_task_has_the_descriptors_that_it_has_without_the_plugin(cluster, another_cluster):
    bare = another_cluster(plugin="none")
    tasks_without, stepds_without = of_running_step(bare)
    tasks_idle, stepds_idle = of_running_step(cluster)
    tasks_with, stepds_with = of_running_step(cluster, "--dp-world=auto")
    assert len(tasks_without) == len(tasks_with) == 4 and len(stepds_without) == len(stepds_with) == 2
    assert tasks_without[0] and tasks_idle == tasks_without
    assert [without_hostfile(task) for task in tasks_with] == tasks_without
    # slurmstepd: nothing without an option; with one the socket by which its tasks' daemon hears of them.
    kinds = [collections.Counter(d.values()) for d in (stepds_without + stepds_idle + stepds_with)]
    for counter in kinds:
        for name in [n for n in counter if n.endswith(".log")]:
            del counter[name]
    assert kinds[1:4] == kinds[:1] * 3
    for counter in kinds[4:]:
        assert counter - kinds[0] == collections.Counter({"socket": 1})


# ---- memory, under valgrind ----

OURS = {os.path.splitext(name)[0] for folder in ("spank", "runtime/common") for name in os.listdir(os.path.join(CHECKOUT, folder))}
VALGRIND = ["valgrind", "--leak-check=full", "--show-leak-kinds=definite,indirect,possible", "--keep-debuginfo=yes", "--num-callers=40",
            "--trace-children=no"]


def complaints(texts):
    """valgrind's reports with a frame of the plugin in them. Slurm's own (there are hundreds) do not count. texts: a process's each;
    of one that became another program there is no report."""
    split = [re.split(r"(?m)^==\d+== \n", text) for text in texts if "ERROR SUMMARY" in text]
    assert max(len(reports) for reports in split) > 10, texts  # Slurm's own show that valgrind looked

    def ours(report):
        # Slurm's copies of our table of options: its own forks end without freeing them.
        if "slurm_xcalloc" in report and "register_options" in report:
            return False
        return "spank_dp.so" in report or any(name.split(".")[0] in OURS for name in re.findall(r"\((\w+\.[ch]pp):\d+\)", report))

    return [report for reports in split for report in reports if ours(report)]


def texts_in(folder, prefix=""):
    """What is in the files of a folder."""
    found = []
    for name in sorted(os.listdir(folder)):
        if name.startswith(prefix):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as text:
                found.append(text.read())
    return found


@pytest.mark.parametrize("command", [
    ["srun", "-N2", "-n4", "true"],
    ["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-world=auto", "--dp-timeout=60", RANK, "world"],
    ["srun", "-n2", "--dp-world=9", "true"],
    ["salloc", "-Q", "-n2", "--dp-world=auto", "true"],
    ["sbatch", "-n2", "--dp-world=auto", "--wrap", "true"],
], ids=lambda command: command[0] + ("" if "--dp-world" not in " ".join(command) else " --dp-world"))
def test_commands_lose_no_memory_through_the_plugin(cluster, command):
    # A file for each process: the command's forks write reports too, in the middle of its own.
    folder = cluster.host_path("/home/alice/valgrind")
    shutil.rmtree(folder, ignore_errors=True)
    done = cluster.run(["sh", "-c", 'mkdir /home/alice/valgrind && exec "$@"', "sh",
                        *VALGRIND, "--log-file=/home/alice/valgrind/%p.log", *command], cwd="/home/alice", timeout=60)
    assert (done.returncode == 0) == ("--dp-world=9" not in command), done.stderr[-3000:]
    assert complaints(texts_in(folder)) == []
    cluster.assert_idle(deadline=10)


STEPD = """#!/bin/sh
exec {valgrind} --log-file=/home/shared/valgrind-%p.log /usr/sbin/slurmstepd "$@"
"""


def test_slurmstepd_loses_no_memory_through_the_plugin(another_cluster):
    """slurmd starts slurmstepd under valgrind, which follows it into the forks that become tasks."""
    one = another_cluster()
    path = one.host_path("/home/shared/slurmstepd")
    with open(path, "w", encoding="ascii") as out:
        out.write(STEPD.format(valgrind=" ".join(VALGRIND)))
    os.chmod(path, 0o755)
    one.restart_slurmd("node02", "-d /home/shared/slurmstepd")
    done = one.run([*STEP, "--dp-world=auto", "--dp-timeout=60", RANK, "world"], timeout=90, check=True)
    assert done.stdout.count("size=4") == 4
    shared = one.host_path("/home/shared")

    def logs():
        return texts_in(shared, "valgrind-")

    # slurmstepd itself, whose forks (and theirs, as far as they do not become other programs) have logs of their own.
    until(lambda: [t for t in logs() if "ERROR SUMMARY" in t and "mgr_launch_tasks_setup" in t], 30, "slurmstepd has ended")
    one.assert_idle(deadline=20)
    assert complaints(logs()) == []
