# SPDX-License-Identifier: Apache-2.0
"""What the compiler makes of our CUDA kernels, kept so that nothing slides back where no GPU measures it: registers of a thread, bytes that it
spills and bytes of shared memory for some kinds of GPUs, and how many instructions and accesses of global memory its PTX has.

usage: cuda_kernels.py MODULE TABLE PTXAS [--write]    MODULE has PTX for sm_80; --write: what it is now is how it should be

Exit code 77: nothing to compare, and why."""
import collections
import ctypes
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile

from cuda_architectures import MAGIC, PTX

GPUS = (80, 90, 100)
COLUMNS = [*(f"registers {gpu}" for gpu in GPUS), "spilled", "shared", "instructions", "wide", "narrow"]
WORSE_IF_LESS = "wide"
SKIPPED = 77
TITLE = "of {}: registers of a thread for sm_80, sm_90 and sm_100, bytes that it spills, static shared memory of a block; PTX: " \
        "instructions, accesses of global memory of 16 bytes, and of fewer"


def decompressed(data):
    """A frame of Zstandard, which dpkg's library reads."""
    zstd = ctypes.CDLL("libzstd.so.1")
    zstd.ZSTD_getFrameContentSize.restype = ctypes.c_ulonglong
    zstd.ZSTD_findFrameCompressedSize.restype = zstd.ZSTD_decompress.restype = ctypes.c_size_t
    zstd.ZSTD_findFrameCompressedSize.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    zstd.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    size = zstd.ZSTD_getFrameContentSize(data, ctypes.c_size_t(len(data)))
    text = ctypes.create_string_buffer(size)
    if zstd.ZSTD_decompress(text, size, data, zstd.ZSTD_findFrameCompressedSize(data, len(data))) != size:
        sys.exit("the module's PTX is not compressed as this test knows it")
    return text.raw.rstrip(b"\0").decode()


def ptx_of(binary):
    """→ the PTX of each of its files, for the oldest GPUs"""
    at = binary.find(MAGIC)
    while at >= 0:
        _, _, header, size = struct.unpack_from("<IHHQ", binary, at)
        at, end = at + header, at + header + size
        while at < end:
            kind, _, header, payload = struct.unpack_from("<HHIQ", binary, at)
            version, = struct.unpack_from("<I", binary, at + 28)
            if kind == PTX and version == GPUS[0]:
                yield decompressed(binary[at + header:at + header + payload])
            at += header + payload
        at = binary.find(MAGIC, end)


def short(names):
    """{mangled: name without namespaces and parameters}"""
    plain = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return {name: re.sub(r"(\w+|\(anonymous namespace\)|<unnamed>)::", "", one).replace("__nv_bfloat16", "bf16")
            for name, one in zip(names, plain.splitlines())}


def resources(ptx, gpu, ptxas, folder):
    """→ {kernel: registers, bytes spilled, bytes of shared memory}"""
    source = os.path.join(folder, "kernels.ptx")
    with open(source, "w", encoding="utf-8") as file:
        file.write(ptx)
    command = [ptxas, "-v", f"-arch=sm_{gpu}", source, "-o", os.path.join(folder, "kernels.cubin")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    found = {}
    for name, of in re.findall(r"Compiling entry function '(\S+)'(.*?)(?=Compiling entry function|\Z)", said, re.S):
        registers, stores, loads, shared = (int((re.search(rf"{before}(\d+) {after}", of) or [0, 0])[1]) for before, after in (
            ("Used ", "registers"), ("", "bytes spill stores"), ("", "bytes spill loads"), ("", "bytes smem")))
        found[name] = (registers, stores + loads, shared)
    return found


def measure(module, ptxas):
    """→ {kernel: {column: number}}"""
    with open(module, "rb") as file:
        texts = list(ptx_of(file.read()))
    rows = collections.defaultdict(dict)
    with tempfile.TemporaryDirectory() as folder:
        for text in texts:
            bodies = dict(re.findall(r"\.entry (\w+)\(.*?\n\{(.*?)\n\}", text, re.S))
            names = short(list(bodies))
            for name, body in bodies.items():
                accesses = re.findall(r"\b(?:ld|st)\.global(\S*)", body)
                wide = sum(bool(re.search(r"v4\.\w32|v2\.\w64", one)) for one in accesses)
                rows[names[name]] |= {"instructions": len(re.findall(r";\n", body)), "wide": wide, "narrow": len(accesses) - wide,
                                      "spilled": 0, "shared": 0}
            for gpu in GPUS:
                for name, (registers, spilled, shared) in resources(text, gpu, ptxas, folder).items():
                    row = rows[names[name]]
                    row |= {f"registers {gpu}": registers, "spilled": max(row["spilled"], spilled), "shared": max(row["shared"], shared)}
    return dict(rows)


def version_of(ptxas):
    said = subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=True).stdout
    return "CUDA " + re.search(r"release \S+, V(\S+)", said)[1]


def written(table, version):
    lines = [TITLE.format(version), f"{'kernel':<58}" + "".join(f"{column:>14}" for column in COLUMNS)]
    for kernel, row in sorted(table.items()):
        lines.append(f"{kernel:<58}" + "".join(f"{row[column]:>14}" for column in COLUMNS))
    return "\n".join(lines) + "\n"


def read(text):
    rows = (re.split(r"\s{2,}", line) for line in text.splitlines()[2:])
    return {row[0]: dict(zip(COLUMNS, map(int, row[1:]))) for row in rows}


def compare(kept, now):
    """→ what is worse, a line each"""
    worse = [f"{kernel}: not in the table" for kernel in now.keys() - kept.keys()]
    worse += [f"{kernel}: gone" for kernel in kept.keys() - now.keys()]
    for kernel in kept.keys() & now.keys():
        for column in COLUMNS:
            before, after = kept[kernel][column], now[kernel][column]
            if after < before if column == WORSE_IF_LESS else after > before:
                worse.append(f"{kernel}: {column} {before}, now {after}")
    return sorted(worse)


def main(module, table, ptxas, *options):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # leaves no folder
    version, writes, text = version_of(ptxas), options == ("--write",), ""
    if not writes:
        with open(table, encoding="utf-8") as file:
            text = file.read()
        if text.splitlines()[0] != TITLE.format(version):
            print(f"skipped: the table is {text.split(':')[0]}, and this is {version}")
            return SKIPPED
    now = measure(module, ptxas)
    if not now:
        print(f"skipped: {module} has no PTX for sm_{GPUS[0]}: it was built for other GPUs")
        return SKIPPED
    if writes:
        with open(table, "w", encoding="utf-8") as file:
            file.write(written(now, version))
        return 0
    worse = compare(read(text), now)
    print(*worse, f"{len(now)} kernels", sep="\n")
    return "some are worse than in the table; where that is meant, write it anew (--write)" if worse else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
