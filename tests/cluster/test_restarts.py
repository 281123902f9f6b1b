# SPDX-License-Identifier: Apache-2.0
"""--dp-on-failure=restart: ranks die, and the step goes on in its allocation, or says why it does not."""
import contextlib
import json
import os
import re
import signal
import time

import pytest
from localcluster.harness import ACCOUNTING, BUILD, press_ctrl_c, until
from localcluster.names import USERS

RANK = os.path.join(BUILD, "tests/rank")
RESTART = ["--dp-on-failure=restart"]
TWO_NODES = ["srun", "-N2", "--ntasks-per-node=2", *RESTART]
BEGAN_ANYWHERE = re.compile(r"generation \d+ began")
BEGAN = re.compile(r"slurm-dp: (.*); generation (\d+) began (\d+\.\d\d) s later$")
# Variables that differ from one generation to the next.
OF_A_GENERATION = {"DP_GENERATION", "DP_INJECTED", "DP_MASTER_PORT", "JAX_COORDINATOR_ADDRESS", "MASTER_PORT", "PET_MASTER_PORT",
                   "TORCHELASTIC_RESTART_COUNT"}

pytestmark = pytest.mark.usefixtures("one_step_each")


def ranks_of(cluster, command=RANK):
    """Pids of the ranks' programs by rank."""
    found = {}
    for process in cluster.processes():
        if not process["command"].startswith(command):
            continue
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{process['pid']}/environ", "rb") as file:
            if rank := re.search(rb"(?:^|\0)RANK=(\d+)", file.read()):
                found[int(rank.group(1))] = process["pid"]
    return found


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(") ")[2].split()[1])


def met(step, ranks=4):
    """All ranks of a generation have met and now sleep."""
    lines = [step.stdout.readline() for _ in range(ranks)]
    assert all(" met" in line for line in lines), lines


def start(cluster, *options):
    step = cluster.popen([*TWO_NODES, *options, RANK, "meet", "600"])
    met(step)
    return step


def end(cluster, step):
    cluster.run(["scancel", "-u", "alice"], check=True)
    cluster.assert_nothing_left()
    _, err = step.communicate(timeout=20)
    cluster.assert_idle(deadline=5)
    return [line for line in err.splitlines() if line.startswith("slurm-dp:")]


def begun(lines):
    """What began each generation, without the seconds."""
    found = [BEGAN.match(line) for line in lines]
    assert all(found), lines
    return [(one.group(1), int(one.group(2))) for one in found]


@pytest.mark.essential
@pytest.mark.parametrize("victims", [[3], [0], [1, 2]])
def test_killed_ranks_begin_another_generation_twice(cluster, victims):
    step = start(cluster)
    for _ in range(2):
        before = ranks_of(cluster)
        for victim in victims:
            with contextlib.suppress(ProcessLookupError):  # the first one's end may have reached it already
                os.kill(before[victim], signal.SIGKILL)
        met(step)
        after = ranks_of(cluster)
        assert sorted(after) == [0, 1, 2, 3] and not set(after.values()) & set(before.values())
    lines = begun(end(cluster, step))
    assert [generation for _, generation in lines] == [1, 2], lines
    for cause, _ in lines:
        assert cause in [f"rank {v} on node0{1 + v // 2} was killed by signal 9 (SIGKILL)" for v in victims]


@pytest.mark.essential
def test_a_program_goes_on_from_where_it_was(cluster):
    """A shell script that dies twice: each life has its own generation and port, and the step's end is the last life's."""
    script = ("echo life $DP_GENERATION $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS: $RANK $SLURM_PROCID $MASTER_PORT; "
              "[ $DP_GENERATION -ge 2 ] && exit 0; [ $RANK = 1 ] && { sleep 0.2; exit 5; }; sleep 600")
    done = cluster.run([*TWO_NODES, "sh", "-c", script], timeout=60)
    assert done.returncode == 0, done.stderr
    assert begun(done.stderr.splitlines()) == [("rank 1 on node01 exited with code 5", generation) for generation in (1, 2)]
    lives = [line.split() for line in done.stdout.splitlines()]
    assert len(lives) == 12
    for generation in "012":
        mine = [life for life in lives if life[1] == generation]
        assert all(life[2:5] == [generation, "of", "10:"] and life[5] == life[6] for life in mine)
        assert sorted(life[5] for life in mine) == ["0", "1", "2", "3"]
        assert len({life[7] for life in mine}) == 1
    assert len({life[7] for life in lives}) == 3
    cluster.assert_nothing_left()
    cluster.assert_idle()


