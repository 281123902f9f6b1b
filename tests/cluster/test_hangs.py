# SPDX-License-Identifier: Apache-2.0
"""--dp-hang-timeout: of four ranks on two nodes one does something else than to take part in a collective. It is named if it hangs, and left alone
if it works."""
import contextlib
import os
import re
import signal
import threading
import time

import pytest
from conftest import planted_on

pytestmark = pytest.mark.usefixtures("one_step_each")

HOME = "/home/alice/hangs"
PACKAGES = f"{HOME}/site-packages"  # where PyTorch's file of this name is
TIMEOUT = 3
# A collective ends once rank 3 has come to it.
COLLECTIVES = """import os

RANK = int(os.environ["RANK"])

def _wait(name):
    if RANK == 3:
        for rank in range(3):
            os.close(os.open(f"{name}-{rank}", os.O_WRONLY))
    else:
        os.close(os.open(f"{name}-{RANK}", os.O_RDONLY))

def all_reduce():
    _wait("all_reduce")

def broadcast():
    _wait("nothing")
"""
TRAIN = """import hashlib, os, signal, subprocess, sys, threading, time
from distributed_c10d import RANK, all_reduce, broadcast

TIMEOUT = float(os.environ["DP_HANG"])

class Dies(threading.Thread):
    def run(self):
        lock.acquire()

lock = threading.Lock()

def load_batch(kind):
    end = time.monotonic() + 3 * TIMEOUT
    if kind == "sleep":
        time.sleep(1000)
    elif kind == "lock":
        thread = Dies()
        thread.start()
        thread.join()
        lock.acquire()
    elif kind == "fifo":
        os.open("nobody-writes", os.O_RDONLY)
    elif kind == "stdin":
        sys.stdin.read()
    elif kind == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "spins":
        while True:
            pass
    elif kind == "file system":
        open("dead/batch-1")
    elif kind == "shell":
        subprocess.run("sleep 1000; true", shell=True)
    elif kind == "computes":
        while time.monotonic() < end:
            [i * i for i in range(1000)]
    elif kind == "compiles":
        subprocess.run([sys.executable, "-c", f"import time\\nend = time.monotonic() + {3 * TIMEOUT}\\nwhile time.monotonic() < end: pass"])
    elif kind == "library":
        begun, some = time.monotonic(), 500000
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", some)
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", int(some * 3 * TIMEOUT / (time.monotonic() - begun)))
    elif kind == "saves":
        with open("checkpoint", "wb", buffering=0) as file:
            while time.monotonic() < end:
                file.write(bytes(30000))
                time.sleep(0.2)
    elif kind == "rhythm":
        for pause in (0.9, 0.1, 0.8, 0.8, 0.2, 0.9, 0.9, 0.9):
            time.sleep(pause * TIMEOUT)

def train(kind):
    if RANK == 3:
        load_batch(kind)
    all_reduce()

print("here", flush=True)
kind = sys.argv[1]
if RANK == 3 and kind == "left":
    sys.exit()
if RANK == 3 and kind == "other":
    broadcast()
if kind == "once":
    kind = "sleep" if os.environ["DP_GENERATION"] == "0" else "works"
train(kind)
"""
OTHERS = r"ranks 0-2 on node\[01-02\] wait in all_reduce \(distributed_c10d.py:\d+\)"
NO_PROGRESS = r"slurm-dp: no progress for \d+ s \(--dp-hang-timeout\): "


@pytest.fixture(scope="module")
def home(cluster):
    cluster.run(f"mkdir -p {PACKAGES} && cd {HOME} && mkfifo nobody-writes && for rank in 0 1 2; do mkfifo all_reduce-$rank nothing-$rank; done", check=True)
    for name, text in (("site-packages/distributed_c10d.py", COLLECTIVES), ("train.py", TRAIN)):
        with open(cluster.host_path(f"{HOME}/{name}"), "w", encoding="ascii") as file:
            file.write(text)
    yield HOME
    cluster.run(["rm", "-r", HOME], check=True)


@contextlib.contextmanager
def train(cluster, home, kind, *options):
    """→ srun's process, once all ranks run. Its standard input has no end."""
    reader, writer = os.pipe()
    with open(reader), open(writer, "w"):
        step = cluster.popen(["srun", "-N2", "-n4", "--ntasks-per-node=2", "-m", "block", f"--dp-hang-timeout={TIMEOUT}", *options, "python3", "train.py", kind],
                             cwd=home, env={"DP_HANG": str(TIMEOUT), "PYTHONPATH": PACKAGES}, stdin=reader)
        too_late = threading.Timer(90, step.kill)
        too_late.start()
        for _ in range(4):
            assert step.stdout.readline() == "here\n"
        yield step
        step.wait(timeout=60)
        too_late.cancel()


