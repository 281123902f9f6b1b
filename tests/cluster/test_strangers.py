# SPDX-License-Identifier: Apache-2.0
"""Strangers on the broker's port and on a node's socket get nothing, slow nothing, and are mentioned in the log."""
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from typing import NamedTuple

import pytest
from localcluster.harness import BUILD
from localcluster.names import USERS

RANK = os.path.join(BUILD, "tests/rank")

# Speaks to the broker's port as somebody who read the source but has no secret. argv: how, host, port, connections.
STRANGER = r"""
import os, socket, struct, sys, time
how, host, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
def connect():
    s = socket.create_connection((host, port), timeout=5)
    s.settimeout(10)
    return s
def frame(body):
    return struct.pack(">I", len(body)) + body
def field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data
held = [connect() for _ in range(count)]
got = b""
for s in held:
    if how == "garbage":
        s.sendall(os.urandom(4096))
    elif how == "wrong-secret":
        s.recv(4096)  # the challenge
        s.sendall(frame(field(1, os.urandom(32)) + b"\x10\x01" + field(3, os.urandom(32))))
answers = set()
for s in held[:3] if how == "silent" else held:
    try:
        while True:
            more = s.recv(4096)
            if not more:
                answers.add("closed")
                break
            got += more
    except socket.timeout:
        answers.add("open")
    except ConnectionError:
        answers.add("closed")
# Of a silent or garbage-sending stranger's bytes only challenges may come back: 4 + 36 bytes each, or fewer.
print("answers", sorted(answers), "bytes", len(got) // max(1, len(held[:3] if how == "silent" else held)), flush=True)
"""


def listening_ports(cluster, node):
    """Ports of the candidate range on which somebody listens there."""
    text = cluster.node(node, ["ss", "-Hltn"], check=True).stdout
    return [int(port) for port in re.findall(r"[:\]](\d+)\s", text) if 20000 <= int(port) <= 32767]


class WaitingWorld(NamedTuple):
    port: int  # its broker's
    go_on: Callable[[], str]  # its ranks meet and end; → what the step said on stderr


@pytest.fixture
def waiting_world(cluster):
    """A world of alice's whose rank 3 waits at a gate, so that its broker can be attacked while it gathers."""
    gate = cluster.host_path("/home/alice/gate")
    os.mkfifo(gate)
    os.chown(gate, USERS["alice"], USERS["alice"])
    step = cluster.popen(["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-timeout=60", "sh", "-c",
                          f"test $RANK != 3 || read go < /home/alice/gate; exec {RANK} meet 0"])
    ports = []
    for _ in range(100):
        if ports := listening_ports(cluster, "node01"):
            break
        time.sleep(0.05)
    assert len(ports) == 1, ports

    def go_on():
        opened = os.open(gate, os.O_RDWR)  # does not wait for a reader
        os.write(opened, b"go\n")
        out, err = step.communicate(timeout=60)
        os.close(opened)
        assert step.returncode == 0 and out.count(" met\n") == 4, err
        return err

    yield WaitingWorld(ports[0], go_on)
    if step.poll() is None:
        step.send_signal(signal.SIGKILL)
    step.communicate(timeout=30)
    os.unlink(gate)


@pytest.mark.parametrize("how, count, where", [("silent", 1000, "node01"), ("garbage", 50, "node01"), ("wrong-secret", 50, "node01"),
                                               ("wrong-secret", 50, "head")])
def test_a_stranger_on_the_brokers_port_gets_nothing(cluster, waiting_world, how, count, where):
    began = time.monotonic()
    there = [] if where == "head" else ["srun", "-w", where, "-n1", "--overlap"]
    done = cluster.run([*there, "/usr/bin/python3", "-c", STRANGER, how, "node01", str(waiting_world.port), str(count)], user="bob", timeout=60)
    assert done.returncode == 0, done.stderr
    assert "answers ['closed']" in done.stdout, done.stdout
    assert int(done.stdout.split()[-1]) <= 80  # a challenge at most, and no proof of the broker's
    err = waiting_world.go_on()
    assert time.monotonic() - began < 20
    mentioned = [line for line in err.splitlines() if line.startswith("slurm-dp: closed a connection from ")]
    assert 1 <= len(mentioned) <= 3, err
    if count > 3:
        assert re.search(r"slurm-dp: \d+ more unwanted connections were closed", err), err


