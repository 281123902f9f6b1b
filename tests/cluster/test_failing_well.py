# SPDX-License-Identifier: Apache-2.0
"""What a step needs is missing on a node: the step ends within --dp-timeout, one line names the cause and the remedy, no node is drained
and nothing stays behind. Where Slurm alone fails, it fails with the plugin as it does without."""
import concurrent.futures
import os
import subprocess
import time

import pytest
from localcluster import versions
from localcluster.harness import BUILD
from localcluster.names import USERS

RANK = os.path.join(BUILD, "tests/rank")
TIMEOUT = 3  # --dp-timeout
AT_ONCE = {"timeout": 30, "within": 15}  # the step waits for nobody, also on a busy machine
STEP = ["srun", "-N2", "-n4", "--ntasks-per-node=2"]


def said(text):
    """What slurm-dp said, without Slurm's own words before it."""
    return [line[line.index("slurm-dp:"):] for line in text.splitlines() if "slurm-dp:" in line]


def assert_fails_well(cluster, *words, timeout=TIMEOUT, within=TIMEOUT + 7, lines=1):
    """A world on both nodes: no program starts, one line has these words, and all is as before."""
    began = time.monotonic()
    done = cluster.run([*STEP, f"--dp-timeout={timeout}", "touch", "/home/alice/launched"], timeout=60)
    took = time.monotonic() - began
    assert done.returncode != 0
    assert len(said(done.stderr)) == lines, done.stderr
    for word in words:
        assert any(word in line for line in said(done.stderr)), done.stderr
    assert took < within, f"{took:.1f} s\n{done.stderr}"
    assert cluster.run(["test", "-e", "/home/alice/launched"]).returncode == 1
    cluster.assert_idle()
    cluster.assert_nothing_left()


def assert_world_forms(cluster):
    done = cluster.run([*STEP, f"--dp-timeout={TIMEOUT}", RANK, "world"], check=True)
    assert done.stdout.count("size=4") == 4 and said(done.stderr) == []


# ---- the daemon's binary ----

@pytest.fixture(scope="module")
def own():
    """A cluster of this file's own, whose nodes each have a dp-rendezvousd of their own in /tmp."""
    from conftest import cluster_name
    from localcluster.harness import TestCluster
    with TestCluster(cluster_name("-failing"), plugstack_args="daemon=/tmp/dp-rendezvousd") as up:
        yield up


@pytest.fixture
def daemons(own):
    """daemons(node, command): there the shell command has spoilt /tmp/dp-rendezvousd; everywhere else it is the real one."""
    def spoil(node, command):
        own.node(node, f"cd /tmp && {command}", check=True)
        return own

    def mend():
        for name in own.nodes:
            own.node(name, f"rm -f /tmp/dp-rendezvousd && cp {BUILD}/bin/dp-rendezvousd /tmp/", check=True)

    mend()
    yield spoil
    mend()
    assert_world_forms(own)


@pytest.mark.parametrize("node", ["node01", "node02"])  # the broker's, a relay's
@pytest.mark.parametrize("spoilt, words", [
    ("rm dp-rendezvousd", "cannot open the daemon /tmp/dp-rendezvousd: No such file or directory; install it there, or name another"),
    ("chmod 700 dp-rendezvousd", "cannot open the daemon /tmp/dp-rendezvousd: Permission denied; install it there, or name another"),
    ("echo no program > dp-rendezvousd", "dp-rendezvousd cannot be executed (Exec format error): install it again"),
    ("truncate -s 5000 dp-rendezvousd", "this node's rendezvous daemon died before it had a plan"),
    ("cp /bin/false dp-rendezvousd", "this node's rendezvous daemon died before it had a plan"),
    (f"cp {BUILD}/tests/foreign-daemon dp-rendezvousd", "plugin and dp-rendezvousd are of different versions (they speak 4711 and "),
])
def test_a_daemon_that_cannot_serve_is_named_with_its_node(daemons, node, spoilt, words):
    assert_fails_well(daemons(node, spoilt), f"slurm-dp: node {node}: ", words, **AT_ONCE)


@pytest.mark.parametrize("node, words", [
    ("node01", ".11) within 3 s (--dp-timeout)"),
    ("node02", "missing: node02: ranks 2-3 not started"),
])
def test_a_daemon_that_never_answers_does_not_outlast_the_timeout(daemons, node, words):
    assert_fails_well(daemons(node, f"cp {BUILD}/tests/mute-daemon dp-rendezvousd"), words)


