# SPDX-License-Identifier: Apache-2.0
"""How long real ranks on the local cluster take to have a unique id: libdp beside PMI2, PMIx and PyTorch's TCPStore; and in Python slurm_dp
beside torch.distributed.

All ranks start at the same instant. Each is timed from its first call of that library (open, init or connect) until it has rank 0's 128 bytes;
of a round the slowest rank counts. A round is a step. Only PyTorch's rounds are one step, a new store each and the first not counted, which is kind to it: in a
fresh process rank 0's server often comes too late for the others, who then sleep for a second.
"""
import glob
import os
import random
import statistics

from allocation import Allocation
from localcluster.harness import TestCluster
from localcluster.names import CHECKOUT
from measuring import of_ranks, ratio, ratio_verdict, table, told_against
from plugstack import Plugstack
from programs import BEFORE, BUILD, built, cluster_name, left_out, progress
from start_line import StartLine
from stores import PYTHON, torch_problem

SHAPES = {8: (4, 2), 32: (4, 8), 64: (4, 16), 128: (8, 16)}  # ranks: nodes, ranks on each
ID_TORCH = os.path.join(CHECKOUT, "tests/bench/id_torch.py")
# With the tree's own package and library.
IN_PYTHON = ("env", f"PYTHONPATH={CHECKOUT}/packaging/python", f"LD_LIBRARY_PATH={BUILD}/lib", PYTHON, os.path.join(CHECKOUT, "tests/bench/id_python.py"))
OURS, PMI2, PMIX = "libdp: open + id", "PMI2: init + fence + get", "PMIx: init + fence + get"
TORCH, TORCH_FACE = "TCPStore, rank 0 serves: connect + get", "TCPStore, --dp-store=torch: connect + get"
PYTHON_OPEN = "slurm_dp: open + broadcast"
GROUP, GROUP_ENV = "slurm_dp.torch: init_process_group + broadcast", "torch, env://: init_process_group + broadcast"
GROUP_FACE = "slurm_dp.torch, --dp-store=torch: the same"
IN_ONE_STEP = (TORCH, TORCH_FACE, GROUP, GROUP_FACE, GROUP_ENV)  # all rounds: each rank imports PyTorch, which takes a second of CPU
TORCH_MOST = 32  # ranks
FIRST_PORT = 28500  # where rank 0 of PyTorch serves, and up
# (ours, against, ours at most this part of it, ranks)
TARGETS = [(OURS, PMIX, 1 / 10, 32), (OURS, TORCH, 1 / 50, 32), (GROUP, GROUP_ENV, 1 / 10, 8), (GROUP, GROUP_ENV, 1 / 10, 32)]


def cases_of(some_builds):
    """{case: (words of srun; program and its arguments, where "FOLDER" stands for start_line.py's and "PORT" for a fresh port; whose plugin)}"""
    ours = {OURS + suffix: (["--dp-world=auto"], [built("bench-id-libdp", build), "FOLDER"], build) for suffix, build in some_builds.items()}
    return ours | {case: (*how, BUILD) for case, how in peers().items()}


def peers():
    """The same of what is installed, but for the plugin."""
    cases = {}
    for case, mpi in ((PMI2, "pmi2"), (PMIX, "pmix")):
        if not os.path.exists(built(f"bench-id-{mpi}")):
            left_out(case, f"bench-id-{mpi} is not built (libpmix-dev: packaging/install-dependencies clients)")
        elif not glob.glob(f"/usr/lib/*/slurm*/mpi_{mpi}.so"):
            left_out(case, f"this Slurm has no --mpi={mpi}")
        else:
            cases[case] = ([f"--mpi={mpi}"], [built(f"bench-id-{mpi}"), "FOLDER"])
    if why := torch_problem():
        left_out("PyTorch on the cluster", why)
    else:
        cases[TORCH] = ([], [PYTHON, ID_TORCH, "FOLDER", "node01", "PORT"])
        cases[TORCH_FACE] = (["--dp-store=torch"], [PYTHON, ID_TORCH, "FOLDER"])
        cases[GROUP] = (["--dp-world=auto"], [*IN_PYTHON, "dp", "FOLDER"])
        cases[GROUP_FACE] = (["--dp-store=torch"], [*IN_PYTHON, "dp", "FOLDER"])
        cases[GROUP_ENV] = ([], [*IN_PYTHON, "env", "FOLDER", "PORT"])
    cases[PYTHON_OPEN] = (["--dp-world=auto"], [*IN_PYTHON, "open", "FOLDER"])
    return cases


class StepFailed(Exception):
    pass


