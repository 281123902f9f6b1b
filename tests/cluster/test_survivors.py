# SPDX-License-Identifier: Apache-2.0
"""dp_rejoin: processes that go on when others die (--dp-on-failure=restart, --dp-grace)."""
import json
import os
import random
import re
import signal
import time

import pytest
from localcluster.harness import BUILD, until
from test_lost_nodes import SITE, Step
from test_restarts import BEGAN, RANK, TWO_NODES, end, ranks_of

pytestmark = pytest.mark.usefixtures("one_step_each")

TRAINER = os.path.join(BUILD, "bin/trainer")
SAVED = "/home/alice/saved"
ENOUGH = "/home/alice/enough"  # ends the program
FIRST_STEP = re.compile(r"slurm-dp: generation \d+ took its first step, (\d+), \d+\.\d\d s after the failure; (\d+) steps? repeated\n")
MET = re.compile(r"generation (\d+): rank (\d+) of (\d+) met,(.*) replaced")
ENDED = re.compile(r"rank \d+: step aborted: ")  # said by a rank that hears of the abort before it is killed


def met(step, ranks=4):
    """What each rank of a generation has seen of the change, by rank: (generation, size, replaced)."""
    found = {}
    for _ in range(ranks):
        line = step.stdout.readline()
        while ENDED.match(line):
            line = step.stdout.readline()
        one = MET.match(line)
        assert one, line or step.stderr.read()
        found[int(one[2])] = (int(one[1]), int(one[3]), one[4].split())
    assert len(found) == ranks
    return found


def start(cluster, *options, late=()):
    cluster.run(["rm", "-f", ENOUGH], check=True)
    step = cluster.popen([*TWO_NODES, *options, RANK, "survive", ENOUGH, *late])
    met(step)
    return step


