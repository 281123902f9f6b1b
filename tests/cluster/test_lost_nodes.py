# SPDX-License-Identifier: Apache-2.0
"""--dp-spares and --dp-min-nodes: a node dies or is cut off, and the step goes on without it, or says why it does not."""
import contextlib
import os
import re
import signal
import time

import pytest
from localcluster.harness import ACCOUNTING, BUILD, VERSION, until
from test_restarts import RANK, begun, parent_of, ranks_of

# dead-after is the site's; Slurm itself takes a silent node for down after its SlurmdTimeout, 10 s here.
SITE = {"plugstack_args": "dead-after=3", "conf": ("SlurmdTimeout=10",), "accounting": ACCOUNTING}


class Step:
    """Two tasks on each of four nodes, which meet and then sleep."""

    def __init__(self, site, *options, program=(RANK, "meet", "600"), nodes=4):
        self.site = site
        self.process = site.popen(["srun", f"-N{nodes}", "--ntasks-per-node=2", "--no-kill", "--dp-on-failure=restart", *options, *program])

    def met(self, ranks):
        lines = [self.process.stdout.readline() for _ in range(ranks)]
        assert all(" met" in line for line in lines), lines

    def homes(self):
        """{rank: node}"""
        found = {}
        for node in self.site.node_states():
            pids = {process["pid"] for process in self.site.processes([node])}
            found.update({rank: node for rank, pid in ranks_of(self.site).items() if pid in pids})
        return found

    def end(self):
        """Ends the step; returns our lines."""
        self.site.run(["scancel", "-u", "alice"], user="root")
        with contextlib.suppress(Exception):
            self.process.wait(timeout=3)
        self.process.kill()  # where a node is dead, it waits KillWait (30 s) for its answer
        _, err = self.process.communicate(timeout=20)
        return [line for line in err.splitlines() if line.startswith("slurm-dp:")]


def changed(lines):
    """What begun() returns, with the change of nodes at the end of each line. Lines about silence are left out."""
    lines = [line for line in lines if " has been silent for " not in line]
    parts = [re.fullmatch(r"(.* later)( with .*)?", line) for line in lines]
    return [(*one, (part.group(2) or "").strip()) for part, one in zip(parts, begun([part.group(1) for part in parts]))]


LOST = "node {} (ranks {}) is lost: silent for 3 s"
LOST_BROKER = "node {} (ranks {}) is lost: it has confirmed no heartbeat for 1 s"
ALONE = "slurm-dp: only 1 of 4 nodes can be reached, too few to go on; ending the step"


@pytest.mark.essential
def test_spares_take_the_places_of_two_nodes_that_lose_their_power(another_cluster):
    site = another_cluster(nodes=5, **SITE)
    step = Step(site, "--dp-spares=2", nodes=5)
    step.met(6)
    assert step.homes() == {rank: f"node0{1 + rank // 2}" for rank in range(6)}
    for victim in ("node02", "node03"):
        site.kill(victim)
        step.met(6)
    assert step.homes() == {0: "node01", 1: "node01", 2: "node04", 3: "node04", 4: "node05", 5: "node05"}
    assert changed(step.end()) == [(LOST.format("node02", "2-3"), 1, "with spare node node04"), (LOST.format("node03", "4-5"), 2, "with spare node node05")]
    assert not [state for state in site.node_states().values() if "drain" in state]


def test_a_hostfile_has_the_nodes_of_its_generation(another_cluster):
    site = another_cluster(nodes=4, **SITE)
    show = "[ $RANK != 0 ] || paste -sd, ${DP_HOSTFILE:-/dev/null}; exec sleep 600"
    step = Step(site, "--dp-spares=1", "--dp-min-nodes=2", program=("sh", "-c", show))
    assert step.process.stdout.readline() == "node01 slots=2,node02 slots=2,node03 slots=2\n"
    site.kill("node02")
    assert step.process.stdout.readline() == "node01 slots=2,node04 slots=2,node03 slots=2\n"
    site.kill("node03")
    assert step.process.stdout.readline() == "node01 slots=2,node04 slots=2\n"
    step.end()