LOCAL_STRANGER = r"""
import re, socket, sys
names = {line.split()[-1] for line in open("/proc/net/unix") if "@slurm-dp/" in line}
for name in names:
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(5)
    s.connect("\0" + name[1:])
    try:
        s.sendall(b"\0\0\0\x02\x0a\x00")
        got = s.recv(100)
    except ConnectionError:
        got = b""
    print("got", len(got), "bytes")
"""


def test_another_user_on_the_same_node_gets_nothing_from_its_socket(cluster, waiting_world):
    done = cluster.run(["srun", "-w", "node01", "-n1", "--overlap", "/usr/bin/python3", "-c", LOCAL_STRANGER], user="bob",
                       check=True)
    assert done.stdout.splitlines() == ["got 0 bytes"], done.stdout
    err = waiting_world.go_on()
    assert re.search(r"slurm-dp: closed a local connection of user id 1002 \(pid \d+\)", err), err


def test_root_is_no_rank_of_anothers_step(cluster, waiting_world):
    """Root may ask what the step does (test_top.py), and is told so when it says hello."""
    done = cluster.node("node01", ["/usr/bin/python3", "-c", LOCAL_STRANGER], check=True)
    assert re.fullmatch(r"got \d\d+ bytes\n", done.stdout), done.stdout
    err = waiting_world.go_on()
    assert re.search(r"slurm-dp: closed a local connection of pid \d+: root may ask what the step does, and no more", err), err


FOREIGN_LISTENER = r"""
import socket
s = socket.socket(socket.AF_UNIX)
s.bind("\0slurm-dp/foreign"); s.listen()
print("listens", flush=True)
peer = s.accept()[0]
print("heard", len(peer.recv(100)), "bytes", flush=True)
"""


def test_a_rank_says_nothing_to_somebody_elses_socket(cluster):
    foreign = cluster.popen(["srun", "-w", "node01", "-n1", "--overlap", "/usr/bin/python3", "-c", FOREIGN_LISTENER], user="bob")
    try:
        assert foreign.stdout.readline() == "listens\n"
        done = cluster.run(["srun", "-w", "node01", "-n1", "--overlap", "--dp-world=auto", "sh", "-c",
                            f"DP_SOCKET=@slurm-dp/foreign exec {RANK} world"], timeout=60)
        assert done.returncode != 0
        assert f"the socket @slurm-dp/foreign belongs to user id {USERS['bob']}, not to this step" in done.stdout + done.stderr
        assert foreign.communicate(timeout=30)[0] == "heard 0 bytes\n"
    finally:
        foreign.kill()


