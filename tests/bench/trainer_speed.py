# SPDX-License-Identifier: Apache-2.0
"""Samples a second of one rank on the CPU, and the memory that it has at most: ours beside PyTorch, with the same model, batch and threads.

Ours gathers its batch from real data in each step; PyTorch's is at hand, random numbers, which is kind to it. So is that it runs in whichever
way is fastest here, of all combinations of what its users can set: Debian's has two kinds of threads, its own and its BLAS's, and those that
wait by spinning keep the others from their CPUs; there is a BLAS with the same threads as its own; and speed.py has what a program can choose. In bf16
that is autocast.
"""
import glob
import itertools
import json
from typing import NamedTuple

from measuring import interleaved, paired_ratio, ratio_verdict, summary, table, told_against
from programs import BEFORE, builds, progress
from trainer_peer import THREADS, done_with, peer, text_tokens, trainer_of

OURS, TORCH = "ours", "PyTorch"
WARM_UP = 1  # rounds
TRIED = 3  # of the steps of a round, one in so many where the fastest way is looked for
IN_FP32, IN_BF16 = 1, 1.2  # samples/s of ours to PyTorch's, at least; the latter on CPUs with AMX or AVX512-BF16


class Case(NamedTuple):
    model: str
    batch: int
    warm_up: int  # steps before those that are measured
    iterations: int
    words: tuple = ()  # of ours
    bf16: bool = False


# As many steps as take PyTorch some seconds on two CPUs.
FP32 = [Case("cnn", 16, 10, 60), Case("cnn", 64, 5, 20), Case("ffn", 64, 100, 1000),
        Case("unet2d", 2, 1, 2, ("--image-size=256", "--samples=8")), Case("gpt", 8, 1, 2, ("--gpt-size=10M",))]
CASES = [*FP32, *(case._replace(words=(*case.words, "--bf16"), bf16=True) for case in FP32[1:] if case.model != "ffn")]
SMOKE = [Case("ffn", 4, 1, 2), Case("cnn", 4, 1, 2), Case("cnn", 4, 1, 2, ("--bf16",), True)]


class Peer(NamedTuple):
    """How PyTorch is run."""
    settings: dict  # variables of its environment
    way: str        # speed.py's

    def __str__(self):
        variables = [value.split("/")[-1] if name == "LD_LIBRARY_PATH" else f"{name}={value}" for name, value in self.settings.items()]
        return ", ".join([*variables, self.way])


class Once(NamedTuple):
    seconds: float  # a sample
    peak: int       # bytes


def _all_settings():
    blas = [{"LD_LIBRARY_PATH": folder} for folder in sorted(glob.glob("/usr/lib/*/openblas-*")) if glob.glob(f"{folder}/libblas.so.3")]
    return [{**a, **b, **c} for a, b, c in itertools.product(blas or [{}], [{}, {"OPENBLAS_NUM_THREADS": "1"}], [{}, {"OMP_WAIT_POLICY": "PASSIVE"}])]


def _torch(case, iterations, settings, way):
    done = done_with(peer("speed.py", case.model, case.batch, case.warm_up, iterations, THREADS, way), settings)
    return json.loads(done.lines[-1]), done.peak


