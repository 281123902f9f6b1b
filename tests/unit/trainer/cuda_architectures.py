# SPDX-License-Identifier: Apache-2.0
"""cuda_architectures.py MODULE ARCHITECTURE...: whether each of its CUDA files was compiled for these, as `cuobjdump --list-elf
--list-ptx` would say it; no distribution has that. The format is NVIDIA's own and not documented; ZLUDA's sources describe it."""
import struct
import sys

MAGIC = struct.pack("<I", 0xBA55ED50)
PTX, ELF = 1, 2


def architectures(binary):
    """→ of each fat binary in it: {"80-virtual", "90-real", ...}"""
    at = binary.find(MAGIC)
    while at >= 0:
        _, _, header, size = struct.unpack_from("<IHHQ", binary, at)
        at, end, found = at + header, at + header + size, set()
        while at < end:
            kind, _, header, payload = struct.unpack_from("<HHIQ", binary, at)
            version, = struct.unpack_from("<I", binary, at + 28)
            found.add(f"{version}-{'virtual' if kind == PTX else 'real'}")
            at += header + payload
        yield found
        at = binary.find(MAGIC, end)


def main(module, *names):
    # "90" is both.
    wanted = {full for name in names for full in ([name] if "-" in name else [f"{name}-real", f"{name}-virtual"])}
    with open(module, "rb") as file:
        found = [each for each in architectures(file.read()) if each]
    print(f"{len(found)} CUDA files: {sorted(set().union(*found))}")
    return 0 if found and all(each == wanted for each in found) else f"not {sorted(wanted)} in each"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
