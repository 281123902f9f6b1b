# SPDX-License-Identifier: Apache-2.0
"""`dpctl stacks`: the lines of Python that the processes of a node are in, with the Python of the Slurm that is tested."""
import os
import re

import pytest
from localcluster.harness import BUILD, until

NOBODY = 4194304  # larger than any pid
DPCTL = os.path.join(BUILD, "bin/dpctl")
RANKS = """import os, signal, threading

def all_reduce():
    signal.pause()

class Loader:
    def load_batch(self, fifo):
        with open(fifo):
            pass

threading.Thread(target=threading.Event().wait, daemon=True).start()
os.mkfifo(f"fifo-{os.environ['RANK']}")
print(os.environ["RANK"], os.getpid(), flush=True)
if os.environ["RANK"] == "2":
    Loader().load_batch("fifo-2")
all_reduce()
"""


@pytest.fixture
def ranks(cluster, tmp_path_factory):
    """→ a running step of four ranks on node02, and their processes by rank."""
    folder = os.path.join("/home/alice", tmp_path_factory.mktemp("stacks").name)
    cluster.run(["mkdir", folder], check=True)
    script = os.path.join(folder, "train.py")
    with open(cluster.host_path(script), "w", encoding="ascii") as file:
        file.write(RANKS)
    srun = cluster.popen(["srun", "-w", "node02", "-N1", "-n4", "--dp-world=auto", "python3", script], cwd=folder)
    pids = dict(map(int, srun.stdout.readline().split()) for _ in range(4))
    yield script, [pids[rank] for rank in range(4)]
    cluster.run(["scancel", "-u", "alice"])
    srun.wait(timeout=60)
    cluster.run(["rm", "-r", folder], check=True)
    cluster.assert_nothing_left(deadline=10)
    cluster.assert_idle(deadline=30)


def stacks(cluster, *words, user="alice"):
    return cluster.node("node02", ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", DPCTL, "stacks", *map(str, words)])


def test_the_rank_that_does_something_else_stands_out(cluster, ranks):
    script, pids = ranks
    others = ", ".join(str(pid) for rank, pid in enumerate(pids) if rank != 2)
    awaited = (f"3 processes ({others}): all_reduce (train.py:4)\n"
               f"    all_reduce ({script}:4)\n"
               f"    <module> ({script}:16)\n"
               f"process {pids[2]}: Loader.load_batch (train.py:8)\n"
               f"    Loader.load_batch ({script}:8)\n"
               f"    <module> ({script}:15)\n")
    shown = []

    def is_shown():
        shown.append(stacks(cluster, "--pid", *pids))
        assert shown[-1].returncode == 0 and shown[-1].stderr == "", shown[-1]
        return shown[-1].stdout == awaited

    def shows_thread():
        return re.search(r"\n  and thread \d+: Condition\.wait \(threading\.py:\d+\)\n", stacks(cluster, "--threads", "--pid", pids[2]).stdout)

    until(is_shown, 10, "three ranks that are alike")
    until(shows_thread, 10, "the thread of rank 2")


def test_another_users_processes_are_not_read(cluster, ranks):
    _, pids = ranks
    done = stacks(cluster, "--pid", pids[0], user="bob")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"dpctl: process {pids[0]} may not be read: it is another user's, or has changed its user\n"
    until(lambda: stacks(cluster, "--pid", pids[0]).stdout.startswith(f"process {pids[0]}: all_reduce "), 10, "rank 0 in its all-reduce")
    done = stacks(cluster, "--pid", pids[0], NOBODY)
    assert done.returncode == 1 and done.stdout.startswith(f"process {pids[0]}: all_reduce "), done
    assert done.stderr == f"dpctl: there is no process {NOBODY}\n"
