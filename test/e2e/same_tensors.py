#!/usr/bin/env python3
"""Compares two safetensors files bit by bit. Usage: same_tensors.py WHOLE PART

Exits with 1 if a tensor of PART is missing in WHOLE or has other bytes.
"""
import json
import struct
import sys


def read(file):
    with open(file, "rb") as stream:
        data = stream.read()
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8:8 + length]), data[8 + length:]
    return {name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
            for name, entry in header.items() if name != "__metadata__"}


whole, part = map(read, sys.argv[1:3])
different = [name for name, tensor in part.items() if whole.get(name) != tensor]
print(f"{len(part) - len(different)} tensors in both files have the same bits")
for name in different[:10]:
    print(f"different or missing: {name}")
sys.exit(1 if different or not part else 0)