class Steps:
    """Runs a case and looks at what its ranks report."""

    def __init__(self, cluster, allocation, cases):
        self._cluster, self._allocation, self._cases, self._plugstack = cluster, allocation, cases, Plugstack(cluster)
        self._port = FIRST_PORT

    def run(self, case, ranks, rounds=1):
        """→ [a dict a round]"""
        (nodes, per_node), (words, program, build) = SHAPES[ranks], self._cases[case]
        self._plugstack.set(build)
        lines = [StartLine(self._cluster, f"bench-ids-{n}") for n in range(rounds)]
        places = {"FOLDER": ",".join(line.path for line in lines), "PORT": self._port}
        self._port += rounds
        hosts = ",".join(f"node{n:02d}" for n in range(1, nodes + 1))
        self._allocation.start("srun", f"-N{nodes}", f"-n{ranks}", f"--ntasks-per-node={per_node}", "-m", "block", "-w", hosts, *words,
                               *(places.get(word, word) for word in program))
        for line in lines:
            line.open_for(ranks, self._allocation.has_ended)
        is_ours = case.startswith(OURS)
        self._allocation.finish(may_fail=not is_ours)
        try:
            return [self._look_at(ranks, line.lines()) for line in lines]
        except StepFailed as why:
            if is_ours:
                raise SystemExit(f"tests/bench/run: {case}: {why}") from None
            left_out(f"a step of {case}", f"it failed: {why}")  # --mpi=pmix of 22.05 does now and then
            return []

    @staticmethod
    def _look_at(ranks, lines):
        if sorted(int(line[0]) for line in lines) != list(range(ranks)):
            raise StepFailed(f"{len(lines)} of {ranks} ranks have an id")
        if len({line[3] for line in lines}) != 1 or len(lines[0][3]) != 256:
            raise StepFailed("the ranks have not one id of 128 bytes")
        return of_ranks([(int(end) - int(begin)) / 1e6 for _, begin, end, _ in lines])


def _measure_world(steps, cases, ranks, rounds, shuffler):
    """→ {case: [a dict a round]}"""
    here = [case for case in cases if ranks <= TORCH_MOST or case not in IN_ONE_STEP]
    found = {case: [] for case in here}
    turns = [case for case in here for _ in range(1 if case in IN_ONE_STEP else rounds)]
    shuffler.shuffle(turns)
    for case in here:
        if case not in IN_ONE_STEP:
            steps.run(case, ranks)  # once before it counts
    for case in turns:
        found[case] += steps.run(case, ranks, rounds + 1)[1:] if case in IN_ONE_STEP else steps.run(case, ranks)
    return {case: of_case for case, of_case in found.items() if of_case}


def measure(worlds, rounds, some_builds):
    """worlds: keys of SHAPES. → {ranks: {case: [a dict a round]}}"""
    cases = cases_of(some_builds)
    shuffler = random.Random(1)
    found = {}
    most, most_per_node = (max(numbers) for numbers in zip(*(SHAPES[ranks] for ranks in worlds)))
    with TestCluster(cluster_name(), nodes=most) as cluster:
        allocation = Allocation(cluster, most, most_per_node)
        steps = Steps(cluster, allocation, cases)
        for ranks in worlds:
            found[ranks] = _measure_world(steps, cases, ranks, rounds, shuffler)
            progress(f"rendezvous of {ranks} real ranks on {SHAPES[ranks][0]} nodes: done")
        allocation.close()
        cluster.assert_idle()
        cluster.assert_nothing_left()
    return found


def report(ranks, found):
    rows = [["case", "rounds", "slowest rank", "p99 rank", "p50 rank"]]
    medians = {case: {key: statistics.median(line[key] for line in lines) for key in ("max", "p99", "p50")} for case, lines in found.items()}
    for case, row in medians.items():
        rows.append([case, str(len(found[case])), *(f"{row[key]:.2f} ms" for key in ("max", "p99", "p50"))])
    print(f"\n{ranks} real ranks on the local cluster; medians\n\n{table(rows)}\n")
    targets = []
    for ours, against, limit, where in TARGETS:
        if where != ranks or against not in found:
            continue
        r = ratio(*([line["max"] for line in found[name]] for name in (ours, against)))
        text = ratio_verdict(r, limit)
        targets.append({"case": ours, "against": against, "at_most": limit, **r, "verdict": text})
        print(f"{ours} against {against}: {1 / r['ratio']:.1f}x less ({1 / r['high']:.1f} to {1 / r['low']:.1f}); at least {1 / limit:.0f}x: {text}")
    result = {"medians": medians, "targets": targets}
    if OURS + BEFORE in found:
        ours, before = ([line["max"] for line in found[OURS + suffix]] for suffix in ("", BEFORE))
        result["before"] = [told_against(f"{ranks} real ranks, slowest rank", ratio(ours, before))]
    return result
