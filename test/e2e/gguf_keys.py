#!/usr/bin/env python3
"""Copies a GGUF file and sets one key. Usage: gguf_keys.py FROM TO KEY=VALUE, with a whole number or a text as the value."""
import pathlib
import struct
import sys

BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def after_value(data, at, kind):
    if kind == 8:
        return at + 8 + struct.unpack_from("<Q", data, at)[0]
    if kind != 9:
        return at + BYTES[kind]
    inner, count = struct.unpack_from("<IQ", data, at)
    at += 12
    for _ in range(count):
        at = after_value(data, at, inner)
    return at


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def main():
    data, (wanted, _, value) = pathlib.Path(sys.argv[1]).read_bytes(), sys.argv[3].partition("=")
    version, tensors, keys = struct.unpack_from("<IQQ", data, 4)
    kept, at = [], 24
    for _ in range(keys):
        begin, at = at, after_value(data, at, 8)
        name = data[begin + 8:at].decode()
        (kind,) = struct.unpack_from("<I", data, at)
        at = after_value(data, at + 4, kind)
        if name != wanted:
            kept.append(data[begin:at])
    kept.append(text(wanted) + (struct.pack("<II", 4, int(value)) if value.isdigit() else struct.pack("<I", 8) + text(value)))
    infos = at
    for _ in range(tensors):
        at = after_value(data, at, 8)
        (axes,) = struct.unpack_from("<I", data, at)
        at += 4 + 8 * axes + 12
    head = b"GGUF" + struct.pack("<IQQ", version, tensors, len(kept)) + b"".join(kept) + data[infos:at]
    pathlib.Path(sys.argv[2]).write_bytes(head + bytes(-len(head) % 32) + data[(at + 31) // 32 * 32:])


main()
