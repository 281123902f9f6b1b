# SPDX-License-Identifier: Apache-2.0
"""Saves and requeues its job at SIGUSR1, by Lightning's rules: only where Slurm's names are there and torchrun's are not, and by rank 0 alone,
once all have saved. In the next round it goes on from what was saved.   argv: the folder of what is saved"""
import os
import pathlib
import signal
import subprocess
import sys
import time

rank = int(os.environ["SLURM_PROCID"])
saved = pathlib.Path(sys.argv[1], f"saved-{rank}")
signals = []
if "TORCHELASTIC_RUN_ID" not in os.environ and "SLURM_NTASKS" in os.environ:
    signal.signal(signal.SIGUSR1, lambda number, frame: signals.append(number))  # else it ends the rank
if saved.exists():
    print(f"rank {rank} of {os.environ['WORLD_SIZE']} goes on from {saved.read_text()}, restart {os.environ.get('SLURM_RESTART_COUNT')}", flush=True)
    sys.exit(0)
print(f"rank {rank} trains", flush=True)
while not signals:
    time.sleep(0.05)
saved.write_text("step 12")
while rank == 0 and len(list(saved.parent.glob("saved-*"))) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.05)
if rank == 0:
    subprocess.run(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], check=True)
signal.pause()  # until Slurm ends it
