# SPDX-License-Identifier: Apache-2.0
"""`dpctl top`: what the ranks of the whole step do with their time, on any of its nodes."""
import concurrent.futures
import contextlib
import csv
import io
import json
import os
import re
import signal
import subprocess
import time

import pytest
from localcluster.harness import BUILD, until
from localcluster.names import USERS

RANK = os.path.join(BUILD, "tests/rank")
DPCTL = os.path.join(BUILD, "bin/dpctl")
TOLD_TO_END = "/home/alice/told-to-end"
AS_ALICE = ["setpriv", "--reuid=alice", "--regid=alice", "--clear-groups"]


class Step:
    """Four ranks on two nodes, until they are told to end; rank 0 computes and loads, 1 is idle, 2 communicates and writes checkpoints,
    3 says nothing."""

    def __init__(self, cluster):
        self.cluster = cluster
        self._told = cluster.host_path(TOLD_TO_END)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._told)
        self.srun = cluster.popen(["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-world=auto", RANK, "phases", TOLD_TO_END])
        assert all(" met" in self.srun.stdout.readline() for _ in range(4))
        self.job = cluster.run("squeue -h -o %A -u alice", check=True).stdout.split()[0]
        time.sleep(0.3)  # until their first phase

    def top(self, *words, node="node02", user="alice"):
        return self.cluster.run(["srun", "--overlap", f"--jobid={self.job}", "-N1", "-n1", "-w", node, DPCTL, "top", *words], user=user)

    def end(self):
        with open(self._told, "w", encoding="ascii"):
            pass

    def ends_well(self):
        self.end()
        code = self.srun.wait(timeout=90)
        out, err = self.srun.stdout.read(), self.srun.stderr.read()
        assert code == 0 and out.count(" done\n") == 4 and err == "", (code, out, err)


@pytest.fixture
def step(cluster):
    made = []

    def start():
        made.append(Step(cluster))
        return made[-1]

    yield start
    for one in made:
        if one.srun.poll() is None:
            cluster.run(["scancel", "-u", "alice"])
            one.srun.wait(timeout=60)
    cluster.assert_nothing_left(deadline=10)
    cluster.assert_idle(deadline=30)


def test_every_node_tells_what_all_ranks_do(step):
    running = step()
    for node in ("node01", "node02"):
        done = running.top("--once", "--json", node=node)
        assert done.returncode == 0 and done.stderr == "", done
        told = json.loads(done.stdout)
        assert (told["step"], told["world_size"], told["not_measured"]) == (f"{running.job}.0", 4, [])
        assert 0.4 < told["seconds"] < 5
        assert [(rank["host"], rank["rank"], rank["local_rank"], rank["state"]) for rank in told["ranks"]] == [
            ("node01", 0, 0, "hello"), ("node01", 1, 1, "hello"), ("node02", 2, 0, "hello"), ("node02", 3, 1, "hello")]
        assert {(rank["user"], rank["command"]) for rank in told["ranks"]} == {("alice", "rank")}
        assert all(rank["pid"] > 1 for rank in told["ranks"])
        shares = [rank["percent"] for rank in told["ranks"]]
        assert 50 < shares[0]["compute"] < 90 and 10 < shares[0]["load"] < 50, shares
        assert shares[1]["idle"] == 100
        assert 25 < shares[2]["communication"] < 75 and 25 < shares[2]["checkpoint"] < 75, shares
        assert shares[3] is None
        assert sum(shares[2].values()) == pytest.approx(100, abs=0.1)
    lines = running.top("--once").stdout.splitlines()
    assert lines[0].startswith(f"step {running.job}.0: 4 ranks on 2 nodes, over ")
    assert lines[1].split() == ["HOST", "TILE", "%idle", "%compute", "%load", "%comm", "%chkpt", "%cpu", "RANK", "PID", "USER", "COMMAND"]
    assert [line.split()[0] for line in lines[2:]] == ["node01"] * 2 + ["node02"] * 2
    running.ends_well()


