# SPDX-License-Identifier: Apache-2.0
"""What slurm_dp costs a program that does nothing with it (the import), and in each of its steps (slurm_dp.step), here and now."""
import os
import statistics
import subprocess
import time

from localcluster.names import CHECKOUT
from measuring import table
from programs import BUILD
from stores import PYTHON

IMPORT_MOST, STEP_MOST = 15.0, 1.0  # ms, µs
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{CHECKOUT}/packaging/python", "LD_LIBRARY_PATH": f"{BUILD}/lib",
               "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{BUILD}/pycache"}  # compiled once, as pip and dpkg do
STEPS = """
import time, slurm_dp
world = slurm_dp.open()
def timed(function, calls=200_000):
    began = time.perf_counter()
    for number in range(calls):
        function(number)
    return (time.perf_counter() - began) / calls * 1e6
print(min(timed(slurm_dp.step) - timed(lambda number: None) for _ in range(7)))
"""


def _seconds(code):
    began = time.perf_counter()
    subprocess.run([PYTHON, "-c", code], env=ENVIRONMENT, check=True)
    return time.perf_counter() - began


def measure(rounds):
    """→ {"import_ms": …, "step_us": …}: the median of the differences with and without the import, and the fastest of 7 times 200,000 steps."""
    _seconds("import slurm_dp")  # compiles it
    differences = [_seconds("import slurm_dp") - _seconds("pass") for _ in range(rounds)]
    launched = subprocess.run([f"{BUILD}/bin/dpctl", "launch", "-n1", "--", PYTHON, "-c", STEPS], env=ENVIRONMENT, check=True,
                              capture_output=True, text=True)
    return {"import_ms": statistics.median(differences) * 1000, "step_us": float(launched.stdout)}


def report(found):
    def told(value, most):
        return "met" if value <= most else "missed"

    rows = [["Python", "time", "at most", ""],
            ["import slurm_dp", f"{found['import_ms']:.1f} ms", f"{IMPORT_MOST:g} ms", told(found["import_ms"], IMPORT_MOST)],
            ["slurm_dp.step", f"{found['step_us']:.2f} µs", f"{STEP_MOST:g} µs", told(found["step_us"], STEP_MOST)]]
    print(f"\n{table(rows)}\n")
