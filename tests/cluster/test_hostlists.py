# SPDX-License-Identifier: Apache-2.0
"""Our own reading of node lists (there is no scontrol in a container) is Slurm's."""
import os
import random
import shlex

from localcluster.harness import BUILD

EXPAND = os.path.join(BUILD, "tests/expand-hostlist")


def numbers(dice):
    """The inside of a bracket."""
    parts = []
    for _ in range(dice.randint(1, 4)):
        width = dice.choice([1, 1, 2, 3, 5])
        first = dice.randint(0, 10 ** min(width, 3) - 1)
        text = f"{first:0{width}d}"
        parts.append(text if dice.random() < 0.5 else f"{text}-{first + dice.randint(0, 12):0{width}d}")
    return ",".join(parts)


def name(dice):
    stem = dice.choice(["node", "gpu", "a", "rack-1-n", "n1x", "cn.hpc", "x2000c"])
    form = dice.randint(0, 3)  # nothing behind the last bracket: Slurm 22.05 reads no such list
    if form == 0:
        return stem + str(dice.randint(0, 2000))
    if form == 1:
        return stem
    if form == 2:
        return f"{stem}[{numbers(dice)}]"
    return f"{stem}[{dice.randint(0, 2)}-{dice.randint(2, 4)}]b[{numbers(dice)}]"


def test_generated_lists_expand_as_scontrol_expands_them(cluster):
    dice = random.Random(20261121)
    lists = [",".join(name(dice) for _ in range(dice.randint(1, 4))) for _ in range(300)]
    ours = cluster.run([EXPAND], input="".join(f"{one}\n" for one in lists), check=True).stdout.splitlines()
    script = "; ".join(f"scontrol show hostnames {shlex.quote(one)} | tr '\\n' ' '; echo" for one in lists)
    slurms = cluster.run(script, check=True).stdout.splitlines()
    assert len(ours) == len(slurms) == 300
    compressed = []
    for one, our, slurm in zip(lists, ours, slurms):
        expanded, again = our.split("= ")
        assert expanded.split() == slurm.split(), one
        compressed.append(again)
    # What we compress, Slurm reads back.
    script = "; ".join(f"scontrol show hostnames {shlex.quote(one)} | tr '\\n' ' '; echo" for one in compressed)
    for one, back, slurm in zip(compressed, cluster.run(script, check=True).stdout.splitlines(), slurms):
        assert back.split() == slurm.split(), one
