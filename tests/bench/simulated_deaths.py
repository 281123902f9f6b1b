# SPDX-License-Identifier: Apache-2.0
"""How soon every rank knows of a death, ranks simulated on loopback: the real broker with simulated nodes, its own node's ranks real clients
of libdp. A simulated rank dies as its node's engine sees it: its connection closes, and its launcher tells the signal."""
from programs import DAEMON, built, progress, rounds_of

RANKS_PER_NODE = 8
SIZES = [8, 64, 128, 2048]  # nodes


def measure(nodes, rounds):
    """→ [a dict a round]"""
    progress(f"deaths among {nodes * RANKS_PER_NODE} simulated ranks")
    return rounds_of([built("bench-deaths"), DAEMON, nodes, RANKS_PER_NODE, rounds])
