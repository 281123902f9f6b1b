# SPDX-License-Identifier: Apache-2.0
"""Runs inside an allocation: a line of JSON with a command in, a line with its exit code and seconds out. So that neither salloc's time nor
that of the way into the cluster is in what is measured."""
import json
import subprocess
import sys
import time

for line in sys.stdin:
    command = json.loads(line)
    began = time.perf_counter()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    seconds = time.perf_counter() - began
    output = done.stdout.decode(errors="replace")[-2000:]
    print(json.dumps({"command": command, "code": done.returncode, "seconds": seconds, "output": output}), flush=True)