def test_two_nodes_are_lost_at_once_and_one_is_replaced(another_cluster):
    site = another_cluster(nodes=5, **SITE)
    step = Step(site, "--dp-spares=1", "--dp-min-nodes=2", nodes=5)
    step.met(8)
    for victim in ("node02", "node04"):
        site.kill(victim)
    step.met(6)
    assert step.homes() == {0: "node01", 1: "node01", 2: "node05", 3: "node05", 4: "node03", 5: "node03"}
    lines = step.end()
    assert "with spare node node05 and 6 ranks on 3 nodes" in lines[-1], lines


WHERE = 'echo $DP_GENERATION $RANK/$WORLD_SIZE $SLURM_PROCID/$SLURM_NTASKS $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK/$GROUP_WORLD_SIZE $(hostname); exec sleep 600'


def test_without_a_spare_the_world_shrinks_and_ends_where_it_may_not(another_cluster):
    site = another_cluster(nodes=4, **SITE)
    step = Step(site, "--dp-min-nodes=2", program=("sh", "-c", WHERE))
    first = sorted(step.process.stdout.readline() for _ in range(8))
    assert first == [f"0 {rank}/8 {rank}/8 {rank % 2}/2 {rank // 2}/4 node0{1 + rank // 2}\n" for rank in range(8)]
    for generation, victim, left in ((1, "node02", ["node01", "node03", "node04"]), (2, "node04", ["node01", "node03"])):
        site.kill(victim)
        size = 2 * len(left)
        lives = sorted(step.process.stdout.readline() for _ in range(size))
        assert lives == [f"{generation} {rank}/{size} {rank}/{size} {rank % 2}/2 {rank // 2}/{len(left)} {left[rank // 2]}\n" for rank in range(size)]
    site.kill("node03")
    until(lambda: not site.processes(["node01"]), 20, "the end of the ranks")
    lines = [line for line in step.end() if " has been silent " not in line]
    assert changed(lines[:2]) == [(LOST.format("node02", "2-3"), 1, "with 6 ranks on 3 nodes"), (LOST.format("node04", "4-5"), 2, "with 4 ranks on 2 nodes")]
    assert lines[2] == f"slurm-dp: {LOST.format('node03', '2-3')}; 1 node is left, fewer than --dp-min-nodes=2; ending the step", lines


def test_a_node_that_is_cut_off_ends_its_ranks_before_they_begin_elsewhere(another_cluster):
    site = another_cluster(nodes=4, **SITE)
    step = Step(site, "--dp-spares=1")
    step.met(6)
    before = ranks_of(site)
    with site.cut_off("node02"):
        gone = until(lambda: None if any(os.path.exists(f"/proc/{before[rank]}") for rank in (2, 3)) else time.time(), 10, "the end of its ranks")
        step.met(6)
        for pid in ranks_of(site).values():
            assert os.stat(f"/proc/{pid}").st_ctime > gone - 0.1  # 0.1 s: until's pause, and the clock's tick
    assert step.homes()[2] == "node04"
    until(lambda: not [p for p in site.processes(["node02"]) if not p["command"].startswith("slurmstepd")], 20, "nothing on node02")
    # The node's own lines come once its network is back, or not at all.
    lines = [line for line in step.end() if " lost the rendezvous daemon on node01: " not in line and " responds again " not in line]
    assert changed(lines) == [(LOST.format("node02", "2-3"), 1, "with spare node node04")], lines
    site.assert_nothing_left(deadline=10)


