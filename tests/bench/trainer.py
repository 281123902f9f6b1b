# SPDX-License-Identifier: Apache-2.0
"""The bundled trainer beside PyTorch: its speed on one rank, whether the losses agree, what communication costs and a divided model, how soon a step trains,
and what its profile costs and predicts."""
import json

import trainer_communication
import trainer_curves
import trainer_division
import trainer_profile
import trainer_speed
import trainer_start
from measuring import machine
from programs import builds, daemon_of, left_out, require, warn_if_busy
from stores import torch_problem
from trainer_peer import trainer_of

PARTS = {"speed": trainer_speed, "curves": trainer_curves, "communication": trainer_communication, "division": trainer_division,
         "start": trainer_start, "profile": trainer_profile}
WITHOUT_PEER = ("communication", "division", "profile")


def run(options):
    for build in builds(options).values():
        require(daemon_of(build), trainer_of(build))
    result = {"part": "trainer", "rounds": options.rounds, "machine": machine()}
    warn_if_busy(result["machine"])
    why = torch_problem()
    for name, part in PARTS.items():
        if options.only not in (None, name):
            continue
        if why and name not in WITHOUT_PEER:
            left_out(name, why)
            continue
        result[name] = part.run(options)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(result, out, indent=1)
    differ = [target["model"] for target in result.get("curves", {}).get("targets", ()) if target["verdict"] != "met"]
    if differ:
        raise SystemExit(f"tests/bench/run: the losses of {', '.join(differ)} are not PyTorch's")
    if options.only and options.only not in result:
        raise SystemExit(f"tests/bench/run: nothing was measured: {options.only} needs PyTorch")
    return 0