def test_tables_for_machines_come_at_their_pace_and_leave_out_who_was_idle(step):
    running = step()
    began = time.monotonic()
    done = running.top("--csv", "--count", "3", "-i", "0.3", "--skip-idle")
    took = time.monotonic() - began
    assert done.returncode == 0, done
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["rank"] for row in rows] == ["0", "2", "3"] * 3
    times = sorted({float(row["time"]) for row in rows})
    # One table comes late where the machine is busy, and the next one at its time.
    assert len(times) == 3 and took >= 3 * 0.3 and times[-1] - times[0] < 10, (times, took)
    running.ends_well()


def test_a_silent_node_is_named_and_nobody_waits_for_it(cluster, step):
    running = step()
    daemon = next(p["pid"] for p in cluster.processes(["node02"]) if p["command"].startswith("dp-rendezvousd"))
    os.kill(daemon, signal.SIGSTOP)
    try:
        asked = time.monotonic()
        done = cluster.node("node01", [*AS_ALICE, DPCTL, "top", "--once", f"{running.job}.0"])
        assert time.monotonic() - asked < 6
        rows = cluster.node("node01", [*AS_ALICE, DPCTL, "top", "--csv", "--count", "3", "-i", "0.3", f"{running.job}.0"])
    finally:
        os.kill(daemon, signal.SIGCONT)
    assert rows.returncode == 0 and {row["host"] for row in csv.DictReader(io.StringIO(rows.stdout))} == {"node01"}, rows
    assert re.fullmatch(r"dpctl: no rows of node02 \(ranks 2-3\): (no answer|silent for .*)\n", rows.stderr), rows
    assert done.returncode == 0, done
    last = done.stdout.splitlines()[-1]
    assert last.startswith("node02 (ranks 2-3): ") and ("no answer" in last or "silent for" in last), done.stdout
    assert "node01" in done.stdout.splitlines()[2]
    running.end()
    running.srun.wait(timeout=90)


def test_it_ends_well_with_the_step(cluster, step):
    running = step()
    tables = "/home/alice/tables"

    def shown():
        with open(cluster.host_path(tables), encoding="utf-8") as text:
            return text.read().count("step ")

    cluster.run(["touch", tables], check=True)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        looking = pool.submit(cluster.node, "node02", [*AS_ALICE, "sh", "-c", f"{DPCTL} top -i 0.5 {running.job}.0 >{tables}"])
        until(lambda: shown() >= 2 or looking.done(), 45, "dpctl top shows no second table")
        running.end()
        done = looking.result()
    assert done.returncode == 0 and shown() >= 2, done
    assert done.stderr.startswith(f"dpctl: step {running.job}.0 has ended: ") and done.stderr.count("\n") == 1, done.stderr
    running.ends_well()


AS_BOB = ["setpriv", "--reuid=bob", "--regid=bob", "--clear-groups"]
IN_TWO_NAMESPACES = ["unshare", "--user", "--map-root-user"] * 2


def ranks_socket(cluster, job):
    """As DP_SOCKET has it on node02."""
    listened = cluster.node("node02", ["cat", "/proc/net/unix"], check=True).stdout
    (name,) = set(re.findall(rf" 00010000 .*(@slurm-dp/{job}\.0/\S+)$", listened, re.M))
    return name


def test_somebody_else_is_told_nothing_and_does_not_disturb(cluster, step):
    running = step()
    for verb in ("top", "status", "waterfall"):
        for before, words in (([], []), ([], [running.job]), (IN_TWO_NAMESPACES, [])):
            done = cluster.node("node02", [*AS_BOB, *before, DPCTL, verb, *words])
            assert done.returncode == 1 and re.search("no step (\\d+ )?of yours has a world on this node", done.stderr), done
    done = cluster.node("node02", ["env", f"DP_SOCKET={ranks_socket(cluster, running.job)}", *AS_BOB, DPCTL, "status"])
    assert (done.returncode, done.stderr) == (1, "dpctl: the step of DP_SOCKET belongs to alice; unset DP_SOCKET, or name a step\n")
    running.ends_well()  # without a word of a stranger


def test_its_user_is_known_in_containers_too(cluster, step):
    running = step()
    for before in (IN_TWO_NAMESPACES[:3], IN_TWO_NAMESPACES):
        assert cluster.node("node02", [*AS_ALICE, *before, DPCTL, "status", running.job], check=True).stdout.startswith(f"step {running.job}.0: ")
    assert cluster.node("node02", [*AS_ALICE, *IN_TWO_NAMESPACES[:3], DPCTL, "status"], check=True).stdout.startswith(f"step {running.job}.0: ")
    running.ends_well()


