# SPDX-License-Identifier: Apache-2.0
"""What a user sees when something breaks while a world trains, and how fast: the table in this folder's README.md has a row for each."""
import json
import os
import re
import signal
import subprocess
import threading
import time

import pytest
from localcluster.harness import BUILD, until
from localcluster.names import USERS

RANK = os.path.join(BUILD, "tests/rank")
DPCTL = os.path.join(BUILD, "bin/dpctl")
TRAINER = os.path.join(BUILD, "bin/trainer")
ENOUGH = "/home/alice/enough"  # says how many steps more a World makes
# Seconds that a busy machine may stand still between two of our looks; how fast it really is, `tests/bench/run failure` says.
NOISE = 1.5


class World:
    """A step of two nodes with two ranks each that trains (a barrier every 50 ms) until it may end, and what it says, with the time of each
    line."""

    def __init__(self, cluster, options=()):
        self.cluster = cluster
        cluster.run(["rm", "-f", ENOUGH], check=True)
        self.step = cluster.popen(["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-world=auto", *options, RANK, "train", ENOUGH])
        assert all(" met" in self.step.stdout.readline() for _ in range(4))
        self.lines = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.step.stderr:
            self.lines.append((time.monotonic(), line.rstrip("\n")))

    def said(self, pattern, within):
        """→ when the first line came that matches; fails where none comes in time."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            for when, line in list(self.lines):
                if re.search(pattern, line):
                    return when
            time.sleep(0.01)
        raise AssertionError(f"nobody said {pattern!r} within {within} s; there was {[line for _, line in self.lines]}")

    def daemon(self, node):
        found = [p["pid"] for p in self.cluster.processes([node]) if p["command"].startswith("dp-rendezvousd")]
        assert len(found) == 1, found
        return found[0]

    def ranks(self, node):
        return [p["pid"] for p in self.cluster.processes([node]) if p["command"].startswith(RANK)]

    def trained_on(self):
        """It goes on for some steps more, and ends well."""
        self.cluster.run(f"echo 20 >{ENOUGH}.new && mv {ENOUGH}.new {ENOUGH}", check=True)
        code = self.step.wait(timeout=90)
        self._reader.join(timeout=10)
        out = self.step.stdout.read()
        assert code == 0 and out.count(" trained\n") == 4, (code, out, self.lines)


@pytest.fixture
def world(cluster):
    made = []

    def make(**keywords):
        made.append(World(cluster, **keywords))
        return made[-1]

    yield make
    for one in made:
        if one.step.poll() is None:
            one.step.send_signal(signal.SIGKILL)
            cluster.run(["scancel", "-u", "alice"])
            one.step.wait(timeout=60)
    cluster.assert_nothing_left(deadline=10)
    cluster.assert_idle(deadline=30)


@pytest.mark.parametrize("node, pattern", [("node02", r"slurm-dp: node node02 \(ranks 2-3\) has been silent for 800 ms"),
                                           ("node01", r"slurm-dp: the rendezvous daemon on node01 has been silent for 800 ms")])
def test_a_stopped_daemon_is_named_within_a_second_and_taken_back(world, node, pattern):
    training = world()
    daemon = training.daemon(node)
    os.kill(daemon, signal.SIGSTOP)
    stopped = time.monotonic()
    named = training.said(pattern, within=5)
    assert named - stopped < 1 + NOISE
    time.sleep(1)
    os.kill(daemon, signal.SIGCONT)
    training.said("responds again after ", within=5)
    training.trained_on()


# The second where it had not read all that was sent to it when it was killed.
GONE = "its connection (closed|broke: Connection reset by peer)"


@pytest.mark.parametrize("node, pattern", [
    ("node02", rf"slurm-dp: node node02 \(ranks 2-3\) is lost: {GONE}; ending the step"),
    ("node01", rf"slurm-dp: node node02 lost the rendezvous daemon on node01: {GONE}; ending the step"),
], ids=["node02", "node01"])
def test_a_killed_daemon_is_named_at_once_and_all_ranks_end(world, node, pattern):
    training = world()
    os.kill(training.daemon(node), signal.SIGKILL)
    killed = time.monotonic()
    assert training.said(pattern, within=5) - killed < NOISE
    # Its own node's ranks hear of it from libdp, and end by themselves; nobody has to cancel anything.
    assert training.step.wait(timeout=20) != 0
    assert "this node's rendezvous daemon is gone" in training.step.stdout.read()


@pytest.mark.parametrize("node", ["node01", "node02"])
def test_a_killed_daemon_ends_programs_that_know_nothing_of_it(cluster, node):
    """Nothing of ours is left on its node that could end them: Slurm is asked to."""
    step = cluster.popen(["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-world=auto", "sh", "-c", "echo runs; exec sleep 300"])
    assert all("runs" in step.stdout.readline() for _ in range(4))
    daemon, = (p["pid"] for p in cluster.processes([node]) if p["command"].startswith("dp-rendezvousd"))
    os.kill(daemon, signal.SIGKILL)
    _, err = step.communicate(timeout=30)
    assert step.returncode != 0 and re.search(r"slurm-dp: node node02 .*ending the step", err), err
    cluster.assert_nothing_left(deadline=10)
    cluster.assert_idle(deadline=30)


def test_trainers_that_a_death_has_stopped_are_not_taken_for_its_cause(cluster):
    """They see their connections close before a daemon that is late has told anybody of the death."""
    step = cluster.popen(["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-world=auto", TRAINER, "--model=ffn", "--samples=512",
                          "--epochs=1000000"], env={"OMP_NUM_THREADS": "1"})
    while not step.stdout.readline().startswith("epoch 2/"):
        assert step.poll() is None, step.communicate()
    here = {kind: [p["pid"] for p in cluster.processes(["node02"]) if p["command"].startswith(kind)] for kind in ("dp-rendezvousd", TRAINER)}
    os.kill(here["dp-rendezvousd"][0], signal.SIGSTOP)
    os.kill(here[TRAINER][0], signal.SIGKILL)
    time.sleep(0.5)
    os.kill(here["dp-rendezvousd"][0], signal.SIGCONT)
    _, err = step.communicate(timeout=60)
    lines = [line for line in err.splitlines() if line.endswith("; ending the step")]
    assert len(lines) == 1, err
    assert re.fullmatch(r"slurm-dp: rank [23] on node02 was killed by signal 9 \(SIGKILL\) at step \d+; ending the step", lines[0]), err
    cluster.assert_idle(deadline=30)


@pytest.mark.parametrize("still, dies", [("node02", "node01"), ("node01", "node02")])
def test_a_rank_dies_while_a_node_stands_still(cluster, still, dies):
    """That node cannot hear that the step ends, and is not silent for long enough to be lost: Slurm ends its ranks."""
    step = cluster.popen(["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-world=auto", "sh", "-c", "echo runs; exec sleep 300"])
    assert all("runs" in step.stdout.readline() for _ in range(4))
    daemon, = (p["pid"] for p in cluster.processes([still]) if p["command"].startswith("dp-rendezvousd"))
    os.kill(daemon, signal.SIGSTOP)
    time.sleep(1)
    os.kill(next(p["pid"] for p in cluster.processes([dies]) if p["command"].startswith("sleep")), signal.SIGKILL)
    killed = time.monotonic()
    try:
        _, err = step.communicate(timeout=50)
    finally:
        cluster.run(["scancel", "-u", "alice"])
    assert step.returncode != 0 and time.monotonic() - killed < (10 if still == "node02" else 45), err
    assert re.search(rf"slurm-dp: .*{still}.* has been silent for 800 ms", err), err
    cluster.assert_nothing_left(deadline=10)
    cluster.assert_idle(deadline=30)


def test_a_killed_rank_is_named_at_once(world):
    training = world()
    victim = training.ranks("node02")[0]
    os.kill(victim, signal.SIGKILL)
    killed = time.monotonic()
    named = training.said(r"slurm-dp: rank [23] on node02 was killed by signal 9 \(SIGKILL\); ending the step", within=5)
    assert named - killed < NOISE
    assert training.step.wait(timeout=20) != 0


def test_the_death_of_a_rank_is_in_each_nodes_own_file(cluster, world):
    """srun -e FILE.%N: who reads node02's file must find the reason there."""
    training = world(options=["-e", "/home/alice/err.%N"])
    os.kill(training.ranks("node01")[1], signal.SIGKILL)
    assert training.step.wait(timeout=20) != 0
    for node in ("node01", "node02"):
        with open(cluster.host_path(f"/home/alice/err.{node}"), encoding="ascii") as file:
            said = [line for line in file if line.startswith("slurm-dp:")]
        assert len(said) == 1 and re.match(r"slurm-dp: rank [01] on node01 was killed by signal 9 \(SIGKILL\); ending the step$", said[0]), (node, said)
        os.unlink(cluster.host_path(f"/home/alice/err.{node}"))


