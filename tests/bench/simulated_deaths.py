# SPDX-License-Identifier: Apache-2.0
"""How soon every rank knows of a death, ranks simulated on loopback: the real broker with simulated nodes, its own node's ranks real clients
of libdp. A simulated rank dies as its node's engine sees it: its connection closes, and its launcher tells the signal."""
from programs import built, daemon_of, progress, rounds_of

RANKS_PER_NODE = 8
SIZES = [8, 64, 128, 2048]  # nodes
SLICES = 4  # of the rounds, where two builds take turns


def measure(nodes, rounds, some_builds):
    """→ {what stands behind a case's name: [a dict a round]}"""
    progress(f"deaths among {nodes * RANKS_PER_NODE} simulated ranks")
    slices = SLICES if len(some_builds) > 1 else 1
    found = {suffix: [] for suffix in some_builds}
    for _ in range(slices):
        for suffix, build in some_builds.items():
            found[suffix] += rounds_of([built("bench-deaths", build), daemon_of(build), nodes, RANKS_PER_NODE, -(-rounds // slices)])
    return found
