# SPDX-License-Identifier: Apache-2.0
"""Interleaved rounds and what they say: medians, and what the differences within a round come to, with its confidence interval."""
import itertools
import math
import os
import platform
import random
import shutil
import statistics
import subprocess
import time

from localcluster.names import CHECKOUT

WARM_UP = 5  # rounds that are run and dropped, where a round is short
SELDOM = 10  # of so many rounds, one
RESAMPLES = 2000


def interleaved(cases, rounds, run_once, progress=lambda done, of: None, seed=1, seldom=(), warm_up=WARM_UP):
    """{case: [seconds, one a round]}: every case once a round, in an order of its own each time; those of `seldom` in one of SELDOM rounds,
    None in the others."""
    order = list(cases)
    shuffler = random.Random(seed)
    times = {case: [] for case in cases}
    for number in range(-warm_up, rounds):
        shuffler.shuffle(order)
        for case in order:
            seconds = None if case in seldom and number % SELDOM else run_once(case)
            if number >= 0:
                times[case].append(seconds)
        progress(max(number + 1, 0), rounds)
    return times


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summary(values):
    values = [value for value in values if value is not None]
    return {"median": statistics.median(values), "p90": percentile(values, 0.9), "mean": statistics.fmean(values), "best": min(values)}


def difference(values, base):
    """Of the pairs within a round, in the rounds that have both: {"estimate", "low", "high" (95 %), "percent", "percent_low", "percent_high" (of the
    base's median)}.

    The estimate of Hodges and Lehmann, the median of the averages of any two differences, and the interval that belongs to it (Hollander and Wolfe,
    Nonparametric Statistical Methods, 3.2 and 3.3): as deaf to outliers as the median of the differences is, from two thirds of the rounds."""
    pairs = [a - b for a, b in zip(values, base, strict=True) if a is not None and b is not None]
    averages = sorted((a + b) / 2 for a, b in itertools.combinations_with_replacement(pairs, 2))
    n = len(pairs)
    out = max(0, int(len(averages) / 2 - 1.96 * math.sqrt(n * (n + 1) * (2 * n + 1) / 24)))
    found = {"estimate": statistics.median(averages), "low": averages[out], "high": averages[-1 - out]}
    whole = summary(base)["median"]
    return {**found, **{f"percent{key}": 100 * found[name] / whole for key, name in (("", "estimate"), ("_low", "low"), ("_high", "high"))}}


def verdict(found, key, limit):
    """Of a difference: is it at most the limit? An interval on both sides of it decides nothing."""
    low, high = (found[f"{key}_{end}"] if key == "percent" else found[end] for end in ("low", "high"))
    return "met" if high <= limit else "missed" if low > limit else "undecided"


def ratio(values, base, seed=1):
    """Of medians, the rounds not being pairs: {"ratio", "low", "high"} (95 % by bootstrap)."""
    shuffler = random.Random(seed)

    def median_of(some):
        return statistics.median(shuffler.choices(some, k=len(some)))

    ratios = sorted(median_of(values) / median_of(base) for _ in range(RESAMPLES))
    return {"ratio": statistics.median(values) / statistics.median(base), "low": ratios[int(0.025 * RESAMPLES)],
            "high": ratios[int(0.975 * RESAMPLES) - 1]}


def paired_ratio(values, base, seed=1):
    """The same of the ratios within a round."""
    ratios = [a / b for a, b in zip(values, base, strict=True)]
    shuffler = random.Random(seed)
    medians = sorted(statistics.median(shuffler.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return {"ratio": statistics.median(ratios), "low": medians[int(0.025 * RESAMPLES)], "high": medians[int(0.975 * RESAMPLES) - 1]}


def ratio_verdict(found, limit):
    """Of a ratio: is it at most the limit?"""
    if found["high"] <= limit:
        return "met"
    return "undecided" if found["low"] <= limit else f"missed by {found['ratio'] / limit:.2f}x"


def told_against(name, r):
    """Prints and returns how it compares with the build of --against. r: a ratio."""
    text = ("too few rounds" if r["low"] == r["high"] != 1 else "more" if r["low"] > 1 else "less" if r["high"] < 1 else "no difference is seen")
    print(f"{name}: {r['ratio']:.3f}x of before ({r['low']:.3f} to {r['high']:.3f}); {text}")
    return {"name": name, **r, "verdict": text}


def worst_verdict(values, limit):
    """Of one figure a round: met where the worst round meets the limit, missed where the median one does not."""
    if max(values) <= limit:
        return "met"
    median = statistics.median(values)
    return "undecided (not in every round)" if median <= limit else f"missed by {median / limit:.2f}x"


def of_ranks(ms):
    """What a round's ranks make of it; as the programs that simulate a world print it."""
    return {"ranks": len(ms), "p50": percentile(ms, 0.5), "p99": percentile(ms, 0.99), "max": max(ms)}


def table(rows):
    """rows: lists of text, the first is the heading; all but the first column to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(text.ljust(width) if i == 0 else text.rjust(width) for i, (text, width) in enumerate(zip(row, widths))).rstrip()
                     for row in rows)


def machine():
    def said_by(*command):
        if not shutil.which(command[0]):
            return ""
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=CHECKOUT).stdout.strip()

    return {"cpus": os.cpu_count(), "kernel": platform.release(), "slurm": said_by("slurmd", "-V"),
            "commit": said_by("git", "describe", "--always", "--dirty"), "load": os.getloadavg(), "time": time.strftime("%FT%TZ", time.gmtime())}