def test_a_node_that_is_stopped_for_long_and_comes_back(another_cluster):
    """Everything on it stands still until its ranks have begun elsewhere; it then finds itself replaced."""
    site = another_cluster(nodes=4, **SITE)
    step = Step(site, "--dp-spares=1")
    step.met(6)
    stopped = [process["pid"] for process in site.processes(["node02"])]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    step.met(6)
    for pid in stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    until(lambda: not [p for p in site.processes(["node02"]) if not p["command"].startswith("slurmstepd")], 10, "nothing on node02")
    assert step.homes()[2] == "node04"
    lines = [line for line in step.end() if " responds again " not in line]
    assert changed(lines[:2])[:1] == [(LOST.format("node02", "2-3"), 1, "with spare node node04")], lines
    assert not [line for line in lines if "ending the step" in line], lines
    site.assert_nothing_left(deadline=10)


def test_a_network_cut_in_halves_goes_on_where_rank_0_is(another_cluster):
    site = another_cluster(nodes=4, **SITE)
    step = Step(site, "--dp-min-nodes=1")
    step.met(8)
    with site.cut_off("node03"), site.cut_off("node04"):
        step.met(4)
        assert step.homes() == {0: "node01", 1: "node01", 2: "node02", 3: "node02"}
    step.end()
    site.assert_nothing_left(deadline=10)


def test_the_others_go_on_without_rank_0s_node_that_is_cut_off(another_cluster):
    site = another_cluster(nodes=4, **SITE)
    step = Step(site, "--dp-min-nodes=1")
    step.met(8)
    before = ranks_of(site)
    with contextlib.ExitStack() as cuts:
        for other in ("node02", "node03", "node04"):
            cuts.enter_context(site.cut_off(other, "node01"))
        gone = until(lambda: None if any(os.path.exists(f"/proc/{before[rank]}") for rank in (0, 1)) else time.time(), 10, "the end of its ranks")
        step.met(6)
        assert step.homes() == {rank: f"node0{2 + rank // 2}" for rank in range(6)}
        for pid in ranks_of(site).values():
            assert os.stat(f"/proc/{pid}").st_ctime > gone - 0.1
    lines = step.end()
    assert ALONE in lines, lines
    assert changed(lines[-1:]) == [(LOST_BROKER.format("node01", "0-1"), 1, "with 6 ranks on 3 nodes")], lines
    site.assert_nothing_left(deadline=10)


@pytest.mark.essential
def test_a_broker_follows_a_broker(another_cluster):
    """The daemon on rank 0's node is killed, and then the one that has followed it."""
    site = another_cluster(nodes=5, **SITE)
    step = Step(site, "--dp-spares=2", nodes=5)
    step.met(6)
    for victim, follower in (("node01", "node04"), ("node04", "node05")):
        os.kill(next(p["pid"] for p in site.processes([victim]) if p["command"].startswith("dp-rendezvousd")), signal.SIGKILL)
        step.met(6)
        assert step.homes() == {0: follower, 1: follower, 2: "node02", 3: "node02", 4: "node03", 5: "node03"}
    lines = step.end()
    assert changed(lines) == [("node node01 (ranks 0-1) is lost: its connection closed", 1, "with spare node node04"),
                              ("node node04 (ranks 0-1) is lost: its connection closed", 2, "with spare node node05")], lines
    site.assert_nothing_left(deadline=10)