def test_the_death_of_a_trainer_says_how_far_it_was(cluster):
    step = cluster.popen(["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-world=auto", TRAINER, "--model=linear", "--epochs=1000000"])
    assert any("epoch 1/" in line for line in iter(step.stdout.readline, ""))
    victim = next(p["pid"] for p in cluster.processes(["node02"]) if p["command"].startswith(TRAINER))
    os.kill(victim, signal.SIGKILL)
    _, err = step.communicate(timeout=40)
    assert re.search(r"^slurm-dp: rank [23] on node02 was killed by signal 9 \(SIGKILL\) at step \d+; ending the step$", err, re.M), err
    cluster.assert_nothing_left(deadline=5)
    cluster.assert_idle(deadline=10)


def test_a_killed_slurmstepd_takes_its_ranks_along(cluster, world):
    training = world()
    for stepd in [p["pid"] for p in cluster.processes(["node02"]) if p["command"].startswith("slurmstepd") and ".0" in p["command"]]:
        os.kill(stepd, signal.SIGKILL)
    killed = time.monotonic()
    named = training.said(r"slurm-dp: slurmstepd on node02 is gone; its 2 ranks are ended", within=5)
    assert named - killed < NOISE
    end = time.monotonic() + 3
    while training.ranks("node01") or training.ranks("node02"):
        assert time.monotonic() < end
        time.sleep(0.02)
    training.said("Job step aborted", within=10)  # by Slurm, at our word: srun would wait for the dead slurmstepd for ever
    training.step.kill()  # so it waits KillWait (30 s)


