# SPDX-License-Identifier: Apache-2.0
"""The Python package, from the wheel in a fresh virtual environment: worlds of two nodes, deaths, mistakes, torch.distributed."""
import os
import re
import subprocess
import zipfile

import pytest

HERE = os.path.dirname(os.path.realpath(__file__))
CHECKOUT = os.path.dirname(os.path.dirname(HERE))
STEP = "srun -N2 -n8 --ntasks-per-node=4"


@pytest.fixture(scope="module")
def wheel():
    done = subprocess.run([os.path.join(CHECKOUT, "packaging/build-wheel")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def python(cluster, wheel):
    """The interpreter of an environment into which the wheel was installed; it sees the system's torch."""
    cluster.run(["sh", "-c", f"cd && /usr/bin/python3 -m venv --system-site-packages environment && "
                             f"environment/bin/pip install --no-index --quiet {wheel}"], timeout=120, check=True)
    return cluster.run(["sh", "-c", "echo $HOME/environment/bin/python"], check=True).stdout.strip()


def lines(text):
    return sorted(text.splitlines(), key=lambda line: int(re.match(r"rank (\d+)", line).group(1)))


def test_one_wheel_serves_every_python_and_brings_what_it_needs(wheel):
    assert re.fullmatch(r"slurm_dp-[\d.]+-py3-none-linux_\w+\.whl", os.path.basename(wheel))
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("slurm_dp/__init__.py", "slurm_dp/torch.py", "slurm_dp/py.typed", "slurm_dp/lib/libdp.so.0"):
        assert name in names
    assert any("libprotobuf-lite" in name for name in names)


def test_what_a_rank_can_ask(cluster, python, programs):
    done = cluster.run(f"{STEP} --dp-world=auto {python} {programs}/python_world.py", timeout=120, check=True)
    assert lines(done.stdout) == [f"rank {rank} of 8: all is well" for rank in range(8)]
    assert "slurm-dp" not in done.stderr, done.stderr
    cluster.assert_nothing_left()


def test_the_module_prints_the_world(cluster, python):
    done = cluster.run(f"{STEP} --dp-world=auto {python} -m slurm_dp", check=True)
    for rank, line in enumerate(lines(done.stdout)):
        node, local = divmod(rank, 4)
        assert line.startswith(f"rank {rank} of 8: local rank {local} of 4 on node0{node + 1} (node {node} of 2, 10."), line
    alone = cluster.run(f"{python} -m slurm_dp", check=True).stdout
    assert alone.startswith("rank 0 of 1: local rank 0 of 1 on ")


@pytest.mark.parametrize("how", ["barrier", "torch", "future", "ddp"])
def test_a_killed_rank_is_named_in_the_exceptions_of_the_others(cluster, python, programs, how):
    done = cluster.run(f"{STEP} --dp-on-failure=report {python} {programs}/python_deaths.py {how}", timeout=120)
    told = lines(done.stdout)
    assert [line.split(":")[0] for line in told] == [f"rank {rank}" for rank in range(8) if rank != 5], done.stdout + done.stderr
    for line in told:
        assert re.search(r"after [\d.]+ s: .*rank 5 (on node02 )?was killed by signal 9 \(SIGKILL\)", line), line
    assert "Traceback" not in done.stderr, done.stderr


def test_a_process_goes_on_when_another_dies(cluster, python, programs):
    done = cluster.run(f"srun -N2 -n4 --dp-on-failure=restart {python} {programs}/python_survivors.py", timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    changes = "previous_size=4, reason='rank 1 on node01 was killed by signal 9 (SIGKILL)', replaced=(1,)) after ['peer lost']"
    assert lines(done.stdout) == ["rank 0 of 4 goes on in generation 1: Changes(previous_rank=0, " + changes, "rank 1 begins in generation 1"] + [
        f"rank {rank} of 4 goes on in generation 1: Changes(previous_rank={rank}, {changes}" for rank in (2, 3)], done.stdout + done.stderr


def test_what_a_call_back_throws_is_said_by_the_next_call(cluster, python, programs):
    done = cluster.run(f"{STEP} --dp-on-failure=report {python} {programs}/python_deaths.py callback", timeout=60)
    assert done.stdout.count("callback of on_event raised KeyError: 'rank 5 on node02 was killed") == 7, done.stdout + done.stderr
    assert done.stdout.count("closing: a callback of on_event cannot close the world") == 7, done.stdout + done.stderr


def test_mistakes_are_one_line_each(cluster, python, programs):
    done = cluster.run(f"srun -n1 --dp-world=auto {python} {programs}/python_mistakes.py", timeout=60, check=True)
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    for what, part in {
            "no daemon": "cannot reach this node's rendezvous daemon at @slurm-dp/none/of/these", "another job": "step", "no rank": 'DP_RANK="many"',
            "twice": "the world is open already", "in a thread": "the world is open already", "a child opens": "is a child of rank 0",
            "a child calls": "is a child of rank 0", "a child's phase": "no error, but <", "a child's step": "no error, but None",
            "no timeout": "a timeout is a number of seconds from 0 on, not -1", "no key": "a key is a string without NUL, not 3",
            "no value": "a value is bytes or a string, not int", "no phase": "there is no phase 'lunch'; there are idle, compute",
            "no call-back": "on_event needs a function to call, not 'print'", "no group": "a group is made by World.group, not of [0, 1]",
            "nobody's group": "a group's members are ranks from 0 to 0, at least one, not []", "a stranger's group": "at least one, not [0, 1]",
            "a child's scalar": "no error, but None", "no number": "the scalar 'loss' is a number, not 'low'",
            "no name": "a scalar needs a name of printable ASCII characters", "a long name": "a scalar's name has at most 31 bytes",
            "too many": "a rank logs at most 8 scalars; \"8\" would be one more than 0, 1, 2",
            "too much": "an amount is a whole number", "no step": "a step is a whole number from 0 to", "a throwing id": "SystemExit(3)",
            "closing while others call": "no error, but '20 times'",
            "closed": "the world is closed", "an event after close": "the world is closed"}.items():
        assert part in said.pop(what), done.stdout
    assert not said and "Traceback" not in done.stderr, done.stdout + done.stderr


def test_a_library_of_another_version_is_refused_in_one_line(cluster, python):
    """As if an older libdp had been put into the package: protobuf's library has none of its functions."""
    code = "import slurm_dp, os; print(os.path.join(os.path.dirname(slurm_dp.__file__), 'lib'))"
    folder = cluster.run([python, "-c", code], check=True).stdout.strip()
    script = f"cd; rm -rf old; cp -r {os.path.dirname(folder)} old; mkdir -p other; mv old other/slurm_dp; cd other/slurm_dp/lib; mv libproto* libdp.so.0"
    cluster.run(["sh", "-c", script], check=True)
    done = cluster.run(["sh", "-c", f"cd; cd other; exec srun -n1 --dp-world=auto {python} -m slurm_dp"])
    assert done.returncode == 1
    assert re.search(r"slurm_dp: \S+/libdp.so.0 is another version of libdp than this package was made for: it has no dp_\w+; install both", done.stderr)


TYPED = """
import typing
import slurm_dp as dp
with dp.open() as world:
    key: str = world.get("key", timeout=1.5).decode()
    total: int = world.add("number") + world.rank + dp.Event("deaths", "", (1,)).ranks[0]
    world.on_event(lambda event: print(event.kind)).close()
    with dp.phase("load"):
        dp.step(total)
        dp.log_scalar("loss", 0.5)
    group: dp.Group = world.tensor.group
    world.broadcast(b"", group)
for owner in (dp, dp.World):
    for name in filter(str.islower, dir(owner)):
        if callable(getattr(owner, name)) and not name.startswith("_"):
            typing.get_type_hints(getattr(owner, name))
print("hinted")
"""
MISTYPED = """
import slurm_dp as dp
world = dp.open()
world.barrier(timeout="3")
world.set(3, "value")
dp.step("one")
name: str = world.rank
"""


def test_the_types_are_there_for_type_checkers(cluster, python):
    for name, program in ("typed", TYPED), ("mistyped", MISTYPED):
        cluster.run(["sh", "-c", f"cd; cat > {name}.py"], input=program, check=True)
    mypy = ["sh", "-c", f'cd; exec mypy --strict --python-executable {python} --cache-dir=/dev/null "$0"']
    done = cluster.run([*mypy, "typed.py"], timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    done = cluster.run([*mypy, "mistyped.py"], timeout=120)
    assert re.findall(r"mistyped.py:(\d+): error", done.stdout) == ["4", "5", "6", "7"], done.stdout + done.stderr
    assert "hinted" in cluster.run(["sh", "-c", f"cd; sed '/^with/,/^for/{{/^for/!d}}' typed.py | {python}"], check=True).stdout


TRAIN = """
import torch, torch.distributed as dist, slurm_dp.torch
slurm_dp.torch.init_process_group()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
torch.manual_seed(dist.get_rank())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    inputs = torch.randn(32, 4)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
dist.barrier()
group = dist.new_group(list(range(0, dist.get_world_size(), 2)))
total = sum(p.sum() for p in model.parameters()).item()
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {total:.6f} {loss.item() < 1}", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("options", ["--dp-world=auto", "--dp-store=torch"])
def test_torch_starts_on_the_steps_store(cluster, python, options):
    done = cluster.run([*STEP.split(), options, python, "-c", TRAIN], timeout=120, env={"USE_LIBUV": "0"}, check=True)
    told = lines("\n".join(line for line in done.stdout.splitlines() if line.startswith("rank")))
    assert len(told) == 8 and len({line.split(": ")[1] for line in told}) == 1 and told[0].endswith("True"), done.stdout
    assert "slurm-dp" not in done.stderr, done.stderr


def test_torch_alone_is_a_group_of_one(cluster, python):
    done = cluster.run([python, "-c", TRAIN], timeout=60, check=True)
    assert "rank 0 of 1: " in done.stdout


# As the two libraries call their call-backs; neither is in Debian.
CALLBACKS = """
import sys, types
class Base: pass
for name, base in (("lightning", "Callback"), ("lightning.pytorch", "Callback"), ("transformers", "TrainerCallback")):
    sys.modules[name] = types.ModuleType(name)
    setattr(sys.modules[name], base, Base)
import slurm_dp as dp, slurm_dp.torch as on
world = dp.open()
said = []
world.step, world.enter_phase = said.append, said.append
world.log_scalar = lambda *scalar: said.append(scalar)
trainer, state = types.SimpleNamespace(global_step=7), types.SimpleNamespace(global_step=9)
one, other = on.StepCallback(), on.TrainerCallback()
assert isinstance(one, Base) and isinstance(other, Base)
one.on_train_start(trainer, None); one.on_train_batch_start(trainer, None, None, 0)
one.on_train_batch_end(trainer, None, None, None, 0); one.on_train_end(trainer, None)
other.on_train_begin(None, state, None, model=None); other.on_step_begin(None, state, None); other.on_step_end(None, state, None)
other.on_log(None, state, None, logs={"loss": 0.5, "learning_rate": 0.1}, model=None); other.on_log(None, state, None)
other.on_train_end(None, state, None)
print(*said)
"""


def test_call_backs_of_training_loops_report_steps_and_phases(cluster, python):
    done = cluster.run([python, "-c", CALLBACKS], check=True)
    assert done.stdout.split() == "load compute 7 load idle load compute 9 load ('loss', 0.5) idle".split()
