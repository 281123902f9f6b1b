# SPDX-License-Identifier: Apache-2.0
"""Unmodified PyTorch scripts that rendezvous through env://, with both kinds of --dp-store, on two nodes while other steps start there."""
import re
import subprocess

import pytest

PYTHON = "/usr/bin/python3"  # Debian's python3-torch
LAYOUT = "-N2 -n4 --ntasks-per-node=2"
EXPECTED_RANKS = [f"rank {rank} of 4" for rank in range(4)]


def ranks_and_rest(lines):
    """'rank 1 of 4: text' → (['rank 0 of 4', …], {texts})."""
    parts = [line.split(": ", 1) for line in lines if line.startswith("rank ")]
    return sorted(part[0] for part in parts), {part[1] for part in parts}


def assert_trained(output):
    ranks, losses = ranks_and_rest(output.splitlines())
    assert ranks == EXPECTED_RANKS, output
    assert len(losses) == 1, f"the ranks' models differ: {losses}"
    before, after = map(float, re.fullmatch(r"loss (\S+) -> (\S+)", losses.pop()).groups())
    assert after < before / 10


# Four more steps start at the same moment on the same nodes, each with a MASTER_PORT that its rank 0 binds and its ranks connect to.
AT_ONCE = """
    cd; mkdir $SLURM_JOB_ID; cd $SLURM_JOB_ID
    for other in 1 2 3 4; do
        srun --overlap {layout} --dp-world=auto {python} {programs}/port_user.py > other$other 2>&1 &
        others="$others $!"
    done
    srun --overlap {layout} {store} {python} {programs}/train_ddp.py; status=$?
    for other in $others; do wait $other || status=1; done
    cat other*
    exit $status
"""


@pytest.mark.parametrize("store", ["", "--dp-store=torch"], ids=["hold", "torch"])
def test_ddp_training_while_four_other_steps_start(cluster, programs, store):
    script = AT_ONCE.format(layout=LAYOUT, python=PYTHON, programs=programs, store=store or "--dp-world=auto")
    done = cluster.run(["salloc", "-Q", "-N2", "-n10", "--ntasks-per-node=5", "sh", "-c", script], timeout=300, check=True)
    train = "\n".join(line for line in done.stdout.splitlines() if "loss" in line)
    assert_trained(train)
    ranks, ports = ranks_and_rest(line for line in done.stdout.splitlines() if "port" in line)
    assert ranks == sorted(EXPECTED_RANKS * 4), done.stdout
    assert len(ports) == 4, f"two worlds with one port: {ports}"
    cluster.assert_nothing_left()


@pytest.mark.parametrize("store", ["hold", "torch"])
def test_torchrun_as_the_launcher_of_a_node(cluster, programs, store):
    """It takes node rank, rendezvous endpoint and number of nodes from PET_* variables; its children train. (Debian 12's, of PyTorch 1.13 on
    Python 3.11, fails unless it redirects their output.)"""
    torchrun, script = "torchrun --nproc_per_node=2 --redirects=1 --tee=1 --log_dir=/tmp", f"{programs}/train_ddp.py"
    if "USE_LIBUV" in cluster.environment:
        torchrun, script = f"{PYTHON} {programs}/without_libuv.py {torchrun}", f"{programs}/without_libuv.py {script}"
    done = cluster.run(f"srun -N2 --ntasks-per-node=1 --dp-store={store} {torchrun} {script}", timeout=180,
                       env={"OMP_NUM_THREADS": "1"}, check=True)
    assert_trained(re.sub(r"(?m)^\[default\d\]:", "", done.stdout))
    assert "slurm-dp" not in done.stderr, done.stderr
    cluster.assert_nothing_left()


@pytest.mark.since("26.05")
def test_what_pytorch_2_teaches_gives_the_same_on_either_store(cluster, programs):
    """FSDP2, DTensor, distributed checkpoints: on torch's own server and on the broker's."""
    told = {}
    for store in ("hold", "torch"):
        done = cluster.run(f"srun {LAYOUT} --dp-store={store} {PYTHON} {programs}/train_sharded.py /home/alice/checkpoint-of-{store}", timeout=180,
                           check=True)
        told[store] = sorted(line for line in done.stdout.splitlines() if line.startswith("rank "))
    assert told["hold"] == told["torch"] and len(told["torch"]) == 3 * 4, told
    assert {line.split()[4] for line in told["torch"]} == {"fsdp2", "checkpoint", "dtensor"}
    for what in ("fsdp2", "checkpoint"):
        assert len({line.split()[5] for line in told["torch"] if what in line}) == 1, told


