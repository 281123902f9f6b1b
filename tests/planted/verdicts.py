# SPDX-License-Identifier: Apache-2.0
"""What the runs of tests say about planted faults, and what of that fails tests/mutants. Pure."""
import collections
import enum
import re
from dataclasses import dataclass, field


class Outcome(enum.Enum):
    PASSED = "passed"
    FAILED = "failed"
    CRASHED = "ended by a signal"
    TIMED_OUT = "timed out"


@dataclass(frozen=True)
class Verdict:
    fault: object
    killed_by: str = ""  # "": it survived
    outcome: Outcome = Outcome.PASSED
    error: str = ""  # of the list: it does not compile or link
    was_expected: bool = True  # to be killed by that test


@dataclass
class Summary:
    killed: int = 0
    total: int = 0
    lines: list = field(default_factory=list)  # for people
    is_good: bool = True
    by_class: dict = field(default_factory=dict)  # class → (killed, total)


def outcome_of(exit_code, timed_out, output="", pass_pattern=""):
    """As ctest judges: with a pattern, whose dots are any character, the words alone count; but not where the program crashed."""
    if timed_out:
        return Outcome.TIMED_OUT
    if exit_code < 0 or exit_code > 128:
        return Outcome.CRASHED
    if pass_pattern:
        return Outcome.PASSED if re.search(pass_pattern, output, re.DOTALL) else Outcome.FAILED
    return Outcome.PASSED if exit_code == 0 else Outcome.FAILED


def summary_of(verdicts):
    summary = Summary(total=len(verdicts))
    counts = collections.defaultdict(lambda: [0, 0])
    for verdict in sorted(verdicts, key=lambda one: one.fault.line):
        fault = verdict.fault
        count = counts[fault.kind]
        count[1] += 1
        if verdict.error:
            summary.lines.append(f"ERROR of the list: {fault}: {verdict.error}")
            summary.is_good = False
        elif verdict.killed_by:
            summary.killed += 1
            count[0] += 1
            if verdict.outcome == Outcome.TIMED_OUT:
                summary.lines.append(f"killed by a time-out of {verdict.killed_by}: {fault}")
            if fault.reason:
                summary.lines.append(f"KILLED, though the list accepts that it survives (remove its reason): {fault}: by "
                                     f"{verdict.killed_by}")
                summary.is_good = False
            elif not verdict.was_expected:
                summary.lines.append(f"killed by another test than the list says, {verdict.killed_by}: {fault}")
        elif fault.reason:
            summary.lines.append(f"accepted survivor: {fault}: {fault.reason}")
        else:
            summary.lines.append(f"SURVIVOR: {fault}")
            summary.is_good = False
    summary.by_class = {kind: tuple(count) for kind, count in sorted(counts.items())}
    return summary
