# SPDX-License-Identifier: Apache-2.0
"""Goes on from a checkpoint of the trainer in PyTorch (trainer/checkpoint/manifest.hpp has the format; here: of one rank)."""
import json
import os

import numpy
import torch


def load(directory, model, optimizer):
    """Fills the model's parameters and Adam's state; → the step it was written after, the seed, the number of samples."""
    with open(os.path.join(directory, "manifest.json"), encoding="utf-8") as text:
        manifest = json.load(text)
    assert manifest["version"] == 1 and manifest["world_size"] == 1 and manifest["optimizer"] == "adam", manifest
    numbers = torch.from_numpy(numpy.fromfile(os.path.join(directory, "rank-00000-of-00001.f32"), numpy.float32))
    vectors = dict(zip((vector["name"] for vector in manifest["vectors"]),
                       numbers.split([vector["elements"] for vector in manifest["vectors"]])))
    for place, parameter in zip(manifest["parameters"], model.parameters(), strict=True):
        assert place["shape"] == list(parameter.shape), f"{place} is not PyTorch's {list(parameter.shape)}"
        begin, end = place["first"], place["first"] + parameter.numel()
        values, m, v = (vectors[name][begin:end].view(parameter.shape).clone() for name in ("values", "m", "v"))
        parameter.data = values
        optimizer.state[parameter] = {"step": torch.tensor(float(manifest["step"])), "exp_avg": m, "exp_avg_sq": v}
    return manifest["step"], manifest["seed"], manifest["samples"]
