# SPDX-License-Identifier: Apache-2.0
"""Samples a second of one rank on the CPU: ours beside PyTorch, with the same model, batch and threads.

Ours gathers its batch from real data in each step; PyTorch's is at hand, random numbers, which is kind to it. So is that it runs with
whichever of SETTINGS makes it faster: Debian's has two kinds of threads, its own and its BLAS's, and those that wait by spinning keep
the others from their CPUs.
"""
from typing import NamedTuple

from measuring import interleaved, paired_ratio, ratio_verdict, summary, table
from programs import progress
from trainer_peer import THREADS, TRAINER, peer, summary_of, text_tokens

OURS, TORCH = "ours", "PyTorch"
WARM_UP = 1  # rounds
SETTINGS = [{}, {"OMP_WAIT_POLICY": "PASSIVE"}]
TRIES = 2  # of each


class Case(NamedTuple):
    model: str
    batch: int
    warm_up: int  # steps before those that are measured
    iterations: int
    words: tuple = ()  # of ours


# As many steps as take PyTorch some seconds on two CPUs.
CASES = [Case("cnn", 16, 10, 60), Case("cnn", 64, 5, 20), Case("ffn", 64, 100, 1000),
         Case("unet2d", 2, 1, 2, ("--image-size=256", "--samples=8")), Case("gpt", 8, 1, 2, ("--gpt-size=10M",))]


def name_of(case):
    return f"{case.model}, batch {case.batch}"


def _torch(case, settings):
    return summary_of(peer("speed.py", case.model, case.batch, case.warm_up, case.iterations, THREADS), settings)


def _best_settings(case):
    progress(f"trainer against PyTorch: how PyTorch's {case.model} is fastest")
    return max(SETTINGS, key=lambda settings: max(_torch(case, settings)["samples_per_second"] for _ in range(TRIES)))


def _measure_once(case, who, tokens, settings, seen):
    """→ seconds a sample; notes in `seen` what PyTorch it was"""
    if who == TORCH:
        found = _torch(case, settings[case])
        seen.add(f"PyTorch {found['version']} with {found['blas']}")
    else:
        data = [f"--data-dir={tokens}"] if case.model == "gpt" else []
        found = summary_of([TRAINER, "measure-performance", "--device=cpu", f"--model={case.model}", f"--batch-size={case.batch}",
                            f"--warmup={case.warm_up}", f"--iterations={case.iterations}", *case.words, *data])
    if found["threads"] != THREADS:
        raise SystemExit(f"tests/bench/run: {name_of(case)}, {who}: {found['threads']} threads, not {THREADS}")
    return 1 / found["samples_per_second"]


def measure(rounds):
    """→ {(case, OURS or TORCH): [seconds a sample]}, {case: PyTorch's settings}, and which PyTorch"""
    seen = set()
    with text_tokens() as tokens:
        settings = {case: _best_settings(case) for case in CASES}
        found = interleaved([(case, who) for case in CASES for who in (OURS, TORCH)], rounds,
                            lambda of: _measure_once(*of, tokens, settings, seen),
                            lambda done, of: progress(f"trainer against PyTorch: round {done} of {of}"), warm_up=WARM_UP)
    return found, settings, ", ".join(seen)


def _text_of(settings):
    return " ".join(f"{name}={value}" for name, value in settings.items()) or "none"


def report(found, settings, peer_version):
    rows = [["model", "rounds", OURS, TORCH, "ratio of a round", "least to most", "PyTorch's settings"]]
    targets = []
    for case in CASES:
        ours, torch = found[case, OURS], found[case, TORCH]
        ratios = [theirs / mine for mine, theirs in zip(ours, torch, strict=True)]
        rows.append([name_of(case), str(len(ours)), *(f"{1 / summary(times)['median']:.2f}/s" for times in (ours, torch)),
                     f"{1 / paired_ratio(ours, torch)['ratio']:.2f}x", f"{min(ratios):.2f} to {max(ratios):.2f}",
                     _text_of(settings[case])])
    print(f"\nsamples a second on one rank, {THREADS} threads, against {peer_version}; medians\n\n{table(rows)}\n")
    for case in CASES:
        r = paired_ratio(found[case, OURS], found[case, TORCH])
        text = ratio_verdict(r, 1)
        print(f"{name_of(case)}: {1 / r['ratio']:.2f}x PyTorch's samples/s ({1 / r['high']:.2f} to {1 / r['low']:.2f}); at least 1x: {text}")
        targets.append({"case": name_of(case), "against": TORCH, "seconds_at_most": 1, **r, "verdict": text})
    return targets


def run(options):
    found, settings, peer_version = measure(options.rounds)
    targets = report(found, settings, peer_version)
    return {"peer": peer_version, "settings": {name_of(case): _text_of(settings[case]) for case in CASES},
            "seconds_a_sample": [{"case": name_of(case), "who": who, "seconds": times}
                                 for (case, who), times in found.items()],
            "targets": targets}