def test_rank_0s_node_loses_its_power(another_cluster):
    site = another_cluster(nodes=4, **SITE)
    step = Step(site, "--dp-spares=1", "--dp-min-nodes=1")
    step.met(6)
    site.kill("node01")
    step.met(6)
    assert step.homes() == {0: "node04", 1: "node04", 2: "node02", 3: "node02", 4: "node03", 5: "node03"}
    site.kill("node04")
    step.met(4)
    assert step.homes() == {0: "node02", 1: "node02", 2: "node03", 3: "node03"}
    lines = step.end()
    assert changed(lines) == [(LOST_BROKER.format("node01", "0-1"), 1, "with spare node node04"),
                              (LOST_BROKER.format("node04", "0-1"), 2, "with 4 ranks on 2 nodes")], lines


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("what", ["keeper", "daemon", "slurmstepd"])
def test_a_spare_takes_the_place_of_a_node_whose_process_is_killed(another_cluster, what, number):
    """Also of the node that has rank 0 and the broker."""
    site = another_cluster(nodes=4, **SITE)
    node, ranks = f"node0{1 + number}", f"{2 * number}-{2 * number + 1}"
    step = Step(site, "--dp-spares=1")
    step.met(6)
    rank = ranks_of(site)[2 * number + 1]
    lost = f"node {node} (ranks {ranks}) is lost: its connection closed"
    if what == "keeper":
        victim, said = parent_of(rank), f"the keeper of rank {2 * number + 1} on {node} was killed by signal 9 (SIGKILL)"
    elif what == "daemon":
        victim = next(p["pid"] for p in site.processes([node]) if p["command"].startswith("dp-rendezvousd"))
        said = lost
    else:
        victim, said = parent_of(parent_of(rank)), f"slurmstepd on {node} is gone; its 2 ranks are ended"
    os.kill(victim, signal.SIGKILL)
    step.met(6)
    assert step.homes()[2 * number + 1] == "node04"
    lines = step.end()
    if number == 0:
        # What its daemon says goes through slurmstepd.
        assert [line for line in lines if line == f"slurm-dp: {said}"] == ([f"slurm-dp: {said}"] if what == "keeper" else []), lines
        lines = [line for line in lines if line != f"slurm-dp: {said}"]
        said = lost
    assert changed(lines) == [(said, 1, "with spare node node04")], lines
    site.assert_nothing_left(deadline=10)


def test_a_lost_spare_is_named_and_the_world_still_restarts(another_cluster):
    site = another_cluster(nodes=4, **SITE)
    step = Step(site, "--dp-spares=1")
    step.met(6)
    site.kill("node04")
    said = step.process.stderr.readline()
    while " is lost" not in said:
        assert said, "the step has ended"
        said = step.process.stderr.readline()
    os.kill(ranks_of(site)[5], signal.SIGKILL)
    step.met(6)
    lines = [said.rstrip(), *(line for line in step.end() if " has been silent " not in line)]
    assert lines[0] == "slurm-dp: node node04 (a spare) is lost: silent for 3 s; 0 spare nodes left", lines
    assert begun(lines[1:]) == [("rank 5 on node03 was killed by signal 9 (SIGKILL)", 1)], lines


def test_a_program_that_ends_well_after_a_lost_node(another_cluster):
    """Once Slurm has seen that the node is down, srun's exit code is the program's; 26.05's counts the node's failure as 1."""
    site = another_cluster(nodes=3, **SITE)
    step = Step(site, "--dp-spares=1", nodes=3, program=("sh", "-c", 'echo $DP_GENERATION; [ $DP_GENERATION = 1 ] && exit 0; exec sleep 600'))
    assert [step.process.stdout.readline() for _ in range(4)] == ["0\n"] * 4
    site.kill("node02")
    out, err = step.process.communicate(timeout=90)
    assert out == "1\n" * 4, (out, err)
    assert step.process.returncode == (0 if VERSION.before("26.05") else 1), err
    site.heal("node02")
    site.assert_nothing_left(deadline=10)


BAD = {
    ("--dp-spares=2",): "--dp-spares=2, but this step has 2 nodes: at least one must have ranks; give -N 3 or more, or fewer spares",
    ("--dp-spares=1", "--dp-min-nodes=2"): "--dp-min-nodes=2, but only 1 node of this step has ranks; give at most 1, or more nodes",
    ("--dp-spares=1", "-n3"): "--dp-spares=1 needs the same number of tasks on each node, but this step has 3 tasks on 2 nodes; give --ntasks-per-node",
    ("--dp-spares=1", "-n4", "--dp-world=4"): "--dp-world=4, but this step has 2 ranks, not counting its spare nodes; give --dp-world=auto, or other numbers of tasks and nodes",
    ("--dp-spares=1", "--ntasks-per-node=2", "-m", "cyclic"):
        "--dp-spares needs consecutive ranks on each node, but the task distribution is cyclic; give --distribution=block",
}


