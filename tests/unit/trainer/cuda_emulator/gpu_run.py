# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/run itself, on an emulated GPU: what it says and writes where its tests pass, and where a program does not do what it should.

Arguments: the checkout, the build tree, the folder of the emulated libraries."""
import json
import os
import subprocess
import sys
import tempfile

TESTS = ["linear, fp32: steps", "ffn, bf16: steps", "cuDNN: numbers", "cuDNN: compile", "continues to the same bits", "memory", "two ranks on the tiles", "compile on a tile"]
NVIDIA_SMI = """#!/bin/sh
case $1 in
-L) echo "GPU 0: emulated (UUID: GPU-0)" ;;
*) echo "emulated, 580.00" ;;
esac
"""


def script(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    os.chmod(path, 0o755)


def run(root, build, libraries, folder, *options):
    """→ (exit code, lines of its output, lines of results.jsonl)"""
    out = os.path.join(folder, "out")
    os.makedirs(out, exist_ok=True)
    environment = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}", OUT=out, DP_BUILD=build, DP_CUDA_LIBRARIES=libraries)
    for name in ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"):
        environment.pop(name, None)
    done = subprocess.run([os.path.join(root, "tests/gpu/run"), *options], env=environment, capture_output=True, text=True, timeout=300, check=False)
    results = os.path.join(out, "results.jsonl")
    with open(results, encoding="utf-8") as file:
        told = [json.loads(line) for line in file]
    os.unlink(results)
    assert os.path.getsize(os.path.join(out, "logs.tar.gz")) > 0
    return done.returncode, done.stdout.splitlines(), told


def main():
    root, build, libraries = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        script(os.path.join(folder, "nvidia-smi"), NVIDIA_SMI)
        options = [word for test in TESTS for word in ("--only", test)]
        code, lines, told = run(root, build, libraries, folder, *options)
        assert code == 0 and len(told) == len(TESTS) and all(one["result"] == "PASSED" for one in told), "\n".join(lines)
        assert lines[-1] == f"{len(TESTS)} passed, 0 failed, 0 skipped", lines[-1]

        # A device that computes something else: the first step shows it.
        other = os.path.join(folder, "other")
        os.makedirs(os.path.join(other, "bin"))
        for name in os.listdir(os.path.join(build, "bin")):
            os.symlink(os.path.join(build, "bin", name), os.path.join(other, "bin", name))
        os.unlink(os.path.join(other, "bin/trainer"))
        script(os.path.join(other, "bin/trainer"), f"#!/bin/sh\ncase $* in *--device=cuda*) set -- \"$@\" --seed=2 ;; esac\nexec {build}/bin/trainer \"$@\"\n")
        code, lines, told = run(root, other, libraries, folder, "--only", "linear, fp32: steps")
        assert code == 1 and [one["result"] for one in told] == ["FAILED"] and told[0]["told"].startswith("step 1: loss "), "\n".join(lines)


main()