def test_a_daemon_that_never_answers_on_a_single_node(daemons):
    one = daemons("node01", f"cp {BUILD}/tests/mute-daemon dp-rendezvousd")
    began = time.monotonic()
    done = one.run(["srun", "-N1", "-w", "node01", "-n2", f"--dp-timeout={TIMEOUT}", "hostname"])
    assert done.returncode != 0 and done.stdout == "" and time.monotonic() - began < TIMEOUT + 7
    assert len(said(done.stderr)) == 1 and "no plan within 4 s" in done.stderr, done.stderr
    one.assert_nothing_left()


# ---- munge ----

def stop_munge(cluster, node):
    """→ the command that starts it again."""
    command = cluster.node(node, "tr '\\0' ' ' < /proc/$(cat /run/munge/munged.pid)/cmdline", check=True).stdout
    assert command.startswith("munged "), command
    cluster.node(node, "kill $(cat /run/munge/munged.pid); while test -e /run/munge/munge.socket.2; do sleep 0.01; done", check=True)
    return command


def test_without_munge_where_srun_runs_slurm_says_so_and_we_say_nothing(cluster):
    again = stop_munge(cluster, "head")
    try:
        with concurrent.futures.ThreadPoolExecutor() as both:  # Slurm tries for 10 s
            plain, world = both.map(lambda words: cluster.run([*STEP, *words, "hostname"], timeout=40), ([], ["--dp-world=auto"]))
    finally:
        cluster.node("head", again, check=True)
    for done in (plain, world):
        assert done.returncode == plain.returncode != 0 and "Munge encode failed" in done.stderr
    assert said(world.stderr) == []
    cluster.assert_idle()
    cluster.assert_nothing_left()


def test_a_world_forms_although_munge_has_died_on_a_node(cluster):
    """Between srun's launch and the step's end slurm-dp needs no munge."""
    step = cluster.popen([*STEP, "--dp-timeout=30", "sh", "-c", f"echo up; until test -e /home/alice/go; do sleep 0.05; done; {RANK} world"])
    assert [step.stdout.readline() for _ in range(4)] == ["up\n"] * 4
    again = stop_munge(cluster, "node02")
    try:
        cluster.run(["touch", "/home/alice/go"], check=True)
        worlds = [step.stdout.readline() for _ in range(4)]
    finally:
        cluster.node("node02", again, check=True)
        cluster.run(["rm", "/home/alice/go"])
    _, err = step.communicate(timeout=60)
    assert all("size=4" in line for line in worlds), err
    assert step.returncode == 0 and said(err) == []
    cluster.assert_idle()
    cluster.assert_nothing_left()


def test_without_munge_on_a_node_the_step_ends_as_it_does_without_us(another_cluster):
    """slurmd there cannot be asked for a step at all. Clusters of their own: Slurm needs minutes to speak with that slurmd again."""
    ends = []
    for words in ([], ["--dp-world=auto"]):
        one = another_cluster()
        stop_munge(one, "node02")
        began = time.monotonic()
        done = one.run([*STEP, *words, "sleep", "30"], timeout=60)
        assert "Task launch for StepId" in done.stderr and said(done.stderr) == []
        assert time.monotonic() - began < 10
        one.assert_nothing_left(user="alice")
        ends.append(done.returncode)
    assert ends[0] == ends[1] != 0


# ---- the network ----

def test_a_node_that_cannot_reach_the_head_is_named_within_the_timeout(cluster):
    """srun itself gives up on such a node after MessageTimeout (10 s); the world's other ranks do not wait for that."""
    with cluster.cut_off("node02", "head"):
        began = time.monotonic()
        step = cluster.popen([*STEP, f"--dp-timeout={TIMEOUT}", "touch", "/home/alice/launched"])
        named = next(line for line in step.stderr if "slurm-dp:" in line)
        assert time.monotonic() - began < TIMEOUT + 2
        assert "2 of 4 ranks are connected within 3 s (--dp-timeout); missing: node02: ranks 2-3 not started (not connected" in named
        _, err = step.communicate(timeout=40)
    assert step.returncode != 0 and said(err) == []
    assert cluster.run(["test", "-e", "/home/alice/launched"]).returncode == 1
    cluster.assert_idle(deadline=15)
    cluster.assert_nothing_left()


# ---- file systems ----

