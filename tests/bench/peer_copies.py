# SPDX-License-Identifier: Apache-2.0
"""What a second copy of each part of a sharded optimizer (--peer-copy=1) costs a step of the bundled trainer while nothing fails."""
import json
import statistics

from measuring import interleaved, paired_ratio, ratio_verdict, table
from programs import progress
from survivors import TRAINER

COPIES, NONE = "--peer-copy=1", "--peer-copy=0"
AT_MOST = 1.02  # times a step without
SHAPES = [(2, 1), (4, 2)]  # nodes, ranks on each: half and an eighth of the state on each rank
STEPS, SMOKE_STEPS = 400, 20


def measure(cluster, rounds, smoke):
    """→ {ranks: {case: [ms of a step, one a round]}}"""
    found = {}
    for nodes, each in SHAPES:
        def run_once(case, nodes=nodes, each=each):
            done = cluster.run(["srun", f"-N{nodes}", f"--ntasks-per-node={each}", "--dp-on-failure=restart", TRAINER, "--model=ffn", "--shard-optimizer", case,
                                f"--steps={SMOKE_STEPS if smoke else STEPS}"], timeout=300, check=True)
            end = json.loads(done.stdout.splitlines()[-1])
            return 1e3 * end["global_batch_size"] / end["samples_per_second"]

        found[nodes * each] = interleaved([NONE, COPIES], rounds, run_once, warm_up=0,
                                          progress=lambda done, of, ranks=nodes * each: progress(f"copies of a sharded optimizer, {ranks} ranks: {done} of {of} rounds done"))
    return found


def report(found):
    rows = [["a training step, sharded optimizer", "rounds", NONE, COPIES]]
    for ranks, times in found.items():
        rows.append([f"{ranks} ranks", str(len(times[NONE])), *(f"{statistics.median(times[case]):.2f} ms" for case in (NONE, COPIES))])
    print(f"\n{table(rows)}\n")
    targets = []
    for ranks, times in found.items():
        r = paired_ratio(times[COPIES], times[NONE])
        text = ratio_verdict(r, AT_MOST)
        print(f"{ranks} ranks: {r['ratio']:.3f} times a step without copies ({r['low']:.3f} to {r['high']:.3f}); at most {AT_MOST}: {text}")
        targets.append({"case": COPIES, "ranks": ranks, **r, "at_most": AT_MOST, "verdict": text})
    return targets
