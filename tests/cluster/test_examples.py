# SPDX-License-Identifier: Apache-2.0
"""The job scripts of packaging/examples on a real Slurm: with smaller models and less data, but each in the world that it stands for."""
import csv
import json
import os
import re
import shlex
import signal
import time

import pytest
from localcluster.harness import BUILD, until
from localcluster.names import CHECKOUT
from test_tiles import DAWN, SN10, SN30_BY_UNIT, tiles_conf

HOME = "/home/alice/examples"
FASHION = "--data-dir=/usr/share/datasets/fashion-mnist"
SMALL_GPT = ["--num-layers=1", "--hidden-size=16", "--num-attention-heads=2", "--seq-length=16", "--batch-size=1", "--data-dir=tokens"]


class Desk:
    """Where alice submits from: dp-trainer and dpctl are in her PATH."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.run(f"mkdir -p bin && ln -s {BUILD}/bin/trainer bin/dp-trainer && ln -s {BUILD}/bin/dpctl bin/dpctl")
        self.run(f"dp-trainer prepare --text {CHECKOUT}/daemon/SECURITY.md --tokenizer=bytes --output=tokens")

    def run(self, command, check=True, timeout=60):
        return self.cluster.run(f"mkdir -p {HOME} && cd {HOME} && PATH={HOME}/bin:$PATH && {command}", check=check, timeout=timeout)

    def sbatch(self, script, *options, words=(), wait=True, check=True):
        """→ the job's number, when it is over, or at once where wait is False."""
        file = os.path.join(CHECKOUT, "packaging/examples", script)
        done = self.run(shlex.join(["sbatch", "--parsable", *(["--wait"] if wait else []), "--cpus-per-task=1", *options, file, *words]),
                        check=False, timeout=180)
        assert not check or done.returncode == 0, done.stdout + done.stderr + self.output(done.stdout.strip())
        return done.stdout.strip()

    def file(self, name):
        with open(self.cluster.host_path(f"{HOME}/{name}"), encoding="utf-8") as text:
            return text.read()

    def rows(self, name):
        """Those of a CSV file, none where it is not there yet."""
        return list(csv.DictReader(self.file(name).splitlines())) if os.path.exists(self.cluster.host_path(f"{HOME}/{name}")) else []

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


def test_every_script_is_run_here():
    with open(__file__, encoding="utf-8") as text:
        run = set(re.findall(r'"([a-z0-9-]+\.sbatch)"', text.read()))
    assert run == {name for name in os.listdir(os.path.join(CHECKOUT, "packaging/examples")) if name.endswith(".sbatch")}


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