def _fastest_peer(case, all_settings):
    """→ {Peer: samples a second}, the fastest first"""
    found = {}
    for number, settings in enumerate(all_settings):
        progress(f"how PyTorch's {name_of(case)} is fastest: {number + 1} of {len(all_settings)} environments")
        ways = _torch(case, max(1, case.iterations // TRIED), settings, "each+bf16" if case.bf16 else "each")[0]["ways"]
        found |= {str(Peer(settings, way)): (speed, Peer(settings, way)) for way, speed in ways.items()}
    return sorted(found.values(), key=lambda tried: -tried[0])


def name_of(case):
    return f"{case.model}, batch {case.batch}{', bf16' if case.bf16 else ''}"


def _measure_once(case, who, tokens, peers, ours, seen):
    """→ Once; notes in `seen` what PyTorch it was"""
    if who == TORCH:
        found, peak = _torch(case, case.iterations, *peers[case])
        seen.add(f"PyTorch {found['version']}")
    else:
        data = [f"--data-dir={tokens}"] if case.model == "gpt" else []
        done = done_with([trainer_of(ours[who]), "measure-performance", "--device=cpu", f"--model={case.model}", f"--batch-size={case.batch}",
                          f"--warmup={case.warm_up}", f"--iterations={case.iterations}", *case.words, *data])
        found, peak = json.loads(done.lines[-1]), done.peak
    if found["threads"] != THREADS:
        raise SystemExit(f"tests/bench/run: {name_of(case)}, {who}: {found['threads']} threads, not {THREADS}")
    return Once(1 / found["samples_per_second"], peak)


def measure(cases, all_settings, rounds, some_builds):
    """→ {(case, OURS… or TORCH): [Once]}, {case: all that was tried of PyTorch, the fastest first}, and which PyTorch"""
    seen = set()
    ours = {OURS + suffix: build for suffix, build in some_builds.items()}
    with text_tokens() as tokens:
        tried = {case: _fastest_peer(case, all_settings) for case in cases}
        peers = {case: of_case[0][1] for case, of_case in tried.items()}
        found = interleaved([(case, who) for case in cases for who in (*ours, TORCH)], rounds,
                            lambda of: _measure_once(*of, tokens, peers, ours, seen),
                            lambda done, of: progress(f"trainer against PyTorch: round {done} of {of}"), warm_up=WARM_UP)
    return found, tried, ", ".join(seen)


def report(cases, found, tried, peer_version):
    rows = [["model", "rounds", OURS, TORCH, "ratio of a round", "least to most", f"memory, {OURS}", TORCH]]
    targets = []
    seconds = {of: [once.seconds for once in rounds] for of, rounds in found.items()}
    for case in cases:
        ours, torch = seconds[case, OURS], seconds[case, TORCH]
        ratios = [theirs / mine for mine, theirs in zip(ours, torch, strict=True)]
        peaks = (summary([once.peak for once in found[case, who]])["median"] for who in (OURS, TORCH))
        rows.append([name_of(case), str(len(ours)), *(f"{1 / summary(times)['median']:.2f}/s" for times in (ours, torch)),
                     f"{1 / paired_ratio(ours, torch)['ratio']:.2f}x", f"{min(ratios):.2f} to {max(ratios):.2f}",
                     *(f"{peak / (1 << 20):.0f} MiB" for peak in peaks)])
    print(f"\nsamples a second on one rank, {THREADS} threads, against {peer_version}, and the resident memory at its peak; medians\n\n"
          f"{table(rows)}\n")
    for case in cases:
        (best, fastest), (plainest, _) = tried[case][0], next(one for one in tried[case] if one[1].way == ("bf16" if case.bf16 else "plain")
                                                                        and len(one[1].settings) < 2)
        print(f"{name_of(case)}: PyTorch is fastest with {fastest}: {best / plainest:.2f}x what it does without; {len(tried[case])} ways were tried")
    for case in cases:
        r = paired_ratio(seconds[case, OURS], seconds[case, TORCH])
        least = IN_BF16 if case.bf16 else IN_FP32
        text = ratio_verdict(r, 1 / least)
        print(f"{name_of(case)}: {1 / r['ratio']:.2f}x PyTorch's samples/s ({1 / r['high']:.2f} to {1 / r['low']:.2f}); at least {least}x: {text}")
        targets.append({"case": name_of(case), "against": TORCH, "seconds_at_most": 1 / least, **r, "verdict": text})
    return targets


def report_before(cases, found):
    return [told_against(f"{name_of(case)}, {what}",
                         paired_ratio(*([getattr(once, field) for once in found[case, who]] for who in (OURS, OURS + BEFORE))))
            for case in cases if (case, OURS + BEFORE) in found for what, field in (("seconds", "seconds"), ("memory", "peak"))]


def run(options):
    cases, all_settings = (SMOKE, _all_settings()[:1]) if options.smoke else (CASES, _all_settings())
    found, tried, peer_version = measure(cases, all_settings, options.rounds, builds(options))
    targets = report(cases, found, tried, peer_version)
    return {"peer": peer_version,
            "tried": [{"case": name_of(case), "samples_per_second": {str(way): speed for speed, way in of_case}}
                      for case, of_case in tried.items()],
            "measured": [{"case": name_of(case), "who": who, "seconds_a_sample": [once.seconds for once in rounds],
                          "peak_bytes": [once.peak for once in rounds]} for (case, who), rounds in found.items()],
            "targets": targets, "before": report_before(cases, found)}