@pytest.mark.long
def test_five_trainings_at_once(cluster, programs):
    """The same script five times on the same nodes, with either store: nobody meets another's rank 0."""
    steps = " & ".join(f"srun --overlap {LAYOUT} {store} {PYTHON} {programs}/train_ddp.py > train{number} 2>&1 || touch failed"
                       for number, store in enumerate(["--dp-world=auto", "--dp-store=torch"] * 2 + ["--dp-world=auto"]))
    script = f"cd; mkdir $SLURM_JOB_ID; cd $SLURM_JOB_ID; {steps} & wait; for t in train*; do echo == $t; cat $t; done; test ! -e failed"
    done = cluster.run(["salloc", "-Q", "-N2", "-n10", "--ntasks-per-node=5", "sh", "-c", script], timeout=400, check=True)
    trainings = done.stdout.split("== train")[1:]
    assert len(trainings) == 5
    for output in trainings:
        assert_trained(output)


# Tries to get the port exclusively, as every server does that does not set SO_REUSEADDR, on every address and family. argv: address, port.
EXCLUSIVE = """
import socket, sys
for family, address in ((socket.AF_INET, ""), (socket.AF_INET6, ""), (socket.AF_INET, sys.argv[1]), (socket.AF_INET, "127.0.0.1")):
    with socket.socket(family) as s:
        try:
            s.bind((address, int(sys.argv[2])))
            print("got it")
        except OSError as error:
            print(error.strerror)
"""


def test_nobody_who_binds_exclusively_gets_a_held_port(cluster, programs):
    """Before rank 0 has bound it; rank 0 then can, as PyTorch does."""
    script = f"test $RANK != 0 || {{ echo $MASTER_ADDR $MASTER_PORT; read go; }}; exec {PYTHON} {programs}/port_user.py"
    step = cluster.popen(["srun", "-N2", "-n2", "-w", "node01,node02", "--dp-world=auto", "sh", "-c", script], stdin=subprocess.PIPE)
    address, port = step.stdout.readline().split()
    for user in ("bob", "alice"):
        done = cluster.run(["srun", "-w", "node01", "-n1", "--overlap", PYTHON, "-c", EXCLUSIVE, address, port], user=user, check=True)
        assert done.stdout.splitlines() == ["Address already in use"] * 4
    out, err = step.communicate("go\n", timeout=60)
    assert step.returncode == 0 and sorted(out.splitlines()) == [f"rank 0 of 2: port {port}", f"rank 1 of 2: port {port}"], err


# Takes a good part of the range exclusively, lets go, and takes again, until it is ended.
TAKER = """
import socket
while True:
    held = []
    for port in range(20000, 32768):
        s = socket.socket(socket.AF_INET6)
        try:
            s.bind(("", port))
            held.append(s)
        except OSError:
            s.close()
        if len(held) == 500:
            held.clear()
"""


def test_worlds_start_again_and_again_while_another_user_takes_ports(cluster, programs):
    taker = cluster.popen(["srun", "-w", "node01", "-n1", "--overlap", PYTHON, "-c", TAKER], user="bob")
    try:
        steps = " & ".join(f"srun --overlap {LAYOUT} --dp-world=auto {PYTHON} {programs}/port_user.py || touch failed" for _ in range(5))
        script = f"cd; mkdir $SLURM_JOB_ID; cd $SLURM_JOB_ID; for round in 1 2 3 4 5; do {steps} & wait; done; test ! -e failed"
        done = cluster.run(["salloc", "-Q", "-N2", "-n10", "--ntasks-per-node=5", "-w", "node01,node02", "sh", "-c", script], timeout=200)
        assert done.returncode == 0, done.stdout + done.stderr
        ranks, _ = ranks_and_rest(done.stdout.splitlines())
        assert ranks == sorted(EXPECTED_RANKS * 25)
        assert taker.poll() is None
    finally:
        taker.terminate()
        taker.communicate(timeout=30)


