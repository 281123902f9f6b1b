# SPDX-License-Identifier: Apache-2.0
"""Trainings on emulated GPUs that end early, or take another way.

usage: ranks.py TRAINER DPCTL CASE    LD_LIBRARY_PATH has the emulated GPU
  death       a rank dies before a collective: the others' kernels are aborted and leave garbage, which nobody believes
  abort       NCCL's abort hangs at the end, which ends the process; it may take 10 s
  one_gpu     ranks with instances of one GPU, which NCCL refuses, go through the host
  other_gpus  ranks with GPUs of other kinds are told that they wait for the slowest
  memory      a GPU with one MiB less than is needed is refused before anything is trained; `trainer compile` takes its memory as it comes
  nccl_memory what NCCL and CUDA take for themselves is in use before anybody reads how much is left, also what NCCL takes for gathers alone
  restart     a rank dies before a collective, in whose kernel the others wait: they are let out of it and go on with the one that
              takes its place, to the same parameters; with graphs of their steps, which are others from there on
  stop        all ranks are told to stop, and agree on the signal
"""
import collections
import hashlib
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

TRAINER, DPCTL, CASE = sys.argv[1:4]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # leaves no folder
RANKS, VICTIM = 4, 2
TRAINING = [TRAINER, "--model=linear", "--device=cuda", "--samples=96", "--batch-size=8", "--epochs=1"]
SAVING = [*TRAINING, "--checkpoint-dir=kept", "--save-interval=2"]


def launch(command, folder, *, ranks=RANKS, options=(), **environment):
    return subprocess.run([DPCTL, "launch", "-n", str(ranks), *options, "--", *command], cwd=folder, capture_output=True, text=True,
                          timeout=60, env={**os.environ, **environment})


def sizes_of_collectives(said, rank):
    """→ Counter of the bytes of what that rank came to."""
    return collections.Counter(map(int, re.findall(rf"emulated NCCL: rank {rank}, \d+: kind \d+, (\d+) bytes", said)))


def check_checkpoints(folder):
    """How many are published; each has the shards that it says."""
    done = list(pathlib.Path(folder, "kept").glob("*/DONE"))
    for one in done:
        manifest = json.loads((one.parent / "manifest.json").read_text(encoding="utf-8"))
        for rank, shard in enumerate(manifest["shards"]):
            files = sorted(one.parent.glob("rank-*"))
            assert len(files) == RANKS, files
            found = hashlib.sha256(files[rank].read_bytes()).hexdigest()
            assert found == shard["sha256"], f"{files[rank]} has {found}, and not what is said: {manifest}"
    return len(done)


def death():
    with tempfile.TemporaryDirectory() as folder:
        whole = launch(SAVING, folder, DP_CUDA_EMULATOR_NCCL_COUNTS="1")
        assert whole.returncode == 0, whole.stdout + whole.stderr
        published = check_checkpoints(folder)
        assert published > 0, whole.stdout
        assert "an abort" not in whole.stderr, "communicators that nobody has left end with an abort"
    sizes = sizes_of_collectives(whole.stderr, VICTIM)
    print(f"{published} checkpoints; {sizes}")
    # Each rank's facts of a shard, for the manifest; and its hash of the parameters, for whether they are equal. The last of each.
    for size in RANKS * 7 * 8, RANKS * 8:
        with tempfile.TemporaryDirectory() as folder:
            done = launch(SAVING, folder, DP_CUDA_EMULATOR_NCCL_DIES=f"{VICTIM}/{sizes[size]}/{size}")
            print(f"dies at {sizes[size]} of {size} bytes: exit {done.returncode}", *done.stderr.splitlines()[-2:], sep="\n  ", flush=True)
            assert done.returncode != 0, done.stdout + done.stderr
            assert "parameters_equal_on_all_ranks" not in done.stdout, done.stdout
            check_checkpoints(folder)


def restart():
    first_alone = ["bash", "-c", '[ "$DP_GENERATION" = 0 ] || unset DP_CUDA_EMULATOR_NCCL_DIES; exec "$@"', "bash"]
    training = [*first_alone, *TRAINING, "--epochs=4", "--deterministic"]
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = launch(training, folder, DP_CUDA_EMULATOR_NCCL_COUNTS="1")
    assert undisturbed.returncode == 0, undisturbed.stderr
    sizes = sizes_of_collectives(undisturbed.stderr, VICTIM)
    gradients = max((size for size in sizes if size > 1 << 20), key=sizes.get)
    with tempfile.TemporaryDirectory() as folder:
        done = launch([*training, "--cuda-graphs=on"], folder, options=["--on-failure=restart"],
                      DP_CUDA_EMULATOR_NCCL_DIES=f"{VICTIM}/5/{gradients}")
    assert done.returncode == 0, done.stdout + done.stderr
    one, here = (json.loads(said.stdout.splitlines()[-1]) for said in (undisturbed, done))
    print({name: here.get(name) for name in ("recoveries", "recovery_seconds", "steps_repeated", "parameters_hash")})
    assert here["recoveries"] == 1 and here["parameters_hash"] == one["parameters_hash"], (one, here)


