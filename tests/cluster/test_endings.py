# SPDX-License-Identifier: Apache-2.0
"""However a step ends, it ends at once and on every node: no process is left, no node stays in `completing`."""
import contextlib
import os
import re
import signal
import time

import pytest
from localcluster.harness import BUILD, press_ctrl_c, until

RANK = os.path.join(BUILD, "tests/rank")


def job_of(cluster, user="alice"):
    return cluster.run(["squeue", "-h", "-o", "%i", "-u", user]).stdout.split()


def start_and_meet(cluster, *options):
    """A step whose ranks have met and now sleep."""
    step = cluster.popen(["srun", "-N2", "-n8", "--ntasks-per-node=4", "--dp-world=auto", *options, RANK, "meet", "600"])
    met = [step.stdout.readline() for _ in range(8)]
    assert all(" met" in line for line in met), met
    return step


def finish(step, deadline=10):
    out, err = step.communicate(timeout=deadline)
    return out, err


@pytest.mark.essential
def test_scancel_leaves_nothing_within_two_seconds(cluster):
    step = start_and_meet(cluster)
    cluster.run(["scancel", *job_of(cluster)], check=True)
    cluster.assert_nothing_left(deadline=2)
    _, err = finish(step)
    assert "ending the step" not in err  # nobody died: the step was told to end
    cluster.assert_idle(deadline=5)


def test_ctrl_c_of_srun_leaves_nothing_within_two_seconds(cluster):
    step = start_and_meet(cluster)
    press_ctrl_c(step)
    cluster.assert_nothing_left(deadline=2)
    finish(step)
    cluster.assert_idle(deadline=5)


@pytest.mark.essential
@pytest.mark.parametrize("victim", [0, 5])
def test_a_killed_rank_ends_the_step_within_two_seconds_and_is_named(cluster, victim):
    step = start_and_meet(cluster)
    node = "node01" if victim < 4 else "node02"
    ranks = [p for p in cluster.processes([node]) if p["command"].startswith(RANK)]
    by_rank = {}
    for p in ranks:
        with open(f"/proc/{p['pid']}/environ", "rb") as file:
            by_rank[int(re.search(rb"(?:^|\0)RANK=(\d+)", file.read()).group(1))] = p["pid"]
    os.kill(by_rank[victim], signal.SIGKILL)
    cluster.assert_nothing_left(deadline=2)
    _, err = finish(step)
    assert step.returncode != 0
    named = [line for line in err.splitlines() if line.startswith("slurm-dp:")]
    assert named == [f"slurm-dp: rank {victim} on {node} was killed by signal 9 (SIGKILL); ending the step"], err
    cluster.assert_idle(deadline=5)


def test_a_step_that_slurm_kills_as_a_whole_has_no_lost_node(cluster):
    done = cluster.run(["srun", "-N2", "-n4", "--ntasks-per-node=2", "-W1", "--dp-world=auto", "sh", "-c", "[ $RANK = 0 ] && exit 0; sleep 20"],
                       timeout=60)
    assert done.returncode != 0 and "is lost" not in done.stderr, done.stderr
    cluster.assert_nothing_left()


def test_a_killed_slurmstepd_takes_its_ranks_along(cluster):
    step = start_and_meet(cluster)
    stepds = [p for p in cluster.processes(["node02"]) if p["command"].startswith("slurmstepd") and ".0" in p["command"]]
    assert stepds, cluster.processes(["node02"])
    for p in stepds:
        os.kill(p["pid"], signal.SIGKILL)
    until(lambda: not [p for p in cluster.processes() if p["command"].startswith(RANK)], 3, "all ranks ended")
    cluster.run(["scancel", "-u", "alice"])
    step.kill()  # srun itself would wait half a minute for the dead slurmstepd (KillWait)
    step.communicate(timeout=10)
    cluster.assert_nothing_left(deadline=5)
    cluster.assert_idle(deadline=10)