def test_what_programs_ask_of_the_store(cluster, programs):
    """Groups, pickled objects, barriers, keys of their own and keys that never come, served by the broker."""
    done = cluster.run(f"srun {LAYOUT} --dp-store=torch {PYTHON} {programs}/collectives.py", timeout=120, check=True)
    assert ranks_and_rest(done.stdout.splitlines()) == (EXPECTED_RANKS, {"met 2 hosts"}), done.stdout
    assert "slurm-dp" not in done.stderr, done.stderr


def test_a_rank_that_does_not_come_to_the_store_is_named_while_the_others_wait(cluster, programs):
    """PyTorch itself says nothing for half an hour."""
    script = f"test $RANK != 3 || read go; exec {PYTHON} {programs}/train_ddp.py"
    step = cluster.popen(["srun", *LAYOUT.split(), "-w", "node01,node02", "--dp-store=torch", "sh", "-c", script], stdin=subprocess.PIPE)
    said = iter(step.stderr.readline, "")
    late = next((line for line in said if "1 of ranks 2-3" in line), "nothing")
    assert re.fullmatch(r"(\d: )?slurm-dp: 3 of 4 ranks have opened PyTorch's store after \d+ s; missing: node02: 1 of ranks 2-3\n", late), late
    out, err = step.communicate("go\n", timeout=60)
    assert step.returncode == 0, err
    assert_trained(out)


def test_the_broker_serves_the_store_and_no_rank_binds_the_port(cluster):
    """Else rank 0's PyTorch would serve itself, and these tests would prove nothing about the broker."""
    script = "import os, sys, torch.distributed as d; d.init_process_group('gloo'); d.barrier(); " \
             "d.get_rank() or print(os.environ['MASTER_PORT'], flush=True); sys.stdin.read() if d.get_rank() == 0 else None; d.barrier()"
    step = cluster.popen(["srun", *LAYOUT.split(), "--dp-store=torch", PYTHON, "-c", script], stdin=subprocess.PIPE)
    port = step.stdout.readline().strip()
    seen = cluster.node("node01", ["ss", "-Htlnp", f"sport = :{port}"], check=True).stdout
    _, err = step.communicate("", timeout=60)
    assert step.returncode == 0, err
    assert len(seen.splitlines()) == 1 and '"dp-rendezvousd"' in seen, seen


@pytest.mark.parametrize("wait", ["all_reduce", "ddp"])
def test_the_rank_whose_data_loader_hangs_is_named(cluster, programs, wait):
    """In DistributedDataParallel the others wait in backward, in PyTorch's C++ code."""
    done = cluster.run(f"srun {LAYOUT} -m block --dp-hang-timeout=4 {PYTHON} {programs}/hangs.py {wait}", timeout=120)
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("slurm-dp:"))
    where = r"all_reduce \(distributed_c10d.py:\d+\)" if wait == "all_reduce" else ".+"
    assert done.returncode != 0
    assert re.fullmatch(r"slurm-dp: no progress for \d+ s \(--dp-hang-timeout\): rank 3 on node02 is in load_batch \(hangs.py:\d+\), in \w*nanosleep\w*; "
                        rf"ranks 0-2 on node\[01-02\] wait in {where}; ending the step", line), line


def test_a_rank_that_compiles_is_left_alone(cluster, programs):
    """torch.compile of one rank, for four timeouts."""
    if cluster.run([PYTHON, "-c", "import torch; torch.compiler.reset"], timeout=60).returncode != 0:
        pytest.skip("this PyTorch has no torch.compile")
    done = cluster.run(f"srun {LAYOUT} -m block --dp-hang-timeout=3 {PYTHON} {programs}/compiles.py 12", timeout=120)
    assert done.returncode == 0 and sorted(done.stdout.splitlines()) == [f"rank {rank} has trained" for rank in range(4)], done.stderr
    assert "slurm-dp" not in done.stderr, done.stderr