def as_user(user, command):
    """On this machine, which sees all processes of its nodes. → what it printed."""
    uid = USERS[user]
    return subprocess.run(["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "sh", "-c", command],
                          capture_output=True, text=True, check=True).stdout


# What a process shows to those who may read or trace it.
READ_IT = "cd /proc/{pid} && for f in environ mem maps fd/3; do cat $f >/dev/null 2>&1 && echo read $f; done; ls fd 2>/dev/null; true"


def test_another_user_cannot_touch_the_daemon_or_the_ranks(cluster, waiting_world):
    ours = [p for p in cluster.processes() if p["uid"] == USERS["alice"] and not p["command"].startswith("slurmstepd")]
    assert len([p for p in ours if p["command"].startswith("dp-rendezvousd")]) == 2 and len(ours) == 6, ours
    for process in ours:
        pid = process["pid"]
        assert as_user("bob", READ_IT.format(pid=pid)) == "", process
        assert as_user("bob", f"kill -KILL {pid} 2>/dev/null && echo killed; true") == "", process
    waiting_world.go_on()


def test_a_task_keeps_slurms_memory_to_itself_until_its_program_starts(cluster):
    """It has the step's secret until then."""
    with cluster.cut_off("node02", "node01"):
        step = cluster.popen(["srun", "-N2", "-n2", "--dp-timeout=30", RANK, "world"])
        try:
            waiting = []
            end = time.monotonic() + 10
            while not waiting:
                assert time.monotonic() < end
                waiting = [p["pid"] for p in cluster.processes(["node02"])
                           if p["uid"] == USERS["alice"] and p["command"].startswith("slurmstepd")]
                time.sleep(0.02)
            for user in ("alice", "bob"):
                assert as_user(user, READ_IT.format(pid=waiting[0])) == ""
            assert os.path.exists(f"/proc/{waiting[0]}")
        finally:
            step.send_signal(signal.SIGKILL)
            cluster.run(["scancel", "-u", "alice"])
            step.communicate(timeout=60)
    cluster.assert_idle(deadline=30)


def test_the_secret_is_in_no_prolog_table_or_log(cluster):
    """Only srun's own prolog has it, which is how this test knows it."""
    home = cluster.host_path("/home/alice")
    names = ("prolog", "task-prolog", "task-epilog")
    for name in names:
        path = os.path.join(home, f"{name}.sh")
        with open(path, "w", encoding="ascii") as script:
            script.write(f"#!/bin/sh\nenv >> /home/alice/{name}.env; echo end >> /home/alice/{name}.env\n")
        os.chmod(path, 0o755)
    looked = "/home/alice/looked"
    cluster.run(["rm", "-f", looked], check=True)
    step = cluster.popen(["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-verbose", "--prolog=/home/alice/prolog.sh",
                          "--task-prolog=/home/alice/task-prolog.sh", "--task-epilog=/home/alice/task-epilog.sh", RANK, "phases", looked])
    texts = {}
    try:
        end = time.monotonic() + 20
        while len([p for p in cluster.processes() if p["command"].startswith(RANK)]) < 4:
            assert time.monotonic() < end
            time.sleep(0.05)
        texts["scontrol"] = cluster.run("scontrol -dd show job; scontrol -dd show step; squeue -o %all; squeue -s -o %all", user="root",
                                        check=True).stdout
        for process in cluster.processes(everyone=True):
            for file in ("environ", "cmdline"):
                try:
                    with open(f"/proc/{process['pid']}/{file}", "rb") as data:
                        texts[f"{file} of {process['command']}"] = data.read().decode(errors="replace")
                except OSError:
                    continue
    finally:
        cluster.run(["touch", looked], check=True)
        texts["stdout"], texts["stderr"] = step.communicate(timeout=60)
    assert step.returncode == 0, texts["stderr"]
    for name in names:
        with open(os.path.join(home, f"{name}.env"), encoding="utf-8") as text:
            texts[name] = text.read()
    for log in ("slurmctld.log", "slurmd-node01.log", "slurmd-node02.log"):
        texts[log] = cluster.log(log)
    secret = re.search("^SLURM_DP_SECRET=([0-9a-f]{64})$", texts.pop("prolog"), re.M).group(1)
    assert texts["task-prolog"].count("end\n") == texts["task-epilog"].count("end\n") == 4
    assert "StepId=" in texts["scontrol"] and "DP_RANK=" in texts["task-prolog"] and len(texts) > 16
    assert [name for name, text in texts.items() if secret in text or secret.upper() in text] == []
    # Nor do they see the slots into which the tasks' variables are written (environment_list.hpp).
    assert all("SLURM_DP_" not in texts[name] for name in ("task-prolog", "task-epilog")) and "WORLD_SIZE=4" in texts["task-epilog"]
    assert re.search("^RANK=[0-3]$", texts["task-prolog"], re.M) and not re.search("^RANK=", texts["task-epilog"], re.M)


def test_the_daemon_keeps_its_memory_to_itself(cluster, waiting_world):
    """Nothing in ps, and nothing for another process of the same user: no variable, no descriptor, no memory, no core."""
    for node in ("node01", "node02"):
        daemon = next(p["pid"] for p in cluster.processes([node]) if p["command"].startswith("dp-rendezvousd"))
        with open(f"/proc/{daemon}/cmdline", "rb") as words, open(f"/proc/{daemon}/environ", "rb") as variables:
            assert (words.read(), variables.read()) == (b"dp-rendezvousd\0", b"NETTLE_FAT_OVERRIDE=none\0")
        assert as_user("alice", READ_IT.format(pid=daemon)) == ""
    waiting_world.go_on()


def test_a_stranger_who_sits_on_the_brokers_candidates_is_passed_over(cluster):
    """Somebody listens on most of the range and answers with garbage; the world forms all the same."""
    sitter = r"""
import os, resource, socket, threading, time
resource.setrlimit(resource.RLIMIT_NOFILE, (20000, 20000))
held = []
for port in range(20000, 32768, 2):
    s = socket.socket()
    try:
        s.bind(("", port)); s.listen(); held.append(s)
    except OSError:
        pass
print(len(held), flush=True)
time.sleep(60)
"""
    taker = cluster.popen(["srun", "-w", "node01", "-n1", "--overlap", "/usr/bin/python3", "-c", sitter], user="bob")
    try:
        assert int(taker.stdout.readline()) > 6000
        for _ in range(4):
            done = cluster.run(["srun", "-N2", "-n8", "--ntasks-per-node=4", "--dp-timeout=30", RANK, "meet", "0"], timeout=40, check=True)
            assert done.stdout.count(" met\n") == 8
    finally:
        taker.terminate()
        taker.communicate(timeout=60)
