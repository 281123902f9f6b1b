# SPDX-License-Identifier: Apache-2.0
"""Data sets that other libraries wrote: --data-dir trains on NumPy's arrays as numpy.save() writes them, on lines of JSON as Python's json does, and
on Megatron-LM's files. Megatron-LM itself is not installed here: its two files are written by their published layout (MMIDIDX, version 1)."""
import json
import os
import random
import re
import struct

import numpy
import pytest
from outside_desk import TRAINER, Desk

GPT = "--model=gpt --num-layers=1 --num-attention-heads=2 --hidden-size=32 --seq-length=32 --batch-size=4 --vocab-size=257 --steps=30"
# Its steps take tens of milliseconds: beside those of a few, on a busy machine, all that is no operation is large.
WIDER = "--model=gpt --num-layers=2 --num-attention-heads=4 --hidden-size=128 --seq-length=128 --batch-size=8 --vocab-size=257 --steps=30"
TOKENS = numpy.random.default_rng(1).integers(0, 257, 20000)
LARGE = 50_000_000  # tokens: more than are held in memory


def write_llm_c(folder, tokens):
    header = numpy.zeros(256, numpy.int32)
    header[:3] = 20240520, 1, len(tokens)
    with open(f"{folder}/tokens.bin", "wb") as file:
        file.write(header.tobytes() + tokens.astype(numpy.uint16).tobytes())


def write_megatron(folder, tokens, kind=numpy.uint16, code=8):
    """In documents of 1 to 499 tokens."""
    lengths = []
    draw = random.Random(2)
    while sum(lengths) < len(tokens):
        lengths.append(min(draw.randrange(1, 500) * max(1, len(tokens) // 20000), len(tokens) - sum(lengths)))
    ends = numpy.cumsum(lengths)
    with open(f"{folder}/my_text_document.bin", "wb") as file:
        file.write(tokens.astype(kind).tobytes())
    with open(f"{folder}/my_text_document.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(lengths) + 1))
        file.write(numpy.array(lengths, numpy.int32).tobytes())
        file.write(((ends - lengths) * kind().itemsize).astype(numpy.int64).tobytes())
        file.write(numpy.arange(len(lengths) + 1, dtype=numpy.int64).tobytes())


def write_npy(folder, tokens):
    """In two files, of which the second begins where the first one ends."""
    half = len(tokens) // 2
    numpy.save(f"{folder}/part-0.npy", tokens[:half].astype(numpy.uint16))
    numpy.save(f"{folder}/part-1.npy", tokens[half:].astype(numpy.int64).reshape(-1, 100))


def write_old_npy(folder, tokens):
    with open(f"{folder}/tokens.npy", "wb") as file:
        numpy.lib.format.write_array(file, tokens.astype(numpy.int32), version=(2, 0))


def write_megatron_int32(folder, tokens):
    write_megatron(folder, tokens, numpy.int32, 4)


KINDS = [write_llm_c, write_megatron, write_megatron_int32, write_npy, write_old_npy]


@pytest.fixture(scope="module")
def desk(cluster):
    return Desk(cluster)


def test_the_same_tokens_train_the_same_in_every_format(desk):
    hashes = {}
    for write in KINDS:
        write(desk.folder(write.__name__), TOKENS)
        hashes[write.__name__] = desk.summary(f"{TRAINER} {GPT} --no-cache --data-dir={write.__name__}")["parameters_hash"]
    assert len(set(hashes.values())) == 1, hashes
    by_prefix = desk.summary(f"{TRAINER} {GPT} --no-cache --data-dir=write_megatron/my_text_document")
    assert by_prefix["parameters_hash"] in hashes.values()


@pytest.mark.parametrize("write", KINDS, ids=lambda write: write.__name__)
def test_reading_hides_behind_compute(desk, write):
    """Of a step, what is no operation of the device takes next to nothing, although the kernel has nothing of the files in memory."""
    folder = desk.folder("large")
    for name in os.listdir(folder):
        os.remove(f"{folder}/{name}")
    write(folder, numpy.tile(TOKENS, LARGE // len(TOKENS)))
    for name in os.listdir(folder):
        with open(f"{folder}/{name}", "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    done = desk.run(f"{TRAINER} {WIDER} --no-cache --data-dir=large --profile=profile.txt")
    between = re.search(r"between operations ([0-9.]+) %", done.stdout)
    assert between and float(between.group(1)) < 5, done.stdout
    assert re.search(r"memory per rank: .* data [0-9]\.[0-9] MiB\)", done.stdout), "the set was held"


def test_ranks_of_any_number_take_the_same_samples_of_a_mix(desk):
    for write, tokens in ((write_npy, TOKENS), (write_megatron, TOKENS[::-1])):
        write(desk.folder(f"mix_{write.__name__}"), tokens)
    mix = f"{TRAINER} {GPT.replace('--batch-size=4', '')} --no-cache --deterministic --data=mix_write_npy:0.7,mix_write_megatron:0.3"
    alone = desk.summary(f"{mix} --batch-size=1 --accumulate=4")
    four = desk.summary(f"srun -N2 --ntasks-per-node=2 --dp-world=auto {mix} --batch-size=1")
    assert four["world_size"] == 4 and four["parameters_hash"] == alone["parameters_hash"]
    assert desk.summary(f"{mix} --batch-size=1 --accumulate=4 --seed=2")["parameters_hash"] != alone["parameters_hash"]


def test_lines_of_json_are_tokenized_once_and_bad_ones_are_refused_or_skipped(desk):
    folder = desk.folder("pile")
    with open(f"{folder}/train.jsonl", "w", encoding="utf-8") as file:
        for number in range(200):
            file.write(json.dumps({"id": number, "text": f"{number} läßt {number + 1} folgen.\n" * 3}) + "\n")
        file.write(json.dumps({"id": 200}) + "\n")
    with open(f"{folder}/validation.jsonl", "w", encoding="utf-8") as file:
        file.write(json.dumps({"text": "7 läßt 8 folgen.\n" * 30}, ensure_ascii=False) + "\n")
    train = f"srun -N2 --ntasks-per-node=2 --dp-world=auto {TRAINER} {GPT.replace('--vocab-size=257', '')} --data-dir=pile --cache-dir=cache"
    refused = desk.run(train, check=False)
    line = 'pile/train.jsonl:201: it has no "text"; correct it, or give --bad-samples=skip to leave out 1 of 202 documents'
    lines = [one for one in refused.stderr.splitlines() if one.startswith("trainer: ")]
    assert refused.returncode == 2 and len(lines) == 1 and line in lines[0], refused.stderr
    first = desk.run(f"{train} --bad-samples=skip")
    note = re.search(r'(?m)^pile: 201 documents, (\d+) tokens to train and (\d+) to test with \(tokenizer bytes, vocabulary 257\); '
                     r'1 skipped, the first: pile/train.jsonl:201: it has no "text"; kept in (cache/text-[0-9a-f]+)$', first.stdout)
    assert note, first.stdout
    before = os.stat(desk.cluster.host_path(f"/home/alice/outside/{note.group(3)}/train_000000.bin")).st_mtime_ns
    again = desk.run(f"{train} --bad-samples=skip")
    assert note.group(0) in again.stdout
    assert os.stat(desk.cluster.host_path(f"/home/alice/outside/{note.group(3)}/train_000000.bin")).st_mtime_ns == before
    assert json.loads(again.stdout.splitlines()[-1])["parameters_hash"] == json.loads(first.stdout.splitlines()[-1])["parameters_hash"]