def kill(*pids):
    """At once: a test that waits for the CPU between two of them gives nobody time to do anything."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, number)


@pytest.mark.essential
@pytest.mark.parametrize("victims", [[3], [0], [1, 2]])
def test_survivors_keep_their_processes_twice(cluster, victims):
    step = start(cluster)
    for generation in (1, 2):
        before = ranks_of(cluster)
        kill(*(before[victim] for victim in victims))
        seen = met(step)
        after = ranks_of(cluster)
        assert {rank for rank in after if after[rank] != before[rank]} == set(victims)
        for rank, (number, size, replaced) in seen.items():
            assert (number, size) == (generation, 4)
            assert replaced == (["none"] if rank in victims else [str(victim) for victim in victims])
    cluster.run(["touch", ENOUGH], check=True)
    _, err = step.communicate(timeout=20)
    assert step.returncode == 0, err
    assert len([line for line in err.splitlines() if BEGAN.match(line)]) == 2, err
    cluster.assert_nothing_left()
    cluster.assert_idle(deadline=5)


def test_a_failure_that_takes_one_rank_after_the_other_is_one(cluster):
    """As where memory is short. Three generations in a row without progress would end the step."""
    step = start(cluster)
    for generation, victim in enumerate((1, 2, 3, 0), 1):
        before = ranks_of(cluster)
        kill(before[victim])
        assert met(step)[victim][0] == generation
        after = ranks_of(cluster)
        assert {rank for rank in after if after[rank] != before[rank]} == {victim}
    lines = end(cluster, step)
    assert [BEGAN.match(line)[2] for line in lines] == ["1", "2", "3", "4"], lines


def test_a_process_that_rejoins_late_is_restarted(cluster):
    step = start(cluster, "--dp-grace=2", late=["2"])
    before = ranks_of(cluster)
    kill(before[1])
    seen = met(step)
    after = ranks_of(cluster)
    assert {rank for rank in after if after[rank] != before[rank]} == {1, 2}
    assert seen[0][2] == ["1", "2"]
    lines = end(cluster, step)
    assert "slurm-dp: rank 2 on node02 did not rejoin (dp_rejoin) within 2 s (--dp-grace), so it is restarted" in lines, lines


def test_without_grace_all_start_anew(cluster):
    step = start(cluster, "--dp-grace=0")
    before = ranks_of(cluster)
    kill(before[1])
    assert all(replaced == ["none"] for _, _, replaced in met(step).values())
    assert not set(ranks_of(cluster).values()) & set(before.values())
    end(cluster, step)


def test_a_survivor_that_dies_on_the_way_is_replaced(cluster):
    """Rank 2 waits for ever, and is killed meanwhile."""
    step = start(cluster, late=["2"])
    before = ranks_of(cluster)
    kill(before[1])
    until(lambda: 1 not in ranks_of(cluster), 5, "rank 1 is dead")
    kill(before[2])
    assert met(step)[0][2] == ["1", "2"]
    after = ranks_of(cluster)
    assert after[0] == before[0] and after[3] == before[3]
    end(cluster, step)


def test_survivors_go_on_with_a_spare_and_then_without_a_node(another_cluster):
    site = another_cluster(nodes=3, **SITE)
    step = Step(site, "--dp-spares=1", "--dp-min-nodes=1", nodes=3, program=(RANK, "survive", ENOUGH))
    met(step.process)
    before = ranks_of(site)
    site.kill("node02")
    assert met(step.process)[0][1:] == (4, ["2", "3"])
    after = ranks_of(site)
    assert (after[0], after[1]) == (before[0], before[1])
    site.kill("node03")
    seen = met(step.process, 2)
    assert seen[0] == seen[1] == (2, 2, ["none"])
    assert ranks_of(site) == {0: before[0], 1: before[1]}
    step.end()


def test_survivors_go_on_without_rank_0s_node_and_without_the_next_one(another_cluster):
    """Each has the broker; a spare takes its place, and is then lost, too."""
    site = another_cluster(nodes=4, **SITE)
    step = Step(site, "--dp-spares=2", nodes=4, program=(RANK, "survive", ENOUGH))
    met(step.process)
    before = ranks_of(site)
    for victim in ("node01", "node03"):
        site.kill(victim)
        assert met(step.process)[2][1:] == (4, ["0", "1"])
        after = ranks_of(site)
        assert (after[2], after[3]) == (before[2], before[3])
    step.end()


def test_scancel_ends_survivors_that_wait(cluster):
    step = start(cluster, late=["2"])
    kill(ranks_of(cluster)[1])
    until(lambda: 1 not in ranks_of(cluster), 5, "rank 1 is dead")
    end(cluster, step)


# ---- the trainer

def steps(count, *more):
    return [TRAINER, "--model=ffn", "--deterministic", f"--steps={count}", *more]


WHOLE, SHARDED = steps(3000), steps(2500, "--shard-optimizer")


@pytest.fixture(scope="module")
def undisturbed(cluster):
    """The hash after so many steps of two nodes with two ranks each, which nobody disturbs."""
    known = {}

    def of(*program):
        if program not in known:
            done = cluster.run(["srun", "-N2", "--ntasks-per-node=2", "--dp-world=auto", *program], check=True, timeout=120)
            known[program] = json.loads(done.stdout.splitlines()[-1])["parameters_hash"]
        return known[program]

    return of


class Training:
    """A step that trains, and the ends that it makes. Processes are looked up before they are needed: also a training of a second outlasts
    three deaths."""

    def __init__(self, site, command):
        self.site = site
        self.step = site.popen(command)
        self._said = ""
        self._errors = ""
        self._ranks = {}

    def all_four_are_there(self):
        self._ranks = until(lambda: len(found := ranks_of(self.site, TRAINER)) == 4 and found, 60, "all four ranks", every=0.005)

    def trains(self):
        until(lambda: self.step.stdout.readline().startswith("epoch 1/"), 60, "an epoch is trained")

    def kill_one(self):
        kill(self._ranks.pop(random.choice(sorted(self._ranks))))

    def goes_on(self):
        """After a death. One of the survivors is held while the new process is looked up, and all wait for it."""
        line = ""
        while not line.startswith("continuing after step"):
            line = self.step.stdout.readline()
            assert line, self._errors + self.step.stderr.read()
            self._said += line
        held = next(iter(self._ranks.values()))
        os.kill(held, signal.SIGSTOP)
        self.all_four_are_there()
        os.kill(held, signal.SIGCONT)

    def takes_a_step(self):
        """The first one after a death."""
        line = ""
        while not FIRST_STEP.match(line):
            line = self.step.stderr.readline()
            assert line, self._errors + self.step.stdout.read()
            self._errors += line

    def end(self):
        out, err = self.step.communicate(timeout=120)
        out, err = self._said + out, self._errors + err
        assert self.step.returncode == 0, err
        return out, json.loads(out.splitlines()[-1]), err


@pytest.mark.parametrize("program, givers", [(WHOLE, r"rank \d's"), (SHARDED, r"\d ranks'")], ids=["whole", "sharded"])
def test_a_training_ends_with_the_bits_of_an_undisturbed_one(cluster, undisturbed, program, givers):
    training = Training(cluster, [*TWO_NODES, *program])
    training.all_four_are_there()
    training.trains()
    for _ in range(3):
        training.kill_one()
        training.goes_on()
        training.takes_a_step()
        time.sleep(random.uniform(0, 0.02))  # at any moment of a step
    out, end_, err = training.end()
    assert end_["parameters_hash"] == undisturbed(*program) and end_["parameters_equal_on_all_ranks"], (end_, err)
    assert (end_["recoveries"], end_["steps_repeated"]) == (3, 0), (out, err)
    assert len(re.findall(rf"continuing after step \d+ from {givers} memory; recovery took [\d.]+ s; 0 steps repeated", out)) == 3, out
    repeated = [int(number) for _, number in FIRST_STEP.findall(err)]
    assert len(repeated) == 3 and max(repeated) <= 1, err  # the dead rank may have taken one step more
    cluster.assert_nothing_left()
    cluster.assert_idle(deadline=5)


@pytest.mark.parametrize("more", [[], ["--async-save"]])
def test_a_death_while_checkpoints_are_written(cluster, undisturbed, more):
    """A checkpoint after every step, so that a death is nearly always in one."""
    cluster.run(f"rm -rf {SAVED}; mkdir {SAVED}", check=True)
    program = steps(300)
    training = Training(cluster, [*TWO_NODES, *program, f"--checkpoint-dir={SAVED}", "--save-interval=1", *more])
    training.all_four_are_there()
    folder = cluster.host_path(SAVED)

    def newest():
        return max((int(name[5:]) for name in os.listdir(folder) if re.fullmatch(r"step-\d+", name)), default=0)

    for _ in range(3):
        before = newest()
        until(lambda: newest() > before, 60, "there is another checkpoint", every=0.001)
        time.sleep(random.uniform(0, 0.01))
        training.kill_one()
        training.goes_on()
    _, end_, err = training.end()
    assert end_["parameters_hash"] == undisturbed(*program), err
    assert end_["recoveries"] == 3
    assert "unfinished" not in cluster.run(["ls", "-a", SAVED]).stdout


def test_a_sharded_optimizer_survives_a_lost_node(another_cluster, undisturbed):
    """Copies are on other nodes."""
    site = another_cluster(nodes=3, **SITE)
    program = SHARDED
    training = Training(site, ["srun", "-N3", "--ntasks-per-node=2", "--no-kill", "--dp-on-failure=restart", "--dp-spares=1", *program])
    training.trains()
    site.kill("node02")
    out, _ = training.step.communicate(timeout=200)
    end_ = json.loads(out.splitlines()[-1])
    assert end_["parameters_hash"] == undisturbed(*program)
    assert end_["recoveries"] == 1 and end_["steps_repeated"] <= 1, out
    assert " from 2 ranks' memory; " in out, out


def test_without_copies_a_sharded_optimizer_goes_back_to_the_checkpoint(cluster, undisturbed):
    cluster.run(f"rm -rf {SAVED}; mkdir {SAVED}", check=True)
    program = steps(1500, "--shard-optimizer")
    training = Training(cluster, [*TWO_NODES, *program, "--peer-copy=0", f"--checkpoint-dir={SAVED}", "--save-interval=300"])
    training.all_four_are_there()
    training.trains()
    training.kill_one()
    out, end_, err = training.end()
    assert end_["parameters_hash"] == undisturbed(*program), err
    after = re.search(r"the survivors do not hold the whole state: continuing after step (\d+)", out)
    ((first, repeated),) = FIRST_STEP.findall(err)
    # Steps are reported at most every 10 ms.
    assert int(after[1]) < int(first) <= int(after[1]) + 20, (out, err)
    assert end_["steps_repeated"] - 20 <= int(repeated) <= end_["steps_repeated"] + 1, (out, err)


def test_a_training_goes_on_with_a_spare_and_then_with_fewer_ranks(another_cluster, undisturbed):
    site = another_cluster(nodes=3, **SITE)
    program = WHOLE
    training = Training(site, ["srun", "-N3", "--ntasks-per-node=2", "--no-kill", "--dp-on-failure=restart", "--dp-spares=1", "--dp-min-nodes=1",
                               *program])
    training.trains()
    site.kill("node02")
    until(lambda: training.step.stdout.readline().startswith("continuing after step"), 30, "it goes on")
    site.kill("node03")
    out, err = training.step.communicate(timeout=200)
    end_ = json.loads(out.splitlines()[-1])
    assert end_["world_size"] == 2 and end_["global_batch_size"] == 256, end_
    assert (end_["recoveries"], end_["steps_repeated"]) == (2, 0), (out, err)
    assert end_["parameters_hash"] == undisturbed(*program)


@pytest.mark.parametrize("lost", ["node01", "node02"])
def test_fewer_ranks_with_more_micro_batches_each_end_with_the_same_bits(another_cluster, undisturbed, lost):
    """12 micro-batches in a step, of three ranks, of two, and of the four of the undisturbed run. Whoever is rank 0 prints and writes files."""
    site = another_cluster(nodes=3, **SITE)
    training = Training(site, ["srun", "-N3", "--ntasks-per-node=1", "--no-kill", "--dp-on-failure=restart", "--dp-min-nodes=2",
                               *steps(1000, "--accumulate=4", "--metrics=/home/alice/fewer.jsonl")])
    training.trains()
    site.kill(lost)
    out, err = training.step.communicate(timeout=200)
    end_ = json.loads(out.splitlines()[-1])
    assert (end_["world_size"], end_["global_batch_size"], end_["recoveries"]) == (2, 12 * 64, 1), (out, err)
    assert end_["parameters_hash"] == undisturbed(*steps(1000, "--accumulate=3"))
    with open(site.host_path("/home/alice/fewer.jsonl"), encoding="utf-8") as file:
        epochs = [line["epoch"] for line in map(json.loads, file) if "test_loss" in line]
    assert sorted(set(epochs)) == list(range(1, end_["epochs"] + 1)), epochs


@pytest.mark.parametrize("saves", [True, False])
def test_where_nobody_survives_a_smaller_world_trains_as_the_first_one_would(another_cluster, undisturbed, saves):
    """The daemon on rank 0's node is killed, so all processes start anew, from the checkpoint or from the beginning."""
    site = another_cluster(nodes=3, **SITE)
    training = Training(site, ["srun", "-N3", "--ntasks-per-node=2", "--no-kill", "--dp-on-failure=restart", "--dp-min-nodes=2",
                               *steps(1000, "--accumulate=2"), *([f"--checkpoint-dir={SAVED}", "--save-interval=20"] if saves else [])])
    training.trains()
    kill(next(process["pid"] for process in site.processes(["node01"]) if process["command"].startswith("dp-rendezvousd")))
    out, err = training.step.communicate(timeout=200)
    assert " with 4 ranks on 2 nodes" in err, err
    end_ = json.loads(out.splitlines()[-1])
    assert (end_["world_size"], end_["global_batch_size"]) == (4, 12 * 64), (out, err)
    assert end_["parameters_hash"] == undisturbed(*steps(1000, "--accumulate=3"))


@pytest.mark.parametrize("victim", ["node01", "node02"])
def test_a_training_with_a_spare_ends_with_the_same_bits(another_cluster, undisturbed, victim):
    """Also without rank 0's node: what its ranks knew, the others know."""
    site = another_cluster(nodes=3, **SITE)
    program = WHOLE
    training = Training(site, ["srun", "-N3", "--ntasks-per-node=2", "--no-kill", "--dp-on-failure=restart", "--dp-spares=1", *program])
    training.trains()
    site.kill(victim)
    out, err = training.step.communicate(timeout=200)
    end_ = json.loads(out.splitlines()[-1])
    assert end_["parameters_hash"] == undisturbed(*program)
    assert (end_["recoveries"], end_["steps_repeated"]) == (1, 0), (out, err)
