# SPDX-License-Identifier: Apache-2.0
"""The trainer's --profile: what it costs the steps that it profiles, and whether its advice is worth what it predicts. All models are profiled, each
advice is followed by itself, and both trainings are measured in turn. No peer predicts; the base is the training that was profiled."""
import json
import os
import tempfile
from statistics import median
from typing import NamedTuple

from localcluster.harness import BUILD
from measuring import interleaved, paired_ratio, ratio_verdict, table
from programs import progress
from trainer_peer import THREADS, done_with, text_tokens, trainer_of

AT_MOST = 1.02    # of a step without the profile
NEAR = 0.25       # of a predicted gain: nearer than that is as predicted
WARM_UP = 1       # rounds
MOST_PROFILED = 100  # steps
BASE = "as profiled"


class Case(NamedTuple):
    model: str
    words: tuple = ()
    threads: int = THREADS
    ranks: int = 1


CASES = [Case("linear"), Case("ffn"), Case("ffn", threads=1), Case("linear", ranks=2, threads=1), Case("cnn"),
         Case("unet2d", ("--image-size=256", "--samples=64", "--init-features=8", "--batch-size=1")),
         Case("gpt", ("--num-layers=2", "--hidden-size=128", "--num-attention-heads=4", "--seq-length=64",
                      "--batch-size=1", "--recompute"))]
COSTLY = [Case("linear"), Case("ffn")]  # the most operations a second
SMOKE = [Case("linear"), Case("linear", ranks=2, threads=1)]


def described(case):
    return " ".join([case.model, *(word for word in case.words if not word.startswith("--data-dir")), f"with {case.ranks} x {case.threads} threads"])


def command(case, verb, *words):
    trainer = [trainer_of(BUILD), verb, "--device=cpu", f"--model={case.model}", *case.words, *words]
    return [os.path.join(BUILD, "bin/dpctl"), "launch", "-n", str(case.ranks), "--", *trainer] if case.ranks > 1 else trainer


def profile_of(case, folder, steps, *words):
    file = os.path.join(folder, "profile.json")
    done_with(command(case, "run", f"--steps={steps}", f"--profile={file}", *words), {"OMP_NUM_THREADS": str(case.threads)})
    with open(file, encoding="utf-8") as text:
        return json.load(text)


def followed(case, advice):
    """→ the case that follows the advice"""
    words, threads = [word for word in case.words if word != advice["leave_out"]], case.threads
    for option in advice["options"]:
        name, value = option.split("=")
        if name == "OMP_NUM_THREADS":
            threads = int(value)
        else:
            words = [word for word in words if not word.startswith(name + "=")] + [option]
    return case._replace(words=tuple(words), threads=threads)


def samples_per_second(case, folder, iterations):
    file = os.path.join(folder, "measured.json")
    done_with(command(case, "measure-performance", f"--iterations={iterations}", "--warmup=3", f"--json={file}"),
              {"OMP_NUM_THREADS": str(case.threads)})
    with open(file, encoding="utf-8") as text:
        return json.load(text)["samples_per_second"]


def worth_of_advice(cases, rounds, iterations, folder):
    rows, found = [["training", "advice", "predicted", "measured", ""]], []
    for case in cases:
        profile = profile_of(case, folder, 20)
        by_option = {" ".join(one["options"]) or "without " + one["leave_out"]: one for one in profile["advice"]}
        if not by_option:
            rows.append([described(case), "none", "", "", ""])
            found.append({"case": case._asdict(), "advice": None})
            continue
        rates = interleaved([BASE, *by_option], rounds,
                            lambda option, case=case, by=by_option: samples_per_second(case if option == BASE else followed(case, by[option]), folder, iterations),
                            lambda done, of, case=case: progress(f"advice, {described(case)}: round {done} of {of}"), warm_up=WARM_UP)
        for option, one in by_option.items():
            gain = paired_ratio(rates[option], rates[BASE])
            is_near = abs(gain["ratio"] / one["gain"] - 1) <= NEAR
            rows.append([described(case), option, f"{one['gain']:.2f}x", f"{gain['ratio']:.2f}x ({gain['low']:.2f} to {gain['high']:.2f})",
                         "as predicted" if is_near else "not as predicted"])
            found.append({"case": case._asdict(), "advice": one, "gain": gain, "as_predicted": is_near})
    print(f"\nadvice, followed; samples a second; as predicted: within {100 * NEAR:.0f} %\n\n{table(rows)}\n")
    return found


def cost(cases, rounds, profiled, folder):
    """Of each training the median step that is profiled, and that of those before them: from process to process more differs than a profile costs."""
    found = []
    for case in cases:
        profiles = []
        for done in range(rounds):
            progress(f"cost, {described(case)}: round {done} of {rounds}")
            profiles.append(profile_of(case, folder, 3 * profiled, f"--profile-steps={2 * profiled + 1}:{3 * profiled}"))
        r = paired_ratio([one["median_seconds"] for one in profiles], [one["median_seconds_without"] for one in profiles])
        said = median(one["overhead"] for one in profiles)
        print(f"{described(case)}: profiled steps take {r['ratio']:.4f}x ({r['low']:.4f} to {r['high']:.4f}), and the profile says {1 + said:.4f}x; "
              f"at most {AT_MOST}: {ratio_verdict(r, AT_MOST)}")
        found.append({"case": case._asdict(), **r, "said": said})
    return found


def run(options):
    with tempfile.TemporaryDirectory() as folder, text_tokens() as tokens:
        if options.smoke:
            return {"cost": cost(SMOKE[:1], options.rounds, 5, folder), "advice": worth_of_advice(SMOKE, options.rounds, 5, folder)}
        cases = [case._replace(words=(*case.words, f"--data-dir={tokens}")) if case.model == "gpt" else case for case in CASES]
        return {"cost": cost(COSTLY, 5 * options.rounds, MOST_PROFILED, folder), "advice": worth_of_advice(cases, options.rounds, 40, folder)}
