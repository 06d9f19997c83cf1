#!/usr/bin/env python3
"""Compares the gradients of two runs, tensor by tensor. Usage: compare_tensors.py WANTED GOT [--relative 1e-4]

The files are those of `espalier run --dump-gradients`: f32 tensors named STEP/PARAMETER. A step has N elements. Its
tensor g' with n elements passes if |g - g'| <= relative |g| + 1e-2 relative |all of the step| sqrt(n / N). Prints the
largest differences. Exits with 1 if a tensor fails.
"""
import argparse
import array
import collections
import json
import math
import struct
import sys


def read(file):
    with open(file, "rb") as stream:
        data = stream.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    return {name: array.array("f", data[8 + length:][slice(*entry["data_offsets"])])
            for name, entry in header.items() if name != "__metadata__"}


parser = argparse.ArgumentParser()
parser.add_argument("files", nargs=2)
parser.add_argument("--relative", type=float, default=1e-4)
options = parser.parse_args()
wanted, got = map(read, options.files)
if wanted.keys() != got.keys():
    sys.exit(f"error: other tensors: {sorted(wanted.keys() ^ got.keys())[:5]}")
squares, elements = collections.Counter(), collections.Counter()
for name, values in wanted.items():
    squares[name.split("/")[0]] += sum(x * x for x in values)
    elements[name.split("/")[0]] += len(values)
failed, worst = [], 0.0
for name, values in wanted.items():
    step = name.split("/")[0]
    difference = math.sqrt(sum((x - y) ** 2 for x, y in zip(values, got[name])))
    norm = math.sqrt(sum(x * x for x in values))
    allowed = options.relative * (norm + 1e-2 * math.sqrt(squares[step] * len(values) / elements[step]))
    worst = max(worst, difference / allowed)
    if not difference <= allowed:
        failed.append(f"{name}: difference {difference:.3g}, norm {norm:.3g}, allowed {allowed:.3g}")
print(f"{len(wanted)} tensors, the largest difference is {worst:.3g} of what is allowed")
print("\n".join(failed[:20]))
sys.exit(1 if failed else 0)