def test_a_node_that_is_cut_off_is_named_and_healed_trains_on(cluster, world):
    training = world()
    with cluster.cut_off("node02", "node01"):
        cut = time.monotonic()
        assert training.said(r"node node02 \(ranks 2-3\) has been silent", within=5) - cut < 1 + NOISE
        time.sleep(2)
    training.said("node02.* responds again after ", within=10)
    training.trained_on()


def test_a_suspended_step_goes_on_where_it_was(another_cluster):
    site = another_cluster(plugstack_args="dead-after=3")
    training = World(site)
    job = site.run("squeue -h -o %A -u alice", check=True).stdout.split()[0]
    site.run(["scontrol", "suspend", job], user="root", check=True)
    time.sleep(6)
    site.run(["scontrol", "resume", job], user="root", check=True)
    training.trained_on()
    # Its nodes stop and go some milliseconds apart; nobody is lost for it.
    assert not [line for _, line in training.lines if " is lost" in line or "ending" in line], training.lines


def test_a_suspended_step_misses_no_deadline(cluster):
    """Its ranks wait for one that comes late, with less than a suspension left until the step's deadline."""
    step = cluster.popen(["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-timeout=7", RANK, "late", "3", "8"])
    until(lambda: len([p for p in cluster.processes() if p["command"].startswith(RANK)]) == 4, 20, "all ranks are there")
    job = cluster.run("squeue -h -o %A -u alice", check=True).stdout.split()[0]
    cluster.run(["scontrol", "suspend", job], user="root", check=True)
    time.sleep(9)
    cluster.run(["scontrol", "resume", job], user="root", check=True)
    out, err = step.communicate(timeout=60)
    assert step.returncode == 0 and out.count(" met\n") == 4, err


