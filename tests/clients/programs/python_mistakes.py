# SPDX-License-Identifier: Apache-2.0
"""What can go wrong in one rank: each prints as one line what slurm_dp says of it."""
import os
import sys
import threading

import slurm_dp as dp


def tell(what, call, *arguments, **options):
    try:
        said = f"no error, but {call(*arguments, **options)!r}"
    except dp.Error as error:
        said = str(error)
    sys.stdout.write(f"{what}: {said}\n")
    sys.stdout.flush()


def in_child(what, call):
    child = os.fork()
    if child == 0:
        tell(what, call)
        os._exit(0)
    os.waitpid(child, 0)


before = dict(os.environ)
for what, changes in {"no daemon": {"DP_SOCKET": "@slurm-dp/none/of/these"}, "another job": {"SLURM_JOB_ID": "99999", "SLURM_STEP_ID": "7"},
                      "no rank": {"DP_RANK": "many"}}.items():
    os.environ.update(changes)
    tell(what, dp.open)
    os.environ.clear()
    os.environ.update(before)

world = dp.open()
tell("twice", dp.open)
thread = threading.Thread(target=tell, args=("in a thread", dp.open))
thread.start()
thread.join()
in_child("a child opens", dp.open)
in_child("a child calls", world.barrier)
in_child("a child's phase", lambda: dp.phase("load").__enter__())
in_child("a child's step", lambda: dp.step(3))
in_child("a child's scalar", lambda: dp.log_scalar("loss", 3))
tell("no timeout", world.barrier, timeout=-1)
tell("no key", world.get, 3)
tell("no value", world.set, "key", 3)
tell("no phase", dp.phase, "lunch")
tell("no call-back", world.on_event, "print")
tell("no group", world.barrier, group=[0, 1])
tell("nobody's group", world.group, "none", [])
tell("a stranger's group", world.group, "others", [0, 1])
tell("too much", world.add, "n", 1 << 63)
tell("no step", dp.step, -1)
tell("no number", dp.log_scalar, "loss", "low")
tell("no name", dp.log_scalar, "", 1)
tell("a long name", dp.log_scalar, "x" * 32, 1)
tell("too many", lambda: [dp.log_scalar(str(number), number) for number in range(9)])
tell("a throwing id", world.unique_id, make=lambda: sys.exit(3))
world.close()
world.close()


def closes_while_others_call():
    for _ in range(20):
        world = dp.open()
        ends = []

        def call():
            try:
                while True:
                    world.add("n")
            except dp.Error as error:
                ends.append(error.status)

        threads = [threading.Thread(target=call) for _ in range(3)]
        for thread in threads:
            thread.start()
        while world.add("n") < 5:
            pass
        world.close()
        for thread in threads:
            thread.join()
        assert set(ends) <= {"invalid", "lost"} and len(ends) == 3, ends
    return "20 times"


tell("closing while others call", closes_while_others_call)
tell("closed", world.set, "key", "value")
tell("an event after close", world.on_event, print)
dp.step(4)