@pytest.mark.parametrize("options", BAD, ids=" ".join)
def test_what_cannot_be_is_refused_in_one_line(cluster, options):
    done = cluster.run(["srun", "-N2", "--dp-on-failure=restart", "--no-kill", *options, "echo", "started"], timeout=30)
    assert done.returncode != 0 and "started" not in done.stdout
    lines = [line for line in done.stderr.splitlines() if "slurm-dp: " in line]
    assert len(lines) == 1 and lines[0].endswith(BAD[options]), done.stderr
    cluster.assert_nothing_left()
    cluster.assert_idle()


def test_a_heterogeneous_step_has_no_spares(cluster):
    component = ["-N1", "-n1", "--dp-on-failure=restart", "--dp-min-nodes=1", "echo", "started"]
    done = cluster.run(["srun", *component, ":", *component], timeout=30)
    assert done.returncode != 0 and "started" not in done.stdout, done.stdout
    assert "--dp-spares and --dp-min-nodes do not work in a heterogeneous step, whose nodes differ; leave them out, or give --dp-on-failure=abort" in done.stderr, done.stderr
    cluster.assert_nothing_left()


def test_dpctl_shows_the_spares(cluster):
    step = cluster.popen(["srun", "-N2", "--no-kill", "--dp-on-failure=restart", "--dp-spares=1", RANK, "meet", "600"])
    assert step.stdout.readline() == "rank 0 met\n"
    job = cluster.run(["squeue", "-h", "-o", "%i", "-u", "alice"], check=True).stdout.split()[0]
    shown = cluster.run(["srun", "--overlap", f"--jobid={job}", "-N1", "-n1", "-w", "node01", os.path.join(BUILD, "bin/dpctl"), "status"], check=True).stdout
    assert re.fullmatch(rf"step {job}\.0: 1 rank on 2 nodes, for .*\ngeneration 0, 10 restarts left, 1 spare node\n"
                        r"  node01  connected  rank 0 said hello\n  node02  connected  a spare\n", shown), shown
    cluster.run(["scancel", "-u", "alice"], check=True)
    cluster.assert_nothing_left()
    step.communicate(timeout=20)


def test_a_dry_run_has_no_ranks_on_spares(cluster):
    done = cluster.run(["srun", "-N2", "--ntasks-per-node=2", "--no-kill", "--dp-on-failure=restart", "--dp-spares=1", "--dp-dry-run", "false"], check=True)
    assert "WORLD_SIZE=2 nodes=1" in done.stdout and re.findall(r"(?m)^(\d+) .* (node\d+)$", done.stdout) == [("0", "node01"), ("1", "node01")], done.stdout
    cluster.assert_nothing_left()
    cluster.assert_idle()


def test_a_signal_does_not_end_the_spares(cluster):
    """scancel --signal asks for a checkpoint, and nothing ends."""
    script = "trap 'echo told' TERM HUP; echo up; for i in $(seq 80); do sleep 0.1; done; exit 0"
    step = cluster.popen(["srun", "-N2", "--ntasks-per-node=1", "--no-kill", "--dp-on-failure=restart", "--dp-spares=1", "sh", "-c", script])
    assert step.stdout.readline() == "up\n"
    job = cluster.run(["squeue", "-h", "-o", "%i", "-u", "alice"], check=True).stdout.split()[0]
    cluster.run(["scancel", "-s", "HUP", f"{job}.0"], check=True)
    out, err = step.communicate(timeout=30)
    assert out == "told\n" and step.returncode == 0 and "spare" not in err, (out, err)
    cluster.assert_nothing_left()


def test_without_no_kill_the_plugin_says_what_slurm_will_do(cluster):
    for words, said in (((), 1), (("--no-kill",), 0), (("-k",), 0)):
        done = cluster.run(["srun", "-N2", *words, "--dp-on-failure=restart", "--dp-spares=1", "sh", "-c", "echo $WORLD_SIZE"], timeout=30, check=True)
        assert done.stdout == "1\n" and done.stderr.count("Slurm will end this step when it marks one of its nodes down") == said, done
