# SPDX-License-Identifier: Apache-2.0
"""The bundled trainer beside PyTorch: its speed on one rank, whether the losses agree, what communication costs, how soon a step trains."""
import json

import trainer_communication
import trainer_curves
import trainer_speed
import trainer_start
from measuring import machine
from programs import DAEMON, left_out, require, warn_if_busy
from stores import torch_problem
from trainer_peer import TRAINER

PARTS = {"speed": trainer_speed, "curves": trainer_curves, "communication": trainer_communication, "start": trainer_start}
WITHOUT_PEER = "communication"


def run(options):
    require(DAEMON, TRAINER)
    result = {"part": "trainer", "rounds": options.rounds, "machine": machine()}
    warn_if_busy(result["machine"])
    why = torch_problem()
    for name, part in PARTS.items():
        if options.only not in (None, name):
            continue
        if why and name != WITHOUT_PEER:
            left_out(name, why)
            continue
        result[name] = part.run(options)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(result, out, indent=1)
    return 0