def test_each_life_has_an_environment_of_its_own(cluster):
    """The keeper prepares the first one before it forks; nothing of it is left in the next ones."""
    script = ("case $DP_HOSTFILE in /proc/$$/fd/*) [ -s $DP_HOSTFILE ] || DP_HOSTFILE=empty;; esac; "
              "env | sed \"s/^/$DP_GENERATION $RANK /; s:/proc/$$/fd/[0-9]*:/proc/SELF/fd/N:\"; "
              "[ $DP_GENERATION -ge 2 ] && exit 0; [ $RANK = 1 ] && { sleep 0.2; exit 5; }; sleep 600")
    done = cluster.run([*TWO_NODES, "-m", "block", "sh", "-c", script], timeout=60, env={"NODE_RANK": "9", "KEPT": "by the user"})
    assert done.returncode == 0, done.stderr
    lives = {}
    for line in done.stdout.splitlines():
        generation, rank, variable = line.split(" ", 2)
        name, _, value = variable.partition("=")
        lives.setdefault((int(rank), int(generation)), {})[name] = value
    assert sorted(lives) == [(rank, generation) for rank in range(4) for generation in range(3)]
    for (rank, generation), variables in lives.items():
        first = lives[rank, 0]
        assert first["DP_HOSTFILE"] == "/proc/SELF/fd/N" and first["KEPT"] == "by the user" and first["NODE_RANK"] == str(rank // 2), first
        differ = {name for name in {*first, *variables} if first.get(name) != variables.get(name)}
        assert differ <= OF_A_GENERATION, (rank, generation, differ)


ENDS = {
    "exit 5": (["--dp-restarts=1"], 5, "rank 0 on node01 exited with code 5; all restarts are used (--dp-restarts=1); ending the step"),
    "exit 2": ([], 2, "rank 0 on node01 exited with code 2; --dp-final-exit lists this code; ending the step"),
    "exit 64": (["--dp-final-exit=64-70"], 64,
                "rank 0 on node01 exited with code 64; --dp-final-exit lists this code; ending the step"),
    "exit 7": ([], 7, "rank 0 on node01 exited with code 7; the third generation in a row to end without progress: within 10 s of its start; ending the step"),
    "kill -9 $$": (["--dp-restarts=0"], 137,
                   "rank 0 on node01 was killed by signal 9 (SIGKILL); no restart is allowed (--dp-restarts=0); ending the step"),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_step_that_no_restart_helps_ends_and_says_why(cluster, how):
    options, code, line = ENDS[how]
    script = f"[ $RANK = 0 ] && {{ sleep 0.1; {how}; }}; exec sleep 600"
    done = cluster.run([*TWO_NODES, *options, "sh", "-c", script], timeout=60)
    assert done.returncode == max(code, 143) and f"slurm-dp: {line}" in done.stderr, (done.returncode, done.stderr)
    # Slurm knows how the first one ended.
    assert f"task 0: Exited with exit code {code}" in done.stderr or "task 0: Killed" in done.stderr, done.stderr
    cluster.assert_nothing_left()
    cluster.assert_idle()


@pytest.mark.skipif(not ACCOUNTING, reason="clusters of this Slurm have no accounting here")
def test_slurm_accounts_for_a_step_as_it_does_without_keepers(cluster):
    ways = ["exit 0", "exit 2", "exit 64", "kill -9 $$"]
    first = cluster.next_job()
    for how in ways:
        for options in (["--dp-on-failure=abort"], [*RESTART, "--dp-restarts=0"]):
            cluster.run(["srun", "-N2", "--ntasks-per-node=2", *options, "sh", "-c", f"[ $RANK = 0 ] && {{ sleep 0.2; {how}; }}; [ '{how}' = 'exit 0' ] || exec sleep 600"])
    accounts = [steps for _, steps in sorted(cluster.accounts(first).items())]
    for how, without, with_keepers in zip(ways, accounts[::2], accounts[1::2], strict=True):
        ((_, _, state, _),) = without
        assert with_keepers == without and state == ("COMPLETED" if how == "exit 0" else "CANCELLED"), (how, without, with_keepers)


def test_what_ranks_leave_behind_does_not_live_on(cluster, tmp_path):
    """Children in sessions of their own, of parents that are gone and deaf to SIGTERM, end with their generation."""
    script = ("trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep 600.28' &); trap - TERM; "
              "[ $RANK = 0 ] && [ $DP_GENERATION = 0 ] && { sleep 0.5; exit 1; }; [ $DP_GENERATION = 1 ] && { sleep 1; pgrep -c -f '^sleep 600.28'; exit 0; }; "
              "sleep 600")
    done = cluster.run(["srun", "-n2", *RESTART, "sh", "-c", script], timeout=60)
    assert done.returncode == 0, done.stderr
    left = [int(line) for line in done.stdout.splitlines()]
    assert left and all(count <= 2 for count in left), done.stdout  # of this generation alone
    cluster.assert_nothing_left()


@pytest.mark.essential
def test_a_killed_keeper_takes_its_rank_along_and_ends_the_step(cluster):
    step = start(cluster)
    keeper = parent_of(ranks_of(cluster)[3])
    os.kill(keeper, signal.SIGKILL)
    _, err = step.communicate(timeout=20)
    assert "slurm-dp: the keeper of rank 3 on node02 was killed by signal 9 (SIGKILL); no other node can take over" in err, err
    cluster.assert_nothing_left()
    cluster.assert_idle()


@pytest.mark.parametrize("how", ["ctrl-c", "SIGTERM", pytest.param("time limit", marks=pytest.mark.long)])
def test_a_step_that_is_told_to_end_is_not_restarted(cluster, how):
    step = start(cluster, *(["--time=0:05"] if how == "time limit" else []))
    if how == "ctrl-c":
        press_ctrl_c(step)
    elif how == "SIGTERM":
        job = cluster.run(["squeue", "-h", "-o", "%i", "-u", "alice"], check=True).stdout.split()[0]
        cluster.run(["scancel", "-s", "TERM", f"{job}.0"], check=True)
    else:
        job = cluster.run(["squeue", "-h", "-o", "%i", "-u", "alice"], check=True).stdout.split()[0]
        cluster.run(["scontrol", "update", f"jobid={job}", "timelimit=0:01"], user="root", check=True)
    _, err = step.communicate(timeout=120)
    cluster.assert_nothing_left()
    cluster.assert_idle(deadline=10)
    assert "generation" not in err, err


def test_standard_input_ends(cluster):
    done = cluster.run(["srun", "-n2", "-i0", *RESTART, "sh", "-c", "[ $RANK = 1 ] || wc -c"], input="x" * 100000, timeout=30)
    assert done.returncode == 0 and done.stdout.split() == ["100000"], done.stderr


def test_another_user_is_no_keeper(cluster):
    step = start(cluster)
    names = cluster.node("node01", ["sh", "-c", "grep -o '@slurm-dp/.*/k$' /proc/net/unix | sort -u"], check=True).stdout.split()
    assert len(names) == 1
    stranger = (f"import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect('\\0{names[0][1:]}'); s.send(b'keep 1'); "
                "print('got', s.recv(99))")
    uid = USERS["bob"]
    done = cluster.node("node01", ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "/usr/bin/python3", "-c", stranger])
    assert done.stdout == "got b''\n" or "Connection reset" in done.stderr or "Broken pipe" in done.stderr, (done.stdout, done.stderr)
    lines = end(cluster, step)
    assert len(lines) == 1 and f"a keeper's connection of user id {uid}" in lines[0], lines


def test_signals_reach_the_program_once(cluster):
    script = "trap 'echo usr1' USR1; echo ready; for i in $(seq 60); do sleep 0.1; done"
    step = cluster.popen(["srun", "-n2", *RESTART, "sh", "-c", script])
    assert [step.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
    job = cluster.run(["squeue", "-h", "-o", "%i", "-u", "alice"], check=True).stdout.split()[0]
    cluster.run(["scancel", "-s", "USR1", f"{job}.0"], check=True)
    out, err = step.communicate(timeout=30)
    assert out == "usr1\n" * 2 and step.returncode == 0, (out, err)


@pytest.mark.essential
def test_suspend_and_resume_between_two_deaths(cluster):
    step = start(cluster)
    os.kill(ranks_of(cluster)[1], signal.SIGKILL)
    met(step)
    job = cluster.run(["squeue", "-h", "-o", "%i", "-u", "alice"], check=True).stdout.split()[0]
    cluster.run(["scontrol", "suspend", job], user="root", check=True)
    time.sleep(3)
    cluster.run(["scontrol", "resume", job], user="root", check=True)
    os.kill(ranks_of(cluster)[2], signal.SIGKILL)
    met(step)
    lines = [line for line in end(cluster, step) if "stopped by a signal" not in line and "continue" not in line]
    assert [generation for _, generation in begun(lines)] == [1, 2]


def test_scancel_at_every_moment_of_a_restart(cluster):
    for moment in range(0, 12):
        step = start(cluster)
        os.kill(ranks_of(cluster)[3], signal.SIGKILL)
        time.sleep(0.01 * moment)
        cluster.run(["scancel", "-u", "alice"], check=True)
        cluster.assert_nothing_left()
        step.communicate(timeout=20)
        cluster.assert_idle(deadline=5)


def test_a_death_in_the_next_generations_start(cluster):
    """Each program of generation 1 is killed as soon as it is seen."""
    step = start(cluster)
    first = ranks_of(cluster)
    os.kill(first[0], signal.SIGKILL)
    second = until(lambda: {rank: pid for rank, pid in ranks_of(cluster).items() if pid not in first.values()}, 10, "the next life")
    for pid in second.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    gone = {*first.values(), *second.values()}
    until(lambda: len(ranks_of(cluster)) == 4 and not gone & set(ranks_of(cluster).values()), 10, "a life that nobody kills")
    generations = [generation for _, generation in begun(end(cluster, step))]
    assert generations == sorted(generations) and len(generations) in (1, 2), generations  # 1 may not have begun when it died


# Adds one to a key, as PyTorch 1.13 would, and fails in generation 0.
ADD_AND_DIE_ONCE = r"""
import os, socket, struct, sys, time
s = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), timeout=20)
s.sendall(b"\3" + struct.pack("<Q", 5) + b"lives" + struct.pack("<q", 1))
print(os.environ["DP_GENERATION"], struct.unpack("<q", s.recv(8))[0], flush=True)
time.sleep(0.2)
sys.exit(0 if os.environ["DP_GENERATION"] == "1" else 1)
"""


def test_pytorchs_store_begins_empty(cluster):
    """What one generation put there, the next one does not find; and its port is another one."""
    done = cluster.run(["srun", "-n1", *RESTART, "--dp-store=torch", "/usr/bin/python3", "-c", ADD_AND_DIE_ONCE], timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0", "1", "1", "1"], done.stdout
    cluster.assert_nothing_left()


# What is run in a container is told from what is not by what it sees.
CONTAINER = ["unshare", "--mount", "--map-root-user", "sh", "-ec", 'mount -t tmpfs none /tmp; test "$(id -u)" = 0; exec "$@"', "sh"]


def test_in_containers(cluster):
    """Each life has one of its own; what kills the rank is outside."""
    program = "/home/alice/rank-static"
    cluster.run(["cp", os.path.join(BUILD, "tests/rank-static"), program], check=True)
    step = cluster.popen([*TWO_NODES, *CONTAINER, program, "meet", "600"])
    met(step)
    for victim in (2, 0):
        os.kill(ranks_of(cluster, program)[victim], signal.SIGKILL)
        met(step)
    assert begun(end(cluster, step)) == [("rank 2 on node02 was killed by signal 9 (SIGKILL)", 1),
                                         ("rank 0 on node01 was killed by signal 9 (SIGKILL)", 2)]


def test_the_bundled_trainer_ends_with_the_same_bits(cluster):
    """As any program that goes on from its own checkpoint: killed twice, and once while a checkpoint is written.

    A rank is held while one looks, and the training goes on for a millisecond between two looks: no moment is missed, however fast it is."""
    trainer = os.path.join(BUILD, "bin/trainer")
    training = [trainer, "--model=linear", "--seed=3", "--batch-size=5", "--epochs=1000000", "--steps=1600", "--deterministic", "--save-interval=50",
                "--resume=auto"]

    def hash_in(text):
        (row,) = [json.loads(row) for row in text.splitlines() if row.startswith('{"model"')]
        return row["parameters_hash"], row["steps"]

    cluster.run("rm -rf whole often", cwd="/home/alice", check=True)
    whole = cluster.run([*TWO_NODES, *training, "--checkpoint-dir=whole"], cwd="/home/alice", timeout=120, check=True)
    step = cluster.popen([*TWO_NODES, *training, "--checkpoint-dir=often"], cwd="/home/alice")
    ranks = until(lambda: len(found := ranks_of(cluster, trainer)) == 4 and found, 60, "all ranks are there", every=0.005)
    folder = cluster.host_path("/home/alice/often")

    def saved():
        with contextlib.suppress(FileNotFoundError):
            return max((int(name[5:]) for name in os.listdir(folder) if re.fullmatch(r"step-\d+", name)), default=0)
        return 0

    def is_writing():
        with contextlib.suppress(FileNotFoundError):
            return any(not re.fullmatch(r"step-\d+", name) for name in os.listdir(folder))
        return False

    def held_when(rank, condition):
        os.kill(ranks[rank], signal.SIGSTOP)
        if condition():
            return True
        os.kill(ranks[rank], signal.SIGCONT)
        return False

    # Rank 0 writes; it is killed in the middle of a checkpoint.
    for victim, condition, what in ((1, lambda: saved() >= 100, "a checkpoint"),
                                    (0, lambda: saved() > reached and is_writing(), "the middle of one"),
                                    (3, lambda: saved() >= reached + 100, "a later one")):
        until(lambda: held_when(victim, condition), 60, what, every=0.001)
        reached = saved()
        os.kill(ranks[victim], signal.SIGKILL)
        line = ""
        while not BEGAN.match(line):
            line = step.stderr.readline()
            assert line, step.stdout.read()
    out, err = step.communicate(timeout=120)
    assert step.returncode == 0, err
    assert hash_in(out) == hash_in(whole.stdout)
    assert not [line for line in err.splitlines() if BEGAN.match(line)], err
    cluster.assert_nothing_left()


def test_a_heterogeneous_step_and_a_step_of_one_task(cluster):
    script = "echo $DP_GENERATION $RANK $WORLD_SIZE $NODE_RANK $LOCAL_RANK $(hostname); [ $DP_GENERATION = 1 ] && exit 0; [ $RANK = 2 ] && { sleep 0.5; exit 3; }; exec sleep 600"
    done = cluster.run(["srun", "-N1", "-n2", *RESTART, "sh", "-c", script, ":", "-N1", "-n1", *RESTART, "sh", "-c", script], timeout=60)
    assert done.returncode == 0, done.stderr
    first = next(line.split()[5] for line in done.stdout.splitlines() if line.startswith("0 0 "))
    second = "node02" if first == "node01" else "node01"
    assert sorted(done.stdout.splitlines()) == [f"{life} {rank} 3 {rank // 2} {rank % 2} {(first, second)[rank // 2]}" for life in (0, 1) for rank in range(3)]
    alone = cluster.run(["srun", "-n1", *RESTART, "sh", "-c", script.replace("RANK = 2", "RANK = 0")], timeout=60)
    assert alone.returncode == 0 and len(alone.stdout.splitlines()) == 2, alone.stderr
    cluster.assert_nothing_left()
    cluster.assert_idle()


def test_dpctl_has_the_history(cluster):
    step = start(cluster)
    os.kill(ranks_of(cluster)[3], signal.SIGKILL)
    met(step)
    job = cluster.run(["squeue", "-h", "-o", "%i", "-u", "alice"], check=True).stdout.split()[0]
    dpctl = os.path.join(BUILD, "bin/dpctl")
    shown = cluster.run(["srun", "--overlap", f"--jobid={job}", "-N1", "-n1", "-w", "node02", dpctl, "history"], check=True).stdout
    assert re.fullmatch(rf"step {job}\.0: generation 1, 9 restarts left\n  after \d+\.\d\d s  generation 1 began \d+\.\d\d s later  "
                        r"rank 3 on node02 was killed by signal 9 \(SIGKILL\)\n", shown), shown
    end(cluster, step)


def test_without_slurm(cluster):
    """dpctl launch has keepers, too."""
    script = "echo life $DP_GENERATION of $RANK; [ $DP_GENERATION = 1 ] && exit 0; [ $RANK = 1 ] && { sleep 0.1; kill -9 $$; }; sleep 600"
    dpctl = os.path.join(BUILD, "bin/dpctl")
    done = cluster.run([dpctl, "launch", "-n", "3", "--on-failure=restart", "--", "sh", "-c", script], timeout=30)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert sorted(done.stdout.splitlines()) == sorted(f"life {life} of {rank}" for life in (0, 1) for rank in range(3))
    assert re.search(r"rank 1 on \S+ was killed by signal 9 \(SIGKILL\); generation 1 began \d+\.\d\d s later", done.stderr), done.stderr
    cluster.assert_nothing_left()