def test_stopped_ranks_are_named_and_left_alone(world):
    training = world()
    pids = training.ranks("node02")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    training.said(r"slurm-dp: ranks 2-3 on node02 were stopped by a signal \(SIGSTOP, scontrol suspend, a debugger\?\); not killed", within=5)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    training.said(r"slurm-dp: ranks 2-3 on node02 continue", within=5)
    training.trained_on()


def test_packet_loss_and_delay_are_trained_through(cluster, world):
    training = world()
    with cluster.bad_line("node02", 200, 30):
        training.trained_on()
    assert not [line for _, line in training.lines if "is lost" in line]


def test_a_silent_node_is_lost_after_the_sites_deadline(another_cluster):
    site = another_cluster(plugstack_args="dead-after=3")
    training = World(site)
    daemon = training.daemon("node02")
    stopped = time.monotonic()
    os.kill(daemon, signal.SIGSTOP)
    named = training.said(r"node node02 \(ranks 2-3\) is lost: silent for 3 s; ending the step", within=10)
    assert 2.5 <= named - stopped < 3 + NOISE  # since its last word, which came up to a quarter of a second before
    # The one stopped process cannot end its ranks; Slurm does, when its step is told to end.
    site.run(["scancel", "-u", "alice"])
    assert training.step.wait(timeout=60) != 0
    site.assert_nothing_left(deadline=10)


def test_a_node_without_power_is_named_and_lost_after_the_sites_deadline(another_cluster):
    site = another_cluster(plugstack_args="dead-after=3")
    training = World(site)
    site.kill("node02")
    gone = time.monotonic()
    try:
        assert training.said(r"node node02 \(ranks 2-3\) has been silent for 800 ms", within=5) - gone < 1 + NOISE
        assert training.said(r"node node02 \(ranks 2-3\) is lost: silent for 3 s; ending the step", within=10) - gone < 3 + NOISE
        end = time.monotonic() + 3
        while training.ranks("node01"):
            assert time.monotonic() < end
            time.sleep(0.02)
    finally:
        site.run("scancel --user=alice", user="root")
        site.heal("node02")
        training.step.kill()  # by itself it waits KillWait (30 s) for the node's answer
        training.step.wait(timeout=10)
    site.assert_nothing_left(deadline=10)


def test_a_broker_without_memory_ends_the_step_and_says_so(cluster, world):
    step = cluster.popen(["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-world=auto", "sh", "-c",
                          f"echo up; until test -e /home/alice/go; do sleep 0.05; done; exec {RANK} fill 500"])
    assert [step.stdout.readline() for _ in range(4)] == ["up\n"] * 4
    daemon = next(p["pid"] for p in cluster.processes(["node01"]) if p["command"].startswith("dp-rendezvousd"))
    subprocess.run(["prlimit", "--pid", str(daemon), f"--as={100 * 2**20}:"], user=USERS["alice"], group=USERS["alice"], extra_groups=[], check=True)
    cluster.run(["touch", "/home/alice/go"], check=True)
    try:
        _, err = step.communicate(timeout=40)
    finally:
        cluster.run(["rm", "/home/alice/go"])
    assert step.returncode != 0
    assert "slurm-dp: node node01: the rendezvous daemon is out of memory and ends" in err, err
    assert "slurm-dp: node node02 lost the rendezvous daemon on node01" in err, err
    cluster.assert_nothing_left(deadline=10)
    cluster.assert_idle(deadline=30)