@pytest.mark.parametrize("spoilt, mended", [
    ("dd if=/dev/zero of={0}/full bs=1M 2>/dev/null; ! echo more > {0}/more", "rm -f {0}/full {0}/more"),
    ("mount -o remount,ro {0}; ! touch {0}/more", "mount -o remount,rw {0}"),
], ids=["full", "read-only"])
def test_a_world_needs_no_room_in_a_file_system(cluster, spoilt, mended):
    """Full to the last byte, or not to be written at all, on both nodes. Not /run: munged has files of its own open there."""
    folders = ["/tmp", "/var/tmp", "/dev/shm"]
    for node in cluster.nodes:
        for folder in folders:
            # The tmpfs may be as large as half the memory: it is cut to what is in it and a little more first.
            cluster.node(node, f"mount -o remount,size=2M {folder}; {spoilt.format(folder)} 2>/dev/null", check=True)
    try:
        assert_world_forms(cluster)
        done = cluster.run([*STEP, "--dp-world=auto", RANK, "store"], check=True)
        assert done.stdout.count("store ok") == 4
    finally:
        for node in cluster.nodes:
            for folder in folders:
                cluster.node(node, f"{mended.format(folder)}; mount -o remount,size=50% {folder}", check=True)


# ---- descriptors ----

@pytest.fixture(scope="module")
def limited(own):
    """limited(limit): that many descriptors for each slurmstepd of node02, not for its slurmd."""
    if os.environ.get("DP_TEST_CGROUP") == "v2":
        pytest.skip("on cgroup v2, slurmstepd needs more descriptors for its own BPF programs, and these limits are those of v1")
    wrapper = own.host_path("/home/shared/slurmstepd")

    def limit(number):
        with open(wrapper, "w", encoding="ascii") as out:
            out.write(f'#!/bin/sh\nulimit -Sn {number}\nexec /usr/sbin/slurmstepd "$@"\n')
        os.chmod(wrapper, 0o755)
        return own

    limit(1000)
    own.restart_slurmd("node02", "-d /home/shared/slurmstepd")
    yield limit
    own.restart_slurmd("node02")


def test_too_few_descriptors_for_the_plugin_in_slurmstepd(limited, daemons):
    own = limited(versions.tested().stepd_descriptors)
    assert own.run([*STEP, "hostname"], check=True).stdout.count("node02") == 2
    assert_fails_well(own, "slurm-dp: node node02: cannot ",
                      "Too many open files; raise the limit of open files (ulimit -n; for slurmd, LimitNOFILE in its unit)", **AT_ONCE)
    limited(1000)


def test_few_descriptors_in_slurmstepd_are_enough(limited, daemons):
    """The daemon raises its own limit, and needs no descriptor of a high number."""
    assert_world_forms(limited(40))
    limited(1000)


def test_a_daemon_without_descriptors_says_so_and_goes_on_when_it_has_some(cluster):
    step = cluster.popen([*STEP, "--dp-timeout=30", "sh", "-c", f"echo up; until test -e /home/alice/go; do sleep 0.05; done; {RANK} world"])
    assert [step.stdout.readline() for _ in range(4)] == ["up\n"] * 4
    daemon = next(p["pid"] for p in cluster.processes(["node02"]) if "dp-rendezvousd" in p["command"])
    used = max(int(fd) for fd in os.listdir(f"/proc/{daemon}/fd")) + 1

    def limit(soft):  # as the user: root in a container may not
        subprocess.run(["prlimit", "--pid", str(daemon), f"--nofile={soft}:"], user=USERS["alice"], group=USERS["alice"], extra_groups=[], check=True)

    limit(used)
    cluster.run(["touch", "/home/alice/go"], check=True)
    try:
        complaint = step.stderr.readline()
        assert f"slurm-dp: node node02: the rendezvous daemon has used up its {used} file descriptors" in complaint
        assert "ulimit -n" in complaint
        limit(1000)
        out, err = step.communicate(timeout=30)
    finally:
        cluster.run(["rm", "/home/alice/go"])
    assert step.returncode == 0 and out.count("size=4") == 4 and said(err) == []


def test_a_rank_without_descriptors_is_told_so(cluster):
    done = cluster.run([*STEP, "--dp-world=auto", RANK, "full"])
    assert done.returncode != 0
    assert "Too many open files; raise the limit of open files (ulimit -n" in done.stderr, done.stderr