def test_dawn_linear(cluster, desk):
    """16 ranks on 2 nodes; the table of the placement first, and a monitor that began and ended with the ranks."""
    def seconds():
        return {row["time"] for row in desk.rows(f"usage-{job}.csv")}

    with tiles_conf(cluster, DAWN):
        job = desk.sbatch("dawn-linear.sbatch", words=["--epochs=60"], wait=False)
        until(seconds, 60, "the monitor has a first line")
        # However fast the machine is: the ranks wait for one until the monitor has looked at them once more.
        one = next(process["pid"] for process in cluster.processes() if "/dp-trainer --" in process["command"])
        os.kill(one, signal.SIGSTOP)
        seen = seconds()
        until(lambda: seconds() - seen, 60, "the monitor has a later line")
        os.kill(one, signal.SIGCONT)
        until(lambda: '{"model"' in desk.output(job), 60, "the training has ended")
        cluster.assert_idle(deadline=40)
    text = desk.output(job)
    assert text.index("RANK  NODE_RANK") < text.index("DataParallel run: True")
    places = re.findall(r"(?m)^(\d+) +(\d) +(\d) +[\d.]+ +(\d) +0x[0-9a-f]+ +(node0\d)$", text)
    assert places == [(str(rank), str(rank // 8), str(rank % 8), str(rank % 8), f"node0{rank // 8 + 1}") for rank in range(16)], text
    result = summary(text)
    assert (result["world_size"], result["nodes"]) == (16, 2) and result["final_loss"] < 1e-2 and result["train_seconds"] > 0
    rows = desk.rows(f"usage-{job}.csv")
    assert {int(row["rank"]) for row in rows} == set(range(16)) and {row["host"] for row in rows} == {"node01", "node02"}
    assert len({row["time"] for row in rows}) >= 2
    assert any(float(row["compute"] or 0) > 0 for row in rows), rows[:3]
    assert any(float(row["cpu_percent"] or 0) > 0 for row in rows), rows[:3]


def test_sn30_unet2d(cluster, desk):
    """8 ranks on one node; each prints the rate of all of them, and the report has their mean."""
    with tiles_conf(cluster, SN30_BY_UNIT):
        job = desk.sbatch("sn30-unet2d.sbatch", words=["--init-features=2", "--batch-size=1", "--samples=8", "--epochs=2", "--min-throughput=0.001"])
    text = desk.output(job)
    lines = re.findall(r"(?m)^inner train loop time : (\S+) for 2 epochs, number of global steps: 2, e2e samples_per_sec: (\S+)$", text)
    assert len(lines) == 8, text
    assert all(float(seconds) * float(rate) == pytest.approx(16, rel=0.01) for seconds, rate in lines)
    assert summary(text)["world_size"] == 8
    (row,) = desk.report(job)
    assert row["samples_per_second"] == pytest.approx(sum(float(rate) for _, rate in lines) / 8)
    # Of a log that has nothing but these lines, too.
    desk.run(f"grep '^inner' slurm-{job}.out >lines.out")
    (of_lines,) = json.loads(desk.run("dp-trainer report --json lines.out").stdout)
    assert of_lines["ranks"] == 8 and of_lines["samples_per_second"] == pytest.approx(row["samples_per_second"])


def test_sn30_gpt(cluster, desk):
    """32 ranks on 2 nodes, a line a step in a file of its own, and the tutorial's last line."""
    with tiles_conf(cluster, SN30_BY_UNIT):
        job = desk.sbatch("sn30-gpt.sbatch", words=[*SMALL_GPT, "--vocab-size=257", "--steps=5", "--min-throughput=0.001", "--max-throughput=1e12"])
    text = desk.output(job)
    only(r"\{'e2e_train_time': \d+\.\d+, 'training_sequences_per_second': \d+\.\d+, 'final_loss': \d+\.\d+\}", text)
    result = summary(text)
    assert (result["world_size"], result["nodes"], result["steps"]) == (32, 2, 5) and result["final_loss"] < 7
    steps = [json.loads(line) for line in desk.file(f"gpt-{job}.jsonl").splitlines()]
    assert [line["step"] for line in steps if line["event"] == "step"] == [1, 2, 3, 4, 5]
    assert desk.report(job)[0]["ranks"] == 32


def test_dli_gpt(cluster, desk):
    """The tutorial's lines; and when its signal comes, it is saved, put into the queue again, and goes on."""
    steps = 8000  # some seconds: it is to be stopped long before its end
    job = desk.sbatch("dli-gpt.sbatch", words=[*SMALL_GPT, f"--steps={steps}", "--save-interval=50"], wait=False)
    until(lambda: f" iteration       60/{steps:>8} |" in desk.output(job), 90, "60 steps are made")
    cluster.run(["scancel", "--signal=USR1", job], check=True)  # as --signal=USR1@600 does
    end = time.monotonic() + 150
    while '{"model"' not in desk.output(job):
        assert time.monotonic() < end, desk.output(job) + cluster.run("squeue", user="root").stdout
        cluster.let_go(job)
        time.sleep(0.5)
    text = desk.output(job)
    assert text.count("using world size: 4, data-parallel-size: 4, tensor-model-parallel size: 1, pipeline-model-parallel size: 1\n") == 2, text
    stopped = int(only(rf".*received SIGUSR1: stopped after step (\d+) of {steps}; .*gpt-{job}/.*", text))
    result = summary(text)
    assert (result["resumed_from_step"], result["steps"], result["world_size"]) == (stopped, steps, 4)
    iterations = re.findall(rf"(?m)^ iteration +(\d+)/ +{steps} \| consumed samples: +(\d+) \| elapsed time per iteration \(ms\): \d+\.\d \| "
                            r"learning rate: (\S+) \| global batch size: +4 \| lm loss: (\S+) \| loss scale: 1\.0 \| grad norm: (\d+\.\d{3}) \| "
                            r"number of skipped iterations: +0 \| number of nan iterations: +0 \|$", text)
    assert [int(number) for number, *_ in iterations] == list(range(10, steps + 1, 10))
    assert [(samples, rate) for number, samples, rate, *_ in iterations if number == "100"] == [("400", "5.822E-05")]
    assert float(iterations[-1][3]) < float(iterations[0][3])
    assert len(os.listdir(cluster.host_path(f"{HOME}/tensorboard/{job}"))) >= 1
    assert desk.report(job)[0]["steps"] == steps


def test_dli_gpt_divided_among_its_ranks(desk):
    """The tutorial's hybrid run: two ranks of a node divide the layers, and the nodes are the stages of a pipeline."""
    job = desk.sbatch("dli-gpt.sbatch", words=[*SMALL_GPT, "--num-layers=2", "--steps=30", "--tensor-model-parallel-size=2",
                                               "--pipeline-model-parallel-size=2", "--accumulate=4"])
    text = desk.output(job)
    assert "using world size: 4, data-parallel-size: 1, tensor-model-parallel size: 2, pipeline-model-parallel size: 2\n" in text, text
    # A head of 257 tokens costs more than one of its layers does, so it is not the 20 % of equal stages.
    assert "4 ranks, tensor 2 pipeline 2 data 1, micro-batches 4, bubble 35 %; " in text, text
    result = summary(text)
    assert (result["tensor_parallel"], result["pipeline_parallel"], result["global_batch_size"]) == (2, 2, 4)
    assert result["parameters_equal_on_all_ranks"] is True
