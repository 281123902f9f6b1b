# SPDX-License-Identifier: Apache-2.0
"""`dpctl stacks`: the functions that the processes of a node are in, with the Python of the Slurm that is tested."""
import os
import re
import subprocess

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


SOLVER = """#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) void solve(void) { for (volatile long i = 0;; i = i + 1); }
__attribute__((noinline)) void wait_for_peers(void) { for (;;) pause(); }
int main(void) {
    puts("here");
    fflush(stdout);
    if (atoi(getenv("RANK")) == 1) solve();
    wait_for_peers();
}
"""


def python_part(text):
    """Without the calls whose lines are not known: those of libraries that Python has called."""
    return re.sub(r"    \S+ \([^:\n]*\)\n", "", text)


def running(cluster, tmp_path_factory, where, *command):
    """→ a script that four ranks run, and their processes by rank, until the generator is closed."""
    folder = os.path.join("/home/alice", tmp_path_factory.mktemp("stacks").name)
    cluster.run(["mkdir", folder], check=True)
    script = os.path.join(folder, "train.py")
    with open(cluster.host_path(script), "w", encoding="ascii") as file:
        file.write(RANKS)
    srun = cluster.popen(["srun", *where, "-n4", "--dp-world=auto", *command, script], cwd=folder)
    pids = dict(map(int, srun.stdout.readline().split()) for _ in range(4))
    yield script, [pids[rank] for rank in range(4)]
    cluster.run(["scancel", "-u", "alice"])
    srun.wait(timeout=60)
    cluster.run(["rm", "-r", folder], check=True)
    cluster.assert_nothing_left(deadline=10)
    cluster.assert_idle(deadline=30)


@pytest.fixture
def ranks(cluster, tmp_path_factory):
    yield from running(cluster, tmp_path_factory, ["-w", "node02", "-N1"], "python3")


@pytest.fixture
def ranks_on_two_nodes(cluster, tmp_path_factory):
    """Each is a shell that has started Python."""
    yield from running(cluster, tmp_path_factory, ["-w", "node[01-02]", "-N2", "--ntasks-per-node=2", "-m", "block"], "bash", "-c", 'python3 "$0"; true')


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
        return python_part(shown[-1].stdout) == awaited

    def shows_thread():
        return re.search(r"\n  and thread \d+: Condition\.wait \(threading\.py:\d+\)\n", stacks(cluster, "--threads", "--pid", pids[2]).stdout)

    until(is_shown, 10, "three ranks that are alike")
    until(shows_thread, 10, "the thread of rank 2")
    assert re.search(r"    \S*pause \(\S*/libc\.so\.6\)\n(    signal_pause .*\n)?    all_reduce ", shown[-1].stdout), shown[-1]


def test_another_users_processes_are_not_read(cluster, ranks):
    _, pids = ranks
    done = stacks(cluster, "--pid", pids[0], user="bob")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"dpctl: process {pids[0]} may not be read: it is another user's, or has changed its user\n"
    until(lambda: stacks(cluster, "--pid", pids[0]).stdout.startswith(f"process {pids[0]}: all_reduce "), 10, "rank 0 in its all-reduce")
    done = stacks(cluster, "--pid", pids[0], NOBODY)
    assert done.returncode == 1 and done.stdout.startswith(f"process {pids[0]}: all_reduce "), done
    assert done.stderr == f"dpctl: there is no process {NOBODY}\n"


def test_the_ranks_of_a_step_on_all_its_nodes(cluster, ranks_on_two_nodes):
    script, _ = ranks_on_two_nodes
    rank_2 = (f"rank 2 on node02: Loader.load_batch (train.py:8)\n"
              f"    Loader.load_batch ({script}:8)\n"
              f"    <module> ({script}:15)\n")
    awaited = (f"3 ranks (0-1,3): all_reduce (train.py:4)\n"
               f"    all_reduce ({script}:4)\n"
               f"    <module> ({script}:16)\n" + rank_2)

    def is_shown():
        done = stacks(cluster)
        assert done.returncode == 0 and done.stderr == "", done
        return python_part(done.stdout) == awaited

    until(is_shown, 10, "three ranks that are alike, on two nodes")
    assert python_part(stacks(cluster, "--rank", 2).stdout) == rank_2
    assert re.search(r"\n  and thread \d+: Condition\.wait \(threading\.py:\d+\)\n", stacks(cluster, "--threads", "--rank", 2).stdout)
    done = stacks(cluster, "--rank", "1,4")
    assert (done.returncode, done.stderr) == (1, "dpctl: there is no rank 4: the world has ranks 0 to 3\n"), done
    done = stacks(cluster, user="bob")
    assert done.returncode == 1 and done.stderr.startswith("dpctl: no step of yours has a world on this node; "), done
    with cluster.cut_off("node02"):
        done = stacks(cluster)
        assert done.returncode == 1 and "the rendezvous daemon does not answer" in done.stderr, done


def test_ranks_of_a_c_program(cluster, tmp_path_factory):
    """That shells have started; rank 1 computes."""
    folder = os.path.join("/home/alice", tmp_path_factory.mktemp("stacks").name)
    cluster.run(["mkdir", folder], check=True)
    solver = os.path.join(folder, "solver")
    subprocess.run(["gcc", "-g", "-O1", "-o", cluster.host_path(solver), "-x", "c", "-"], input=SOLVER, text=True, check=True)
    srun = cluster.popen(["srun", "-w", "node[01-02]", "-N2", "-n4", "--dp-world=auto", "bash", "-c", f"{solver}; true"])
    for _ in range(4):
        assert srun.stdout.readline() == "here\n"
    done = []

    def is_shown():
        done.append(stacks(cluster))
        return done[-1].returncode == 0 and re.fullmatch(
            r"3 ranks \(0,2-3\): wait_for_peers \(\S*:5\)\n"
            r"    \S*pause \(\S*/libc\.so\.6\)\n"
            r"    wait_for_peers \(\S*:5\)\n"
            r"    main \(\S*:10\)\n"
            r"rank 1 on node01: solve \(\S*:4\)\n"
            r"    solve \(\S*:4\)\n"
            r"    main \(\S*:9\)\n", done[-1].stdout)

    try:
        until(is_shown, 10, "three ranks that wait and one that computes")
    except Exception:
        print(done[-1])
        raise
    cluster.run(["scancel", "-u", "alice"])
    srun.wait(timeout=60)
    cluster.run(["rm", "-r", folder], check=True)
    cluster.assert_idle(deadline=30)
