# SPDX-License-Identifier: Apache-2.0
"""A training that is interrupted by Slurm or by a node's death goes on by itself, and ends where one ends that was never interrupted."""
import json
import os
import re
import time

import pytest
from localcluster.harness import BUILD, until
from localcluster.names import CHECKOUT

TRAINER = os.path.join(BUILD, "bin/trainer")


ENDLESS = 1_000_000  # steps


def guides_script(training):
    """The job script of the trainer's guide with this training in place of its own; it also says which round ended how."""
    with open(os.path.join(CHECKOUT, "packaging/TRAINER.md"), encoding="utf-8") as guide:
        (script,) = re.findall(r"(?ms)^```bash\n(#!/bin/bash\n#SBATCH .*?)^```$", guide.read())
    for old, new in (("srun trainer --epochs=500 --checkpoint-dir=run1 --save-interval=100\n", f"srun {training}\n"),
                     ("code=$?\n", 'code=$?; echo "round ${SLURM_RESTART_COUNT:-0}: exit code $code"\n')):
        assert script.count(old) == 1, script
        script = script.replace(old, new)
    return script


def summary_in(text):
    rows = [json.loads(row) for row in text.splitlines() if row.startswith('{"model"')]
    assert len(rows) == 1, text
    return rows[0]


class Job:
    """One batch job of alice's with the guide's script; its output is appended to over all rounds. It trains without end until it is
    interrupted, so that no interruption can come too late, and in each later round 100 steps further than had been saved."""

    def __init__(self, cluster, name, *sbatch, options="--save-interval=50"):
        self.cluster, self.name = cluster, name
        self.training = f"{TRAINER} --model=linear --seed=3 --batch-size=5 --epochs={ENDLESS} --steps="
        cluster.run(["rm", "-rf", name, f"{name}.out"], cwd="/home/alice", check=True)
        saved = rf"ls {name} 2>/dev/null | sed -n 's/^step-0*\([0-9][0-9]*\)$/\1/p' | tail -1"
        script = guides_script(f"{self.training}$((100 + $({saved} | grep . || echo {ENDLESS - 100}))) --checkpoint-dir={name} {options}")
        done = cluster.run(["sbatch", "--parsable", "--ntasks-per-node=2", "-o", f"{name}.out", *sbatch], cwd="/home/alice", input=script, check=True)
        self.number = done.stdout.strip()

    def text(self):
        return self.cluster.run(f"cat {self.name}.out 2>/dev/null", cwd="/home/alice").stdout

    def steps_saved(self):
        listed = self.cluster.run(f"ls {self.name} 2>/dev/null", cwd="/home/alice").stdout
        return [int(step) for step in re.findall(r"(?m)^step-(\d+)$", listed)]

    def finish(self, within):
        """Until the end of the last round, with exit code 0."""
        end = time.monotonic() + within
        while ": exit code 0\n" not in self.text():
            assert time.monotonic() < end, self.text() + self.cluster.run("squeue; sinfo", user="root").stdout
            self.cluster.let_go(self.number)
            time.sleep(0.5)
        return self.text()

    def without_interruption(self, steps, *srun):
        """The summary of the same training, made in one step."""
        done = self.cluster.run(["srun", "-N2", "--ntasks-per-node=2", "--dp-world=auto", *srun, *f"{self.training}{steps}".split()],
                                timeout=150, check=True)
        return json.loads(done.stdout.splitlines()[-1])


def assert_it_went_on(job, text, stopped_by, *srun):
    """The step at which its last round began; srun's options are those of the training to compare it with."""
    rounds = re.findall(r"(?m)^round (\d+): exit code (\d+)$", text)
    assert rounds[-1][1] == "0", text
    assert stopped_by(rounds), text
    result = summary_in(text)
    resumed, steps = result["resumed_from_step"], result["steps"]
    assert resumed > 0 and steps == resumed + 100, text
    assert f"resuming from {job.name}/step-{resumed:09}: step {resumed} of {steps}" in text
    assert result["parameters_equal_on_all_ranks"] is True
    expected = job.without_interruption(steps, *srun)
    assert result["parameters_hash"] == expected["parameters_hash"], text
    assert result["final_loss"] == expected["final_loss"]
    return resumed