def test_a_killed_daemon_ends_the_step(cluster):
    step = start_and_meet(cluster)
    daemons = [p for p in cluster.processes(["node01"]) if "dp-rendezvousd" in p["command"]]
    assert len(daemons) == 1
    os.kill(daemons[0]["pid"], signal.SIGKILL)
    until(lambda: not [p for p in cluster.processes(["node02"]) if p["command"].startswith(RANK)], 3, "node02's ranks ended")
    cluster.run(["scancel", "-u", "alice"])
    finish(step, deadline=60)
    cluster.assert_nothing_left(deadline=5)
    cluster.assert_idle(deadline=10)


@pytest.mark.parametrize("how", ["scancel", "ctrl-c"])
def test_cancelling_at_every_moment_of_the_start(cluster, how):
    """Every 20 ms of the first half second after srun's own start."""
    for moment in range(0, 25, 2):
        step = cluster.popen(["srun", "-N2", "-n8", "--ntasks-per-node=4", "--dp-world=auto", RANK, "meet", "600"])
        time.sleep(0.02 * moment)
        if how == "scancel":
            jobs = until(lambda: job_of(cluster), 5, "the job is there")
            cluster.run(["scancel", *jobs], check=True)
        else:
            # Two that come at once may be one to srun, which then asks for one more.
            end = time.monotonic() + 15
            while step.poll() is None:
                assert time.monotonic() < end
                step.send_signal(signal.SIGINT)
                time.sleep(0.1)
        finish(step, deadline=15)
        cluster.assert_nothing_left(deadline=5)
        cluster.assert_idle(deadline=5)


@pytest.mark.essential
def test_cancelling_while_tasks_wait_for_a_broker_they_cannot_reach(cluster):
    """node02 cannot reach node01, where the broker is; its tasks wait in task_init until they are cancelled."""
    with cluster.cut_off("node02", "node01"):
        step = cluster.popen(["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-world=auto", RANK, "world"])
        until(lambda: [p for p in cluster.processes(["node02"]) if "dp-rendezvousd" in p["command"]], 10, "the relay runs")
        cluster.run(["scancel", *job_of(cluster)], check=True)
        cluster.assert_idle(deadline=5)
        cluster.assert_nothing_left()
        finish(step, deadline=30)


def test_a_rank_may_finish_before_the_others(cluster):
    """A goodbye is no death: rank 0's node is done at once, the other node trains on for longer than the broker stays."""
    script = f"test $SLURM_NODEID = 0 && exec {RANK} world; sleep 7; echo survived"
    done = cluster.run(["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-world=auto", "sh", "-c", script], timeout=40, check=True)
    assert done.stdout.count("survived") == 2
    assert "slurm-dp" not in done.stderr
    cluster.assert_nothing_left()


@pytest.mark.parametrize("moment", ["waiting", "running"])
def test_cancelling_with_a_node_cut_off_from_everything(cluster, moment):
    """Slurm itself keeps an unreachable node in `completing` until it answers; the other node, and this one once it answers, must not stay
    there for our sake."""
    with contextlib.ExitStack() as mended:
        mended.callback(cluster.heal, "node02")
        if moment == "waiting":
            cluster.cut("node02", "node01")
        step = cluster.popen(["srun", "-N2", "-n4", "--ntasks-per-node=2", "--dp-world=auto", RANK, "meet", "600"])
        what = "dp-rendezvousd" if moment == "waiting" else RANK
        until(lambda: [p for p in cluster.processes(["node02"]) if what in p["command"]], 10, f"{what} on node02")
        cluster.cut("node02")
        cluster.run(["scancel", *job_of(cluster)], check=True)
        until(lambda: cluster.node_states()["node01"] == "idle", 5, "node01 is idle")
        cluster.heal("node02")
        cluster.assert_idle(deadline=5)
        cluster.assert_nothing_left()
        finish(step, deadline=40)
