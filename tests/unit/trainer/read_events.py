# SPDX-License-Identifier: Apache-2.0
"""Reads TensorBoard's event files as their format says, without our code or protobuf: tensorboard_test.cpp runs it.

  read_events.py FILE: an event a line in JSON; exit code 1 and a line on what is wrong where a byte is not as it should be
"""
import json
import struct
import sys


def crc32c(data):
    """Bit by bit."""
    rest = 0xFFFFFFFF
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = rest >> 1 ^ (0x82F63B78 if rest & 1 else 0)
    return rest ^ 0xFFFFFFFF


def masked(crc):
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    at = 0
    while at < len(data):
        header, check = data[at:at + 8], struct.unpack("<I", data[at + 8:at + 12])[0]
        if check != masked(crc32c(header)):
            sys.exit(f"checksum of the length at byte {at}")
        length = struct.unpack("<Q", header)[0]
        body = data[at + 12:at + 12 + length]
        if len(body) != length or struct.unpack("<I", data[at + 12 + length:at + 16 + length])[0] != masked(crc32c(body)):
            sys.exit(f"checksum of the record at byte {at}")
        yield body
        at += 16 + length


def fields(message):
    """(number, value) of protobuf's wire format: varints, and 32 and 64 bits or a length of raw bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(kind) or (varint() if kind == 2 else sys.exit(f"wire type {kind}"))
        yield key >> 3, message[at:at + size]
        at += size


def event_of(message):
    event = {"step": 0, "scalars": {}}
    for number, value in fields(message):
        if number == 1:
            event["wall_time"] = struct.unpack("<d", value)[0]
        elif number == 2:
            event["step"] = value
        elif number == 3:
            event["file_version"] = value.decode()
        elif number == 5:
            for _, scalar in fields(value):
                parts = dict(fields(scalar))
                # What is 0 is not on the wire.
                event["scalars"][parts[1].decode()] = struct.unpack("<f", parts[2])[0] if 2 in parts else 0.0
    return event


with open(sys.argv[1], "rb") as file:
    for record in records(file.read()):
        print(json.dumps(event_of(record)))