def stop():
    command = [DPCTL, "launch", "-n", str(RANKS), "--", *SAVING, "--epochs=100000", "--log-interval=1"]
    with tempfile.TemporaryDirectory() as folder:
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as launched:
            said = [launched.stdout.readline()]
            while said[-1] and " loss " not in said[-1]:
                said.append(launched.stdout.readline())
            launched.send_signal(signal.SIGTERM)
            said.append(launched.communicate(timeout=60)[0])
    assert "received SIGTERM: stopped after step" in said[-1], "".join(said)


def one_gpu():
    with tempfile.TemporaryDirectory() as folder:
        done = launch(TRAINING, folder, ranks=2, DP_CUDA_EMULATOR_PCI="0000:17:00.0")
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout + done.stderr
    assert ("have the same GPU, 0000:17:00.0 of node 0; NCCL takes a GPU once, whole or as MIG instances, so all ranks reduce "
            "through the host; give each a GPU of its own to be faster") in said, said
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["communicator"] == "gloo" and summary["parameters_equal_on_all_ranks"] is True, summary


def other_gpus():
    by_rank = ["bash", "-c", 'DP_CUDA_EMULATOR_NAME="GPU $DP_RANK" exec "$@"', "bash"]
    with tempfile.TemporaryDirectory() as folder:
        done = launch([*by_rank, *TRAINING], folder, ranks=2)
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout + done.stderr
    assert re.search(r"the GPU of a rank differs: cuda, GPU 0, sm_90 on .*, cuda, GPU 1, sm_90 on .*; each step waits for the "
                     r"slowest; ask for one kind \(--gres=gpu:KIND:N\)", said), said
    assert json.loads(done.stdout.splitlines()[-1])["communicator"] == "nccl", done.stdout


def abort():
    with tempfile.TemporaryDirectory() as folder:
        done = launch(TRAINING, folder, ranks=1, DP_CUDA_EMULATOR_NCCL_HANGS="1")
    assert "slurm-dp: rank 0: NCCL did not end its communicator within 10 s; ending the process" in done.stderr, done.stderr
    assert done.returncode != 0


def memory():
    def train(mebibytes, words=()):
        return subprocess.run([TRAINER, *words, *TRAINING[1:]], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "DP_CUDA_EMULATOR_MEMORY_MIB": str(mebibytes)})

    needed = math.ceil(float(re.search(r"memory per rank: ([0-9.]+) MiB", train(4096).stdout)[1]))
    fits, does_not = train(needed), train(needed - 1)
    assert fits.returncode == 0, fits.stderr
    assert re.search(rf"linear with a batch of 8 needs .* per rank, but cuda has {needed - 1}.0 MiB; give a smaller --batch-size",
                     does_not.stderr), does_not.stderr
    assert does_not.returncode != 0 and " loss " not in does_not.stdout, does_not.stdout

    # As soon as all else has room, but not the trials of how fast products are, these are left out, and no product is blamed for it.
    for mebibytes in range(needed, 2 * needed, 2):
        with tempfile.TemporaryDirectory() as folder:
            compiled = train(mebibytes, ["compile", "--cache-dir", folder])
        if compiled.returncode == 0:
            break
        assert "a matrix product" not in compiled.stderr, compiled.stderr
    assert compiled.returncode == 0, compiled.stderr


def nccl_memory():
    training = [*TRAINING[:3], "--samples=64", "--batch-size=8", "--epochs=2", "--shard-optimizer"]
    memory = {"DP_CUDA_EMULATOR_CONTEXT_MIB": "100", "DP_CUDA_EMULATOR_NCCL_MIB": "30", "DP_CUDA_EMULATOR_MEMORY_TOLD": "1"}

    def train(mebibytes):
        with tempfile.TemporaryDirectory() as folder:
            return launch(training, folder, ranks=2, DP_CUDA_EMULATOR_MEMORY_MIB=str(mebibytes), **memory)

    total = 900  # so that what is left has less than a GiB, of which the line has tenths of MiB
    done = train(total)
    assert done.returncode == 0, done.stdout + done.stderr
    line = re.search(r"memory per rank: ([0-9.]+) MiB .* of ([0-9.]+) MiB\n", done.stdout)
    needed, left = float(line[1]), float(line[2])
    used = [int(bytes) / 2**20 for bytes in re.findall(r"emulated GPU: (\d+) bytes of memory were in use at most", done.stderr)]
    print(f"{total - left:.1f} MiB in use before, and {needed} MiB estimated, make {total - left + needed:.1f} MiB; really {max(used):.1f} MiB")
    assert max(used) <= total - left + needed + 0.1 < 1.03 * max(used), used

    least = math.ceil(total - left + needed)
    fits, does_not = train(least), train(least - 1)
    assert fits.returncode == 0, fits.stdout + fits.stderr
    assert re.search(r"linear with a batch of 8 needs .* per rank, but cuda has [0-9.]+ MiB; give a smaller --batch-size", does_not.stderr), does_not.stderr
    assert does_not.returncode != 0 and " loss " not in does_not.stdout, does_not.stdout


{"abort": abort, "death": death, "memory": memory, "nccl_memory": nccl_memory, "one_gpu": one_gpu, "other_gpus": other_gpus, "restart": restart,
 "stop": stop}[CASE]()