def test_root_is_told_what_everybodys_steps_do_and_does_not_disturb(cluster, step):
    running = step()
    told = json.loads(cluster.node("node02", [DPCTL, "top", "--once", "--json"], check=True).stdout)
    assert {(rank["user"], rank["command"]) for rank in told["ranks"]} == {("alice", "rank")} and len(told["ranks"]) == 4
    own = ["env", f"DP_SOCKET={ranks_socket(cluster, running.job)}", DPCTL, "status"]
    for words in ([DPCTL, "status", running.job], [DPCTL, "waterfall", running.job], own):
        assert cluster.node("node02", words, check=True).stdout.startswith(f"step {running.job}.0: 4 ranks on 2 nodes")
    other = cluster.popen(["srun", "-N1", "-n1", "-w", "node02", "--dp-world=auto", RANK, "phases", TOLD_TO_END], user="bob")
    assert " met" in other.stdout.readline()
    job = cluster.run("squeue -h -o %A -u bob", check=True).stdout.strip()
    done = cluster.node("node02", [DPCTL, "status"])
    assert done.returncode == 1
    assert re.fullmatch(rf"dpctl: there are several steps on this node \(({running.job}.0 of alice|{job}.0 of bob|, ){{3}}\); name one: dpctl status \d+.0\n",
                        done.stderr), done
    assert cluster.node("node02", [DPCTL, "status", job], check=True).stdout.startswith(f"step {job}.0: 1 rank on 1 node")
    running.ends_well()
    out, err = other.communicate(timeout=60)
    assert (other.returncode, out, err) == (0, "rank 0 done\n", "")


def test_who_pretends_to_have_a_step_is_told_from_whose_it_is(cluster, step):
    running = step()
    names = [f"slurm-dp/{running.job}.0/{USERS['bob']}/aa", "slurm-dp/\x1b[31m7.0/1002/aa"]
    pretends = "import socket, sys\nall = [socket.socket(socket.AF_UNIX) for _ in sys.argv[1:]]\n" \
               "for one, name in zip(all, sys.argv[1:]): one.bind('\\0' + name); one.listen()\nprint('listens', flush=True)\nsys.stdin.read()"
    bob = cluster.popen(["srun", "-N1", "-n1", "-w", "node02", "--overlap", "/usr/bin/python3", "-c", pretends, *names], user="bob",
                        stdin=subprocess.PIPE)
    assert bob.stdout.readline() == "listens\n"
    for words in ([], [running.job]):
        done = cluster.node("node02", [DPCTL, "status", *words])
        assert done.returncode == 1 and f"ask as its owner: runuser -u USER -- dpctl status {running.job}.0" in done.stderr, done
        assert f"{running.job}.0 of alice" in done.stderr and f"{running.job}.0 of bob" in done.stderr and "\x1b" not in done.stderr, done
        assert cluster.node("node02", [*AS_ALICE, DPCTL, "status", *words], check=True).stdout.startswith(f"step {running.job}.0: ")
    bob.communicate(timeout=60)
    running.ends_well()


def test_a_closed_standard_output_is_said_and_gets_no_socket(cluster, step):
    running = step()
    done = cluster.node("node02", [*AS_ALICE, "sh", "-c", f"{DPCTL} top --once {running.job} >&-"])
    assert (done.returncode, done.stderr) == (1, "dpctl: cannot write the answer: Bad file descriptor\n")
    running.ends_well()


@pytest.mark.parametrize("terminal, redraws", [("xterm", True), ("dumb", False)])
def test_a_terminal_that_cannot_redraw_gets_one_table_below_the_other(cluster, step, terminal, redraws):
    running = step()
    shown = cluster.run(["srun", "--overlap", f"--jobid={running.job}", "-N1", "-n1", "-w", "node01", "env", f"TERM={terminal}",
                         "script", "-qec", f"{DPCTL} top --interval=0.2 --count=2", "/dev/null"])
    assert shown.returncode == 0, shown
    assert shown.stdout.count("%compute") == 2
    assert ("\x1b[" in shown.stdout) == redraws