def test_a_job_that_is_signalled_saves_is_requeued_and_goes_on(cluster):
    job = Job(cluster, "signalled")
    until(job.steps_saved, 60, "the first checkpoint")
    cluster.run(["scancel", "--signal=USR1", job.number], check=True)  # as --signal=USR1@… does: to the ranks of all steps
    text = job.finish(within=150)
    stopped = assert_it_went_on(job, text, lambda rounds: rounds == [("0", "7"), ("1", "0")])
    assert text.count(f"received SIGUSR1: stopped after step {stopped} of {ENDLESS}; "
                      f"the same command continues from signalled/step-{stopped:09},") == 1, text
    assert f"step {stopped} of {stopped + 100}; SIGUSR1 stopped it there\n" in text
    assert len(job.steps_saved()) == 2 and max(job.steps_saved()) == stopped + 100
    cluster.assert_idle()
    cluster.assert_nothing_left()


@pytest.mark.long
def test_a_job_near_its_time_limit_saves_is_requeued_and_goes_on(cluster):
    """Slurm looks each half minute, and sends the signal up to a minute early: at its first look, then."""
    job = Job(cluster, "limited", "--time=1", "--signal=USR1@30", options="")
    text = job.finish(within=400)
    assert "received SIGUSR1: stopped after step " in text
    assert_it_went_on(job, text, lambda rounds: {code for _, code in rounds[:-1]} == {"7"})


def test_a_running_job_that_is_requeued_goes_on(cluster):
    """Slurm sends SIGTERM to the ranks and to the script, with which srun ends: what the ranks say then reaches nobody, but they save, and the
    next round says what had come.
    Without --save-interval there is no other checkpoint than that."""
    job = Job(cluster, "requeued", options="")
    until(lambda: f"epoch 1/{ENDLESS // 50} " in job.text(), 60, "the first epoch is over")
    assert job.steps_saved() == []
    cluster.run(["scontrol", "requeue", job.number], check=True)
    (saved,) = until(job.steps_saved, 20, "the checkpoint of the step at which SIGTERM came")
    text = job.finish(within=150)
    stopped = assert_it_went_on(job, text, lambda rounds: rounds == [("1", "0")])
    assert stopped == saved >= 50
    assert f"step {stopped} of {stopped + 100}; SIGTERM stopped it there\n" in text
    cluster.assert_idle()
    cluster.assert_nothing_left()


@pytest.mark.long
def test_a_job_that_is_preempted_saves_is_requeued_and_goes_on(another_cluster):
    """SIGTERM comes at the beginning of the partition's grace time, and what the ranks need of it is little."""
    site = another_cluster(conf=("PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE",
                                 "PartitionName=main Nodes=ALL Default=YES PriorityTier=1 GraceTime=60",
                                 "PartitionName=urgent Nodes=ALL PriorityTier=2"))
    job = Job(site, "preempted", options="")
    until(lambda: f"epoch 1/{ENDLESS // 50} " in job.text(), 60, "the first epoch is over")
    urgent = site.run(["srun", "--partition=urgent", "-N2", "--exclusive", "sh", "-c", "ls /home/alice/preempted"], timeout=50, check=True)
    saved = re.findall(r"(?m)^step-(\d+)$", urgent.stdout)
    assert len(saved) == 2 and len(set(saved)) == 1, "each of the two nodes sees the one checkpoint, before the grace time ends"
    text = job.finish(within=150)
    stopped = assert_it_went_on(job, text, lambda rounds: rounds == [("0", "7"), ("1", "0")])
    assert stopped == int(saved[0])
    assert f"received SIGTERM: stopped after step {stopped} of {ENDLESS}; the same command continues from preempted/step-{stopped:09}," in text


def test_a_job_that_loses_a_node_is_requeued_and_goes_on_without_it(another_cluster):
    # Slurm itself counts a silent node as down after 10 s, here; its default is 300.
    site = another_cluster(nodes=3, plugstack_args="dead-after=3", conf=("SlurmdTimeout=10",))
    job = Job(site, "killed")
    until(job.steps_saved, 60, "the first checkpoint")
    site.kill("node02")
    until(lambda: not site.node_states()["node02"].startswith(("idle", "alloc", "mix")), 60, "Slurm sees that node02 is down")
    text = job.finish(within=150)
    assert_it_went_on(job, text, lambda rounds: len(rounds) <= 2, "--exclude=node02")
    lost = re.findall(r"(?m)^slurm-dp: node node02 \(ranks 2-3\) is lost.*$", text)
    assert lost == ["slurm-dp: node node02 (ranks 2-3) is lost: silent for 3 s; ending the step"], text
    site.heal("node02")
