# SPDX-License-Identifier: Apache-2.0
"""The parts of tests/cluster/cluster, a real Slurm on one machine. Python's standard library only."""