def test_dpctl_waterfall_says_how_the_world_came_up(cluster, world):
    training = world()
    job = cluster.run("squeue -h -o %A -u alice", check=True).stdout.split()[0]
    done = cluster.run(["srun", "--overlap", f"--jobid={job}", "-N1", "-n1", "-w", "node02", DPCTL, "waterfall"])
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"step {job}.0: 4 ranks on 2 nodes; ms since the first task's start")
    assert [line.split()[:2] for line in lines[2:6]] == [["0", "node01"], ["1", "node01"], ["2", "node02"], ["3", "node02"]]
    started, hello = ([int(line.split()[column]) for line in lines[2:6]] for column in (2, 3))
    assert min(started) == 0 and all(a <= b for a, b in zip(started, hello))
    training.trained_on()


def test_ranks_of_one_node_are_ready_though_they_need_no_connection(cluster):
    trainer = os.path.join(BUILD, "bin/trainer")
    step = cluster.popen(["srun", "-N1", "-n3", "--dp-world=auto", trainer, "--model=linear", "--batch-size=4", "--epochs=1000000", "--log-interval=1", "--log-style=megatron"])
    while "iteration" not in (line := step.stdout.readline()):
        assert line, step.stderr.read()
    job = cluster.run("squeue -h -o %A -u alice", check=True).stdout.split()[0]
    shown = cluster.run(["srun", "--overlap", f"--jobid={job}", "-N1", "-n1", DPCTL, "waterfall"], check=True).stdout.splitlines()
    ready = shown[1].split().index("ready")
    assert all(row.split()[ready].isdigit() for row in shown[2:5]), shown
    cluster.run(["scancel", job], check=True)
    step.communicate(timeout=60)


def test_metrics_are_served_to_the_user_and_root(cluster, world):
    training = world()
    job = cluster.run("squeue -h -o %A -u alice", check=True).stdout.split()[0]
    curl = ["curl", "-s", "--abstract-unix-socket", f"slurm-dp-metrics/{job}.0", "http://step/metrics"]
    for node in ("node01", "node02"):
        told = cluster.node(node, curl)
        assert f'slurm_dp_ranks{{step="{job}.0",state="hello"}} 4' in told.stdout, told
    mine = cluster.run(["srun", "--overlap", f"--jobid={job}", "-N1", "-n1", "-w", "node02", *curl])
    assert "slurm_dp_age_seconds" in mine.stdout
    others = cluster.node("node02", ["setpriv", "--reuid=bob", "--regid=bob", "--clear-groups", *curl])
    assert others.stdout == ""
    training.trained_on()


def test_dpctl_status_says_what_a_step_is_doing(cluster, world):
    training = world()
    job = cluster.run("squeue -h -o %A -u alice", check=True).stdout.split()[0]

    def status(*words, node="node02", user="alice"):
        return cluster.run(["srun", "--overlap", f"--jobid={job}", "-N1", "-n1", "-w", node, DPCTL, "status", *words], user=user)

    for node in ("node01", "node02"):
        done = status(node=node)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"step {job}.0: 4 ranks on 2 nodes, for ")
        assert "  node01  connected  ranks 0-1 said hello\n  node02  connected  ranks 2-3 said hello\n" in done.stdout
    machine = status("--json", f"{job}.0")
    told = json.loads(machine.stdout)
    assert (told["world_size"], [rank["state"] for node in told["nodes"] for rank in node["ranks"]]) == (4, ["hello"] * 4)
    nobodys = str(int(job) + 1000)
    assert f"no step {nobodys} of yours has a world on this node" in status(nobodys).stderr
    # Somebody else, on the same node at the same time, is told nothing.
    done = cluster.node("node02", ["setpriv", "--reuid=bob", "--regid=bob", "--clear-groups", DPCTL, "status"])
    assert done.returncode == 1 and "no step of yours has a world on this node" in done.stderr
    training.trained_on()
