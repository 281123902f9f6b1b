# SPDX-License-Identifier: Apache-2.0
"""Interleaved rounds and what they say: medians, and the median of the differences within a round, with its confidence interval."""
import random
import statistics

WARM_UP = 5  # rounds that are run and dropped
RESAMPLES = 2000


def interleaved(cases, rounds, run_once, progress=lambda done, of: None, seed=1):
    """{case: [seconds, one a round]}: every case once a round, in an order of its own each time."""
    order = list(cases)
    shuffler = random.Random(seed)
    times = {case: [] for case in cases}
    for number in range(-WARM_UP, rounds):
        shuffler.shuffle(order)
        for case in order:
            seconds = run_once(case)
            if number >= 0:
                times[case].append(seconds)
        progress(max(number + 1, 0), rounds)
    return times


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summary(values):
    return {"median": statistics.median(values), "p90": percentile(values, 0.9), "mean": statistics.fmean(values), "best": min(values)}


def difference(values, base, seed=1):
    """Of pairs: {"median", "low", "high" (95 % by bootstrap), "percent", "percent_low", "percent_high" (of the base's median)}."""
    pairs = [a - b for a, b in zip(values, base, strict=True)]
    shuffler = random.Random(seed)
    medians = sorted(statistics.median(shuffler.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES))
    found = {"median": statistics.median(pairs), "low": medians[int(0.025 * RESAMPLES)], "high": medians[int(0.975 * RESAMPLES) - 1]}
    whole = statistics.median(base)
    return {**found, **{f"percent{key}": 100 * found[name] / whole for key, name in (("", "median"), ("_low", "low"), ("_high", "high"))}}


def verdict(found, key, limit):
    """Of a difference: is it at most the limit? An interval on both sides of it decides nothing."""
    low, high = (found[f"{key}_{end}"] if key == "percent" else found[end] for end in ("low", "high"))
    return "met" if high <= limit else "missed" if low > limit else "undecided"


def table(rows):
    """rows: lists of text, the first is the heading; all but the first column to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(text.ljust(width) if i == 0 else text.rjust(width) for i, (text, width) in enumerate(zip(row, widths))).rstrip()
                     for row in rows)
