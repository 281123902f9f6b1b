# SPDX-License-Identifier: Apache-2.0
"""What `trainer compile` has made for a GPU is used on that kind of GPU; on another one a line says for which it is.
Where cuDNN's attention cannot be taken, a line says why.

usage: compiled.py TRAINER    LD_LIBRARY_PATH has the emulated GPU
"""
import os
import subprocess
import sys
import tempfile

TRAINER, = sys.argv[1:]
MODEL = ["--model=linear", "--samples=64", "--batch-size=8", "--cache-dir=cache"]
GPT = ["--model=gpt", "--bf16", "--hidden-size=32", "--num-attention-heads=2", "--seq-length=16", "--num-layers=1",
       "--data-dir=tokens", "--samples=64", "--batch-size=4", "--cache-dir=cache"]


def run(folder, gpu, *words):
    done = subprocess.run([TRAINER, *words, *MODEL], cwd=folder, capture_output=True, text=True, timeout=60,
                          env={**os.environ, "DP_CUDA_EMULATOR_GPU": gpu})
    if done.returncode != 0:
        sys.exit(f"{words} on {gpu}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return [line for line in (done.stdout + done.stderr).splitlines() if "compiled: " in line]


with tempfile.TemporaryDirectory() as here:
    run(here, "9.0", "compile", "--device=cuda")
    cases = [
        ("9.0", "cuda", ["compiled: plan of "]),
        ("8.6", "cuda", ["no plan for 'cuda, emulated GPU, sm_86', only for 'cuda, emulated GPU, sm_90': run `trainer compile` with these options"]),
        ("8.6", "cpu", []),  # a plan for a GPU is none for a CPU
    ]
    for gpu, device, expected in cases:
        said = run(here, gpu, f"--device={device}", "--steps=2")
        assert len(said) == len(expected) and all(one in line for one, line in zip(expected, said)), f"{gpu}, {device}: {said}"
        print(f"{gpu}, {device}: {said}")

    with open(f"{here}/text.txt", "w", encoding="ascii") as file:
        file.write("some words. " * 200)
    subprocess.run([TRAINER, "prepare", "--text=text.txt", "--tokenizer=bytes", "--output=tokens"], cwd=here, check=True,
                   capture_output=True, timeout=60)
    for answers, why in [("wrong", "its numbers are not those of our kernels (they differ by "),
                         ("changing", "it gives other bits each time")]:
        done = subprocess.run([TRAINER, "compile", "--device=cuda", "--force", *GPT], cwd=here, capture_output=True, text=True,
                              timeout=100, check=True, env={**os.environ, "DP_CUDA_EMULATOR_ATTENTION": answers})
        said = [line for line in done.stdout.splitlines() if "attention" in line]
        expected = [f"{name} 4 2 16 16: ours: cuDNN's way is not taken: {why}"
                    for name in ("attention", "the gradient of attention")]
        assert len(said) == 2 and all(map(str.startswith, said, expected)), f"{answers}: {said}"
        print(said)
