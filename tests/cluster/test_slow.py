# SPDX-License-Identifier: Apache-2.0
"""--dp-slow: the rank that makes the others wait in each step is named, with what sets it apart, and so is its recovery."""
import os
import re

import pytest
from localcluster.harness import BUILD

RANK = os.path.join(BUILD, "tests/rank")


def pace(cluster, steps, slow, slow_steps, *options):
    done = cluster.run(["srun", "-N2", "--ntasks-per-node=2", "-m", "block", *options, RANK, "pace", str(steps), str(slow), str(slow_steps)], timeout=120)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith("slurm-dp: ")]


def test_a_slow_rank_is_named_until_it_keeps_up(cluster):
    # A busy machine may make any rank slow for a while.
    lines = [line for line in pace(cluster, 3300, 3, 850, "--dp-world=auto") if " rank 3 on node02 " in line]
    assert len(lines) >= 2, lines
    named = re.fullmatch(r"slurm-dp: rank 3 on node02 is slow \(--dp-slow\): ([\d.]+) ms a step, not counting waits for other ranks; the median is ([\d.]+) ms; "
                         r"([\d.]+) ms in load \(median ([\d.]+) ms\).*", lines[0])
    assert named and float(named[1]) >= 30 and 10 <= float(named[2]) < float(named[1]) / 1.5 and float(named[3]) > 20, lines
    assert lines[-1].startswith("slurm-dp: rank 3 on node02 keeps up with the others again: "), lines


@pytest.mark.parametrize("options, slow_steps", [(("--dp-world=auto",), 0), (("--dp-slow=0",), 400), (("--dp-slow=400",), 400)])
def test_nobody_is_named(cluster, options, slow_steps):
    assert pace(cluster, 400, 3, slow_steps, *options) == []
