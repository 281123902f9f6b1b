# SPDX-License-Identifier: Apache-2.0
"""Whether the broker grows: its memory over many generations of ids, after the first of them have filled what is used again and again."""
from programs import DAEMON, built, progress, rounds_of

GENERATIONS = 10000
NODES, RANKS_PER_NODE = 8, 8
NOISE_KIB = 16  # a leak of the smallest allocation a generation would be 280 KiB


def measure(generations):
    progress(f"the broker's memory over {generations} generations")
    lines = rounds_of([built("bench-world"), DAEMON, NODES, RANKS_PER_NODE, generations])
    return next(line for line in lines if "kib_warm" in line) | {"generations": generations}


def report(found):
    grown = found["kib_after"] - found["kib_warm"]
    text = "met" if grown <= NOISE_KIB else f"missed by {grown} KiB"
    print(f"\nthe broker's memory from generation {found['warm_up']} to {found['generations']} of {NODES * RANKS_PER_NODE} simulated ranks: "
          f"{grown:+d} KiB; no growth (at most {NOISE_KIB} KiB of noise): {text}")
    return {"kib": grown, "at_most": NOISE_KIB, "verdict": text}
