# SPDX-License-Identifier: Apache-2.0
"""Job scripts of packaging/examples on a real Slurm, on less data, but each in the world that it stands for."""
import json
import os
import re
import shlex

import pytest
from localcluster.harness import BUILD
from localcluster.names import CHECKOUT
from test_tiles import SN10, tiles_conf

HOME = "/home/alice/examples"
FASHION = "--data-dir=/usr/share/datasets/fashion-mnist"


class Desk:
    """Where alice submits from: dp-trainer and dpctl are in her PATH."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.run(f"mkdir -p bin && ln -s {BUILD}/bin/trainer bin/dp-trainer && ln -s {BUILD}/bin/dpctl bin/dpctl")

    def run(self, command, check=True, timeout=60):
        return self.cluster.run(f"mkdir -p {HOME} && cd {HOME} && PATH={HOME}/bin:$PATH && {command}", check=check, timeout=timeout)

    def sbatch(self, script, *options, words=(), wait=True, check=True):
        """→ the job's number, when it is over, or at once where wait is False."""
        file = os.path.join(CHECKOUT, "packaging/examples", script)
        done = self.run(shlex.join(["sbatch", "--parsable", *(["--wait"] if wait else []), "--cpus-per-task=1", *options, file, *words]),
                        check=False, timeout=180)
        assert not check or done.returncode == 0, done.stdout + done.stderr + self.output(done.stdout.strip())
        return done.stdout.strip()

    def output(self, job):
        return self.run(f"cat slurm-{job}.out 2>/dev/null", check=False).stdout

    def report(self, *jobs):
        """`dp-trainer report` of their outputs."""
        return json.loads(self.run("dp-trainer report --json " + " ".join(f"slurm-{job}.out" for job in jobs)).stdout)


@pytest.fixture(scope="module")
def desk(cluster):
    return Desk(cluster)


@pytest.fixture(autouse=True)
def nothing_left(cluster):
    yield
    cluster.assert_idle(deadline=40)
    cluster.assert_nothing_left()


def only(pattern, text):
    """What the one line is that matches."""
    found = re.findall(f"(?m)^{pattern}$", text)
    assert len(found) == 1, (pattern, text)
    return found[0]


def summary(text):
    result = json.loads(only(r'\{"model".*', text))
    assert result["parameters_equal_on_all_ranks"] is True
    return result


def test_cyclone_cnn(desk):
    """One script on one rank, two, and two on each of two nodes: the tutorial's lines, and its table of them."""
    jobs = []
    for nodes, tasks in ((1, 1), (1, 2), (2, 2)):
        jobs.append(desk.sbatch("cyclone-cnn.sbatch", f"--nodes={nodes}", f"--ntasks-per-node={tasks}", words=[FASHION, "--epochs=1", "--steps=101"]))
        text = desk.output(jobs[-1])
        for line in (r"MASTER_ADDR: \d+\.\S+", r"MASTER_PORT: \d+", f"WORLD_SIZE: {nodes * tasks}", "NODE_RANK: 0", r"Entering training loop\.\.\.",
                     r"Exiting training loop\.\.\.", r"Training time = \d+\.\d+", r"Train Epoch: 1 \[1600/60000 \(\d+%\)\]\tLoss: \d\.\d{6}"):
            only(line, text)
        for rank in range(nodes * tasks):
            only(f"Rank {rank} on Node {rank // tasks}: Initializing process group.", text)
        assert summary(text)["global_batch_size"] == 16 * nodes * tasks
    rows = desk.report(*jobs)
    assert [(row["nodes"], row["ranks"], row["steps"]) for row in rows] == [(1, 1, 101), (1, 2, 101), (2, 4, 101)]
    assert rows[0]["speed_up"] == 1 and all(row["baseline"] == f"slurm-{jobs[0]}.out" for row in rows)


def test_its_threads_are_the_cpus_of_a_task(desk):
    job = desk.sbatch("cyclone-cnn.sbatch", "--cpus-per-task=2", words=[FASHION, "--epochs=1", "--steps=2", "--samples=64"])
    assert summary(desk.output(job))["threads"] == 2


def test_sn10_ffn(cluster, desk):
    """The same script with and without data parallelism; its measurement; and RDUs that do not fit its ranks."""
    with tiles_conf(cluster, SN10):
        text = desk.output(desk.sbatch("sn10-ffn.sbatch", words=[FASHION, "--samples=400"]))
        only("DataParallel run: True", text)
        only(r"Duration: \d+", text)
        assert (summary(text)["world_size"], summary(text)["steps"]) == (2, 200)

        alone = desk.output(desk.sbatch("sn10-ffn.sbatch", "--ntasks=1", "--gres=rdu:1", words=[FASHION, "--samples=400", "--data-parallel=off"]))
        only("DataParallel run: False", alone)
        assert (summary(alone)["world_size"], summary(alone)["steps"]) == (1, 400)

        measured = desk.output(desk.sbatch("sn10-ffn.sbatch", words=[FASHION, "measure-performance", "--iterations=5", "--warmup=1"]))
        assert json.loads(only(r'\{.*"communication_share_most".*', measured))["world_size"] == 2

        refused = desk.output(desk.sbatch("sn10-ffn.sbatch", "--gres=rdu:1", words=[FASHION], check=False))
        assert "--dp-tiles=4 for 2 ranks needs 8 tiles, and the step owns 4 tiles" in refused and "Duration" not in refused
