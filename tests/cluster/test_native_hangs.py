# SPDX-License-Identifier: Apache-2.0
"""--dp-hang-timeout and programs without Python: one with libdp, the bundled trainer, a shell script. Of four ranks on two nodes one hangs."""
import os
import re
import signal
import subprocess
import threading
import time

import pytest
from localcluster.harness import BUILD, until

pytestmark = pytest.mark.usefixtures("one_step_each")

TIMEOUT = 3
RANK = os.path.join(BUILD, "tests/rank")
TRAINER = os.path.join(BUILD, "bin/trainer")
NO_PROGRESS = r"slurm-dp: no progress for \d+ s \(--dp-hang-timeout\): "


def start(cluster, *program):
    step = cluster.popen(["srun", "-N2", "--ntasks-per-node=2", "-m", "block", f"--dp-hang-timeout={TIMEOUT}", *program], cwd="/home/alice")
    too_late = threading.Timer(90, step.kill)
    too_late.start()
    return step, too_late


def lines_of(step, too_late):
    _, errors = step.communicate()
    too_late.cancel()
    assert step.returncode != 0, errors
    return [line for line in errors.splitlines() if line.startswith("slurm-dp: ")]


def test_a_rank_that_never_opens_its_world(cluster):
    lines = lines_of(*start(cluster, RANK, "late", "3", "1000"))
    assert len(lines) == 1 and re.match(NO_PROGRESS + r"rank 3 on node02 is in .*; ranks 0-2 on node\[01-02\] wait in dp_barrier \(.*; ending the step", lines[0]), lines


def test_a_rank_of_the_trainer_that_is_stopped(cluster):
    step, too_late = start(cluster, TRAINER, "--model=linear", "--device=cpu", "--steps=100000000", "--batch-size=8", "--no-cache", "--log-interval=1")
    while "epoch 3/" not in step.stdout.readline():
        assert step.poll() is None
    (victim, *_) = sorted(process["pid"] for process in cluster.processes(["node02"]) if process["command"].startswith(TRAINER))
    os.kill(victim, signal.SIGSTOP)
    lines = lines_of(step, too_late)
    verdicts = [line for line in lines if "no progress" in line]
    assert len(verdicts) == 1, lines
    told = re.match(NO_PROGRESS + r"rank [23] on node02 is in [^;]*, stopped by a signal; (.*); ending the step", verdicts[0])
    # For the other ranks of their node, or for the sum over both nodes.
    assert told and all(re.match(r"ranks? [\d,-]+ on \S+ waits? in dp::trainer::", place) for place in told[1].split("; ")), lines


def test_a_trainer_that_works_is_left_alone(cluster):
    """For three timeouts, however many steps these are."""
    step, too_late = start(cluster, TRAINER, "--model=unet2d", "--device=cpu", "--init-features=32", "--samples=64", "--batch-size=4",
                           "--steps=1000000", "--epochs=1000000", "--no-cache")
    until(lambda: len([one for one in cluster.processes() if one["command"].startswith(TRAINER)]) == 4, 30, "all ranks are there")
    time.sleep(3 * TIMEOUT)
    assert step.poll() is None
    cluster.run(["scancel", "-u", "alice"], check=True)
    assert not [line for line in lines_of(step, too_late) if "no progress" in line]


def test_a_shell_script(cluster):
    cluster.run("rm -rf hang-fifos; mkdir hang-fifos; for i in 0 1 2 3; do mkfifo hang-fifos/$i; done", cwd="/home/alice", check=True)
    lines = lines_of(*start(cluster, "sh", "-c", "if test $RANK = 3; then sleep 1000; true; else read answer < hang-fifos/$RANK; fi"))
    assert len(lines) == 1 and re.match(NO_PROGRESS + r"rank 3 on node02 is in .*; ranks 0-2 on node\[01-02\] are in .*; ending the step", lines[0]), lines


# As a file system would that no longer answers, but for one rank and for the thread beside the training alone: what that writes is not taken.
NO_ANSWER = """#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

ssize_t write(int file, const void* from, size_t bytes) {
    const char* const rank = getenv("DP_RANK");
    if (rank != NULL && strcmp(rank, "3") == 0 && gettid() != getpid()) {
        char link[64], name[1000] = "";
        strcpy(link, "/proc/self/fd/");
        char digits[16];
        int count = 0;
        for (int left = file; count == 0 || left > 0; left /= 10) digits[count++] = (char)('0' + left % 10);
        for (size_t end = strlen(link); count > 0; link[end] = 0) link[end++] = digits[--count];
        if (readlink(link, name, sizeof name - 1) > 0 && strstr(name, "/saved/") != NULL) open("/home/alice/no-answer", O_RDONLY);
    }
    return syscall(SYS_write, file, from, bytes);
}
"""


def test_a_checkpoint_that_is_written_in_the_background_and_never_ends(cluster, tmp_path):
    """Named is who waits for its own write, and not those that wait for it."""
    (tmp_path / "no-answer.c").write_text(NO_ANSWER, encoding="ascii")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", cluster.host_path("/home/alice/no-answer.so"), "no-answer.c"], cwd=tmp_path, check=True)
    cluster.run("rm -rf saved no-answer; mkdir saved && mkfifo no-answer", cwd="/home/alice", check=True)
    lines = lines_of(*start(cluster, "env", "LD_PRELOAD=/home/alice/no-answer.so", TRAINER, "--model=linear", "--device=cpu", "--steps=100000000",
                            "--batch-size=8", "--no-cache", "--checkpoint-dir=/home/alice/saved", "--save-interval=20", "--async-save"))
    verdicts = [line for line in lines if "no progress" in line]
    assert len(verdicts) == 1, lines
    assert re.match(NO_PROGRESS + r"rank 3 on node02 is in dp::trainer::Checkpoint(er|ing)::finish\b.* \(trainer\), in syscall;", verdicts[0]), verdicts
    assert re.search(r"; ranks? 0[^;]* waits? in .*; rank 2 on node02 waits in ", verdicts[0]), verdicts
