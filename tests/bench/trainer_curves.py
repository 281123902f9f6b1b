# SPDX-License-Identifier: Apache-2.0
"""Do the losses agree? Ours trains a step and writes a checkpoint; from there, on the same batches, both train on, and each step's losses are
compared. So the models, losses, gradients, Adam, dropout and the sampler of both must be the same, and the checkpoint what it says it is.

In the first steps the losses differ by rounding alone: those have the close limit, which a wrong gradient would not keep. From then on the
difference grows, most in unet2d: Adam's first steps are as large for a gradient that is little more than rounding as for any other.
"""
import json
import os
import tempfile
from typing import NamedTuple

from measuring import table
from programs import built, progress, require
from trainer_peer import THREADS, TRAINER, lines_of, peer, text_tokens

STEPS = 20  # that are compared
SEED = 7
RATE = 1e-3
FASHION_MNIST = "/usr/share/datasets/fashion-mnist"
EARLY = 3  # of them
EARLY_AT_MOST, AT_MOST = 1e-5, 5e-3  # of the loss, between ours and PyTorch's: in the first EARLY steps, in all


class Curve(NamedTuple):
    model: str
    batch: int
    words: tuple = ()


CURVES = [Curve("ffn", 64), Curve("cnn", 16), Curve("unet2d", 2, ("--image-size=256", f"--samples={2 * (STEPS + 1)}")),
          Curve("gpt", 8, ("--gpt-size=10M",))]


def _data_of(model, folder, tokens):
    """Words of ours, words of PyTorch's curve.py."""
    if model == "gpt":
        return [f"--data-dir={tokens}"], [tokens]
    if model == "unet2d":
        images = os.path.join(folder, "images")
        lines_of([built("bench-composed-images"), FASHION_MNIST, 256, 2 * (STEPS + 1), SEED, images])
        return [], [images]
    return [], []


def losses(curve, tokens, steps):
    """→ ours and PyTorch's, of the steps 2 to steps + 1"""
    with tempfile.TemporaryDirectory() as folder:
        checkpoints, metrics = os.path.join(folder, "checkpoints"), os.path.join(folder, "metrics")
        data, peers_data = _data_of(curve.model, folder, tokens)
        words = [TRAINER, "--device=cpu", f"--model={curve.model}", f"--batch-size={curve.batch}", f"--lr={RATE}", f"--seed={SEED}",
                 *curve.words, *data, f"--checkpoint-dir={checkpoints}"]
        lines_of([*words, "--steps=1"])
        lines_of([*words, f"--steps={steps + 1}", "--resume=must", f"--metrics={metrics}", "--log-interval=1"])
        with open(metrics, encoding="utf-8") as text:
            events = [json.loads(line) for line in text]
        ours = [event["loss"] for event in events if event["event"] == "step"]
        theirs = lines_of(peer("curve.py", curve.model, curve.batch, steps + 1, RATE, os.path.join(checkpoints, "step-000000001"), THREADS,
                               *peers_data))
        return ours, [float(line) for line in theirs]


def report(found, steps):
    rows = [["model", "step 2, ours", "PyTorch", f"step {steps + 1}, ours", "PyTorch", f"differ until {EARLY + 1}", "differ at most", "in step"]]
    targets = []
    for curve, (ours, theirs) in found.items():
        differences = [abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True)]
        early, largest = max(differences[:EARLY]), max(differences)
        rows.append([f"{curve.model}, batch {curve.batch}", *(f"{of[at]:.6f}" for at in (0, -1) for of in (ours, theirs)),
                     f"{early:.1e}", f"{largest:.1e}", str(differences.index(largest) + 2)])
        targets.append({"model": curve.model, "early_at_most": EARLY_AT_MOST, "at_most": AT_MOST, "early": early, "largest": largest,
                        "verdict": "met" if early <= EARLY_AT_MOST and largest <= AT_MOST else "missed"})
    print(f"\nloss of each of {steps} steps from the same parameters on the same batches; differences in parts of the loss\n\n{table(rows)}\n")
    for target in targets:
        print(f"{target['model']}: losses differ by {target['early']:.1e} in the first {EARLY} steps, by {target['largest']:.1e} in all; "
              f"at most {EARLY_AT_MOST:.0e} and {AT_MOST:.0e}: {target['verdict']}")
    return targets


def run(options):
    steps = EARLY if options.smoke else STEPS
    require(built("bench-composed-images"))
    found = {}
    with text_tokens() as tokens:
        for curve in CURVES:
            found[curve] = ours, theirs = losses(curve, tokens, steps)
            if len(ours) != steps or len(theirs) != steps:
                raise SystemExit(f"tests/bench/run: {curve.model}: {len(ours)} losses of ours and {len(theirs)} of PyTorch's, not {steps}")
            progress(f"losses of {curve.model}: done")
    targets = report(found, steps)
    return {"losses": [{"model": curve.model, "ours": ours, "torch": theirs} for curve, (ours, theirs) in found.items()], "targets": targets}
