# SPDX-License-Identifier: Apache-2.0
"""An unmodified PyTorch training with checkpoints of its own, through deaths: it ends where one does that nobody disturbed."""
import os
import re
import signal

import pytest

PYTHON = "/usr/bin/python3"  # Debian's python3-torch
EPOCHS = 60
# Three generations in a row that die within 10 s and report no training steps would end the step.
LIFE = 11  # epochs, of a second each


def ranks_of(cluster, script):
    """Pids of the ranks' programs by rank."""
    found = {}
    for process in cluster.processes():
        if script not in process["command"] or not process["command"].startswith(PYTHON):
            continue
        with open(f"/proc/{process['pid']}/environ", "rb") as file:
            found[int(re.search(rb"(?:^|\0)RANK=(\d+)", file.read()).group(1))] = process["pid"]
    return found


def losses_in(lines):
    found = [line.split(": ", 1) for line in lines if line.startswith("rank ")]
    assert sorted(who for who, _ in found) == [f"rank {rank} of 4" for rank in range(4)], lines
    return {float(loss.removeprefix("loss ")) for _, loss in found}


@pytest.mark.parametrize("store", ["hold", "torch"])
@pytest.mark.parametrize("deaths, seconds", [(2, 0.1), pytest.param(3, 1.0, marks=pytest.mark.long)])
def test_ddp_through_deaths(cluster, programs, store, deaths, seconds):
    script = f"{programs}/train_ddp_saving.py"
    step = ["srun", "-N2", "-n4", "--ntasks-per-node=2"]
    cluster.run("rm -f whole.pt often.pt", cwd="/home/alice", check=True)
    whole = cluster.run([*step, "--dp-world=auto", PYTHON, script, "whole.pt", str(EPOCHS), "0"], cwd="/home/alice", timeout=120, check=True)
    often = cluster.popen([*step, "--dp-on-failure=restart", f"--dp-store={store}", PYTHON, script, "often.pt", str(EPOCHS), str(seconds)],
                          cwd="/home/alice")
    lines = []
    for death in range(deaths):
        # So many epochs of this life.
        for _ in range(LIFE):
            while not (line := often.stdout.readline()).startswith("epoch"):
                assert line, often.communicate()[1]
                lines.append(line)
        os.kill(ranks_of(cluster, script)[(3 * death + 1) % 4], signal.SIGKILL)
    out, err = often.communicate(timeout=180)
    assert often.returncode == 0, err
    (loss,), (expected,) = losses_in(lines + out.splitlines()), losses_in(whole.stdout.splitlines())
    # Not to the bit: DDP makes its buckets anew after its first step, and a resumed training has one more of those.
    assert loss == pytest.approx(expected, rel=1e-4)
    assert len(re.findall(r"generation \d began", err)) == deaths, err
    cluster.assert_nothing_left()
