# SPDX-License-Identifier: Apache-2.0
"""A training that is interrupted by Slurm or by a node's death goes on by itself, and ends where one ends that was never interrupted."""
import json
import os
import re
import time

import pytest
from localcluster.harness import BUILD, until

TRAINER = os.path.join(BUILD, "bin/trainer")

# The README's script: what a signal has stopped or another rank's death has ended is put into the queue again.
SCRIPT = """srun {training} --checkpoint-dir={directory} {options}
code=$?; echo "round ${{SLURM_RESTART_COUNT:-0}}: exit code $code"
case $code in
    4|7|13?|14?) [ "${{SLURM_RESTART_COUNT:-0}}" -lt 3 ] && scontrol requeue $SLURM_JOB_ID; sleep 20 ;;
esac
exit $code
"""


def summary_in(text):
    rows = [json.loads(row) for row in text.splitlines() if row.startswith('{"model"')]
    assert len(rows) == 1, text
    return rows[0]


class Job:
    """One batch job of alice's with the script above; its output is appended to over all rounds."""

    def __init__(self, cluster, name, steps, *sbatch, options="--save-interval=50"):
        self.cluster, self.name = cluster, name
        self.training = f"{TRAINER} --model=linear --seed=3 --batch-size=5 --epochs=100000 --steps={steps}"
        cluster.run(["rm", "-rf", name, f"{name}.out"], cwd="/home/alice", check=True)
        script = SCRIPT.format(training=self.training, directory=name, options=options)
        done = cluster.run(["sbatch", "--parsable", "-N2", "--ntasks-per-node=2", "--dp-world=auto", "--open-mode=append", "--requeue",
                            "-o", f"{name}.out", *sbatch, "--wrap", script], cwd="/home/alice", check=True)
        self.number = done.stdout.strip()

    def text(self):
        return self.cluster.run(f"cat {self.name}.out 2>/dev/null", cwd="/home/alice").stdout

    def steps_saved(self):
        listed = self.cluster.run(f"ls {self.name} 2>/dev/null", cwd="/home/alice").stdout
        return [int(step) for step in re.findall(r"(?m)^step-(\d+)$", listed)]

    def finish(self, within):
        """Until the end of the last round. Slurm holds a requeued job back for two minutes; its owner may let it go."""
        end = time.monotonic() + within
        while ": exit code 0\n" not in self.text():
            assert time.monotonic() < end, self.text() + self.cluster.run("squeue; sinfo", user="root").stdout
            self.cluster.run(f"scontrol update JobId={self.number} StartTime=now 2>/dev/null")
            time.sleep(1)
        return self.text()

    def expected(self, *srun):
        """The summary of the same training without an interruption."""
        done = self.cluster.run(["srun", "-N2", "--ntasks-per-node=2", "--dp-world=auto", *srun, *self.training.split()], timeout=150,
                                check=True)
        return json.loads(done.stdout.splitlines()[-1])


def assert_it_went_on(text, expected, stopped_by):
    rounds = re.findall(r"(?m)^round (\d+): exit code (\d+)$", text)
    assert rounds[-1][1] == "0", text
    assert stopped_by(rounds), text
    result = summary_in(text)
    assert 0 < result["resumed_from_step"] < result["steps"], text
    assert f"/step-{result['resumed_from_step']:09}: {result['resumed_from_step']} of {result['steps']} steps are made" in text
    assert result["parameters_equal_on_all_ranks"] is True
    assert result["parameters_hash"] == expected["parameters_hash"], text
    assert result["final_loss"] == expected["final_loss"]


def test_a_job_that_is_signalled_saves_is_requeued_and_goes_on(cluster):
    job = Job(cluster, "signalled", 300)
    until(job.steps_saved, 60, "the first checkpoint")
    cluster.run(["scancel", "--signal=USR1", job.number], check=True)  # as --signal=USR1@… does: to the ranks of all steps
    text = job.finish(within=150)
    said = re.findall(r"SIGUSR1 has come: stopped after step (\d+) of 300; the same command goes on from signalled/step-(\d+)", text)
    assert len(said) == 1 and int(said[0][0]) == int(said[0][1]), text
    assert_it_went_on(text, job.expected(), lambda rounds: rounds == [("0", "7"), ("1", "0")])
    assert summary_in(text)["resumed_from_step"] == int(said[0][0])
    assert len(job.steps_saved()) == 2 and max(job.steps_saved()) == 300
    cluster.assert_idle()
    cluster.assert_nothing_left()


@pytest.mark.long
def test_a_job_near_its_time_limit_saves_is_requeued_and_goes_on(cluster):
    """Slurm looks each half minute, and sends the signal up to a minute early: at its first look, then."""
    job = Job(cluster, "limited", 4000, "--time=1", "--signal=USR1@30", options="")
    text = job.finish(within=400)
    assert "SIGUSR1 has come: stopped after step " in text
    assert_it_went_on(text, job.expected(), lambda rounds: {code for _, code in rounds[:-1]} == {"7"})


def test_a_job_that_loses_a_node_is_requeued_and_goes_on_without_it(another_cluster):
    # Slurm itself counts a silent node as down after 10 s, here; its default is 300.
    site = another_cluster(nodes=3, plugstack_args="dead-after=3", conf=("SlurmdTimeout=10",))
    job = Job(site, "killed", 300)
    until(job.steps_saved, 60, "the first checkpoint")
    site.kill("node02")
    until(lambda: not site.node_states()["node02"].startswith(("idle", "alloc", "mix")), 60, "Slurm sees that node02 is down")
    text = job.finish(within=150)
    assert_it_went_on(text, job.expected("--exclude=node02"), lambda rounds: len(rounds) <= 2)
    assert "node node02 (ranks 2-3) is lost" in text or "node02" in text
    site.heal("node02")