def ours(step):
    return [line.rstrip("\n") for line in step.stderr if line.startswith("slurm-dp:")]


WHERE = r"load_batch \(train.py:\d+\)"


@pytest.mark.parametrize(("kind", "named"), [
    ("sleep", f"is in {WHERE}.*"), ("lock", f"is in {WHERE}.*"), ("fifo", f"is in {WHERE}.*"), ("stdin", f"is in {WHERE}.*"), ("shell", f"is in {WHERE}.*"),
    ("spins", f"is in {WHERE}.*"), ("stopped", f"is in {WHERE}.*, stopped by a signal"), ("left", "ended before the others"),
    ("other", r"waits in broadcast \(distributed_c10d.py:\d+\)")])
def test_the_rank_that_hangs_is_named_and_the_step_ends(cluster, home, kind, named):
    with train(cluster, home, kind) as step:
        lines = [line for line in ours(step) if "were stopped by" not in line and "was stopped by" not in line]
    assert step.returncode != 0
    assert len(lines) == 1 and re.fullmatch(f"{NO_PROGRESS}rank 3 on node02 {named}; {OTHERS}; ending the step", lines[0]), lines
    cluster.assert_nothing_left(deadline=5)


MOUNT = """import ctypes, os, sys, time
os.mknod("/dev/fuse-of-test", 0o20600, os.makedev(10, 229))
device = os.open("/dev/fuse-of-test", os.O_RDWR)
os.unlink("/dev/fuse-of-test")
options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
if ctypes.CDLL(None, use_errno=True).mount(b"dead", sys.argv[1].encode(), b"fuse", 0, options.encode()) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
if os.fork() == 0:
    os.setsid()
    for stream in range(3):
        os.dup2(os.open("/dev/null", os.O_RDWR), stream)
    print(os.getpid(), file=open(sys.argv[2], "w"))
    time.sleep(1000)
"""


def test_a_file_system_that_never_answers(cluster, home):
    """As a dead NFS server's: in user space (FUSE), by a program that reads no request."""
    with open(cluster.host_path(f"{HOME}/mount.py"), "w", encoding="ascii") as file:
        file.write(MOUNT)
    plant = f"mkdir {HOME}/dead && python3 {HOME}/mount.py {HOME}/dead /run/dead.pid && while ! test -s /run/dead.pid; do sleep 0.05; done"
    undo = f"umount -l {HOME}/dead; kill $(cat /run/dead.pid); rm /run/dead.pid; rmdir {HOME}/dead"
    with planted_on(cluster, "node02", plant, undo), train(cluster, home, "file system") as step:
        lines = ours(step)
    assert step.returncode != 0
    assert len(lines) == 1 and re.fullmatch(f"{NO_PROGRESS}rank 3 on node02 is in {WHERE}.*in a system call that does not return.*; {OTHERS}; ending the step", lines[0]), lines
    cluster.assert_nothing_left(deadline=5)


@pytest.mark.parametrize("kind", ["computes", "compiles", "library", "saves", "rhythm"])
def test_a_rank_that_works_is_left_alone(cluster, home, kind):
    with train(cluster, home, kind) as step:
        assert ours(step) == []
    assert step.returncode == 0


def test_the_next_generation_begins(cluster, home):
    with train(cluster, home, "once", "--dp-on-failure=restart") as step:
        lines = ours(step)
    assert step.returncode == 0, lines
    assert re.fullmatch(rf"{NO_PROGRESS}rank 3 on node02 is in {WHERE}.*; {OTHERS}; generation 1 began \d+\.\d\d s later", lines[0]), lines


def test_a_rank_that_goes_on_is_told_of(cluster, home):
    with train(cluster, home, "stopped", "--dp-on-failure=report") as step:
        for line in step.stderr:
            if "no progress" in line:
                break
        assert line.endswith("; the step goes on (--dp-on-failure=report)\n"), line
        for process in cluster.processes(["node02"]):
            os.kill(process["pid"], signal.SIGCONT)
        lines = ours(step)
    assert step.returncode == 0, lines
    assert any(re.fullmatch(r"slurm-dp: rank \d on node0\d moves again, after \d+ s without progress", line) for line in lines), lines


def test_a_suspended_step_does_not_hang(cluster, home):
    with train(cluster, home, "rhythm") as step:
        job = cluster.run(["squeue", "--noheader", "--format=%A"], check=True).stdout.strip()
        cluster.run(["scontrol", "suspend", job], user="root", check=True)
        time.sleep(2 * TIMEOUT)
        cluster.run(["scontrol", "resume", job], user="root", check=True)
        lines = ours(step)
    assert step.returncode == 0 and not any("no progress" in line for line in lines), lines
