# SPDX-License-Identifier: Apache-2.0
"""The local cluster leaves nothing: down ends all of it, also after an `up` that was killed, interrupted or failed."""
import glob
import os
import re
import signal
import socket
import subprocess
import threading
import time

import pytest
from conftest import cluster_name
from localcluster.harness import SCRIPT, TestCluster, until
from localcluster.names import BASE


def traces(name):
    """Everything of a cluster of that name that this machine can show."""
    found = []
    for cgroup in glob.glob("/proc/[0-9]*/cgroup"):
        try:
            with open(cgroup, encoding="utf-8") as lines, open(cgroup.replace("cgroup", "stat"), encoding="utf-8") as stat:
                # Version 2's line is also there while the kernel takes a dead process apart.
                if any(f"/slurm-dp.{name}/" in line for line in lines if not line.startswith("0::")) and stat.read().rsplit(")", 1)[1].split()[0] != "Z":
                    found.append(cgroup)
        except OSError:
            pass
    with open("/proc/mounts", encoding="utf-8") as mounts:
        found += [line for line in mounts if f"slurm-dp-cluster/{name}" in line or line.startswith("slurm-dp")]
    found += glob.glob(f"/sys/fs/cgroup/*/slurm-dp.{name}")
    found += glob.glob(f"{BASE}/{name}")
    return found


def sleeping(cluster):
    return len([p for p in cluster.processes() if p["command"].endswith("sleep 300")])


def namespaces(name, of_nobody=False):
    """Those of the processes of one cluster; also of those that are of no cluster."""
    found = set()
    for process in glob.glob("/proc/[0-9]*"):
        try:
            with open(f"{process}/cgroup", encoding="utf-8") as text:
                clusters = set(re.findall(r"/slurm-dp\.([^/\n]+)", text.read()))
            if name not in clusters and (clusters or not of_nobody):
                continue
            found.update(os.readlink(f"{process}/ns/{kind}") for kind in ("net", "mnt", "uts", "pid", "ipc", "cgroup"))
        except OSError:
            pass
    return found


def test_down_leaves_nothing(cluster):
    devices = {name for _, name in socket.if_nameindex()}
    second = TestCluster(cluster_name("-b"), nodes=3)
    second.up()
    try:
        # A head, a switch and three nodes, six kinds each; none is this process's own.
        its = namespaces(second.name) - namespaces(cluster.name)
        assert len(its) == 5 * 6
        assert not its & {os.readlink(f"/proc/self/ns/{kind}") for kind in ("net", "mnt", "uts", "pid", "ipc", "cgroup")}
        assert traces(second.name)
        # Two clusters, one machine: each has a node01, and a job here is not seen there.
        job = second.popen("srun -N3 sleep 300")
        until(lambda: sleeping(second) == 3, 10, "three tasks sleep")
        assert cluster.run("squeue -h", check=True).stdout == ""
    finally:
        second.down()
    assert traces(second.name) == []
    job.communicate(timeout=10)
    deadline = time.monotonic() + 10  # the kernel takes namespaces apart in the background
    # It gives their numbers out again, also to a cluster that another test starts meanwhile.
    while left := namespaces(second.name, of_nobody=True) & its:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    assert {name for _, name in socket.if_nameindex()} == devices
    assert cluster.run("srun -N2 true").returncode == 0
    assert "nothing to do" in second.script("down").stdout


def test_down_ends_a_suspended_job(another_cluster):
    # On cgroup version 1, a frozen process does not even die of SIGKILL before it is thawed.
    third = another_cluster(cgroup="v1")
    job = third.popen("srun -N2 sleep 300")
    until(lambda: sleeping(third) == 2, 10, "two tasks sleep")
    third.run("scontrol suspend 1", user="root", check=True)
    frozen = glob.glob(f"/sys/fs/cgroup/freezer/slurm-dp.{third.name}/node*/slurm_*/uid_*/job_*/step_0/freezer.state")
    until(lambda: all(open(state, encoding="ascii").read() == "FROZEN\n" for state in frozen), 10, "the job is frozen")
    third.down()
    job.communicate(timeout=10)
    assert frozen and traces(third.name) == []


@pytest.mark.parametrize("milliseconds", [30, 60, 90, 120, 160, 220])
def test_up_after_an_up_that_was_killed(milliseconds):
    one = TestCluster(cluster_name("-killed"))
    try:
        up = subprocess.Popen([SCRIPT, "up"], env=one.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(milliseconds / 1000)
        up.kill()
        up.wait()
        again = one.script("up", check=False)
        assert again.returncode == 0 or "is up already" in again.stderr, again.stdout + again.stderr
        assert sorted(one.run("srun -N2 hostname", check=True).stdout.split()) == ["node01", "node02"]
    finally:
        one.down()
    assert traces(one.name) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_up_leaves_nothing(number):
    one = TestCluster(cluster_name("-cut-short"))
    up = subprocess.Popen([SCRIPT, "up"], env=one.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    up.stdout.readline()  # the machines stand
    up.send_signal(number)
    said = up.communicate(timeout=20)[1]
    assert (up.returncode, "interrupted" in said) == (130, True), said
    assert traces(one.name) == []


def test_an_up_without_slurm_says_what_to_install():
    one = TestCluster(cluster_name("-fails"))
    done = subprocess.run([SCRIPT, "up"], env={**one.environment, "PATH": "/nonexistent"}, capture_output=True, text=True, timeout=60,
                          check=False)
    assert done.returncode == 1 and "packaging/install-dependencies run" in done.stderr, done.stderr
    assert traces(one.name) == []


def test_an_up_whose_slurmd_does_not_start_shows_why_and_leaves_nothing(tmp_path):
    one = TestCluster(cluster_name("-fails"))
    broken = tmp_path / "slurmd"
    broken.write_text("#!/bin/sh\necho fatal: this one never starts\nexit 1\n", encoding="ascii")
    broken.chmod(0o755)
    # In a mount namespace of its own, where slurmd is another program.
    done = subprocess.run(["unshare", "--mount", "sh", "-c", f'mount --bind {broken} "$(which slurmd)" && exec {SCRIPT} up'],
                          env=one.environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "services of node01 did not start" in done.stderr and "fatal: this one never starts" in done.stderr, done.stderr
    assert traces(one.name) == []


def test_up_closes_what_its_caller_had_open():
    one = TestCluster(cluster_name("-pipe"))
    read, write = os.pipe()
    try:
        up = subprocess.Popen([SCRIPT, "up"], env=one.environment, stdout=write, stderr=write, pass_fds=[write])
        os.close(write)
        ended = threading.Event()

        def drain():
            while os.read(read, 4096):
                pass
            ended.set()

        threading.Thread(target=drain, daemon=True).start()
        assert up.wait(timeout=60) == 0
        assert ended.wait(3), "something of the cluster holds up's output open"
    finally:
        one.down()
        os.close(read)
