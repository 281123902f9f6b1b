# SPDX-License-Identifier: Apache-2.0
"""Trainings over NCCL whose processes go on when others die: libdp-nccl and the trainer as they are, on emulated GPUs with a NCCL between them whose
collectives end as NCCL's do when a rank dies (tests/unit/trainer/cuda_emulator/nccl.cpp)."""
import json
import os
import re
import signal
import time

import pytest
from localcluster.harness import BUILD
from test_restarts import ranks_of
from test_survivors import TRAINER, kill

EMULATED = os.path.join(BUILD, "lib/emulated_cuda")
PROGRAM = ["--device=cuda", "--model=linear", "--deterministic", "--batch-size=4", "--steps=14", "--log-interval=1", "--log-style=megatron"]

pytestmark = [
    pytest.mark.usefixtures("one_step_each"),
    pytest.mark.skipif(not os.path.exists(os.path.join(EMULATED, "libdp-trainer-cuda.so")),
                       reason="this build has no emulated GPU: that needs the headers of CUDA (DP_CUDA=ON), and no sanitizers"),
]


def command(ranks, option):
    return ["srun", "-N2", f"-n{ranks}", "--ntasks-per-node=2", "-m", "block", f"--export=ALL,LD_LIBRARY_PATH={EMULATED}", option]


@pytest.fixture(scope="module")
def undisturbed(cluster):
    """The hash of so many ranks that nobody disturbs."""
    known = {}

    def of(ranks):
        if ranks not in known:
            done = cluster.run([*command(ranks, "--dp-world=auto"), TRAINER, *PROGRAM], check=True, timeout=120)
            end = json.loads(done.stdout.splitlines()[-1])
            assert end["communicator"] == "nccl" and end["world_size"] == ranks
            known[ranks] = end["parameters_hash"]
        return known[ranks]

    return of


class Training:
    def __init__(self, cluster, ranks, *more):
        self.step = cluster.popen([*command(ranks, "--dp-on-failure=restart"), TRAINER, *PROGRAM, *more])
        self.said = ""

    def comes_to(self, step):
        found = None
        while not found or int(found[1]) < step:
            line = self.step.stdout.readline()
            assert line, self.said + self.step.stderr.read()
            self.said += line
            found = re.match(r" iteration +(\d+)/", line)

    def end(self):
        out, err = self.step.communicate(timeout=120)
        self.said += out
        assert self.step.returncode == 0, self.said + err
        return json.loads(self.said.splitlines()[-1])


def test_two_deaths(cluster, undisturbed):
    training = Training(cluster, 3)
    for at, victim in ((3, 1), (8, 0)):
        training.comes_to(at)
        kill(ranks_of(cluster, TRAINER)[victim])
    end = training.end()
    assert end["parameters_hash"] == undisturbed(3) and end["parameters_equal_on_all_ranks"], training.said
    assert (end["recoveries"], end["steps_repeated"]) == (2, 0), training.said
    assert re.findall(r"continuing after step \d+ from rank (\d)'s memory", training.said) == ["0", "1"], training.said


def test_garbage_of_aborted_ranks_is_not_taken_for_sums(cluster, undisturbed):
    """Rank 2's node hears of the death late: until then rank 2 gets what rank 0 leaves, which has been aborted."""
    training = Training(cluster, 3)
    training.comes_to(5)
    (daemon,) = [process["pid"] for process in cluster.processes(["node02"]) if process["command"].startswith("dp-rendezvousd")]
    os.kill(daemon, signal.SIGSTOP)
    try:
        kill(ranks_of(cluster, TRAINER)[1])
        time.sleep(3)  # several steps' time
    finally:
        os.kill(daemon, signal.SIGCONT)
    end = training.end()
    assert end["parameters_hash"] == undisturbed(3) and end["parameters_equal_on_all_ranks"], training.said
    assert (end["recoveries"], end["steps_repeated"]) == (1, 0), training.said


def test_both_ranks_of_a_node_and_a_sharded_optimizer(cluster, undisturbed):
    """Whose copies are on the other node."""
    training = Training(cluster, 4, "--shard-optimizer")
    training.comes_to(5)
    ranks = ranks_of(cluster, TRAINER)
    kill(ranks[2], ranks[3])
    end = training.end()
    assert end["parameters_hash"] == undisturbed(4) and end["parameters_equal_on_all_ranks"], training.said
    assert end["steps_repeated"] == 0 and re.search(r"continuing after step \d+ from 2 ranks' memory", training.said), training.said
