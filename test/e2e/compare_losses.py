#!/usr/bin/env python3
"""Compares two runs of the same model. Usage: compare_losses.py A.jsonl B.jsonl [--names A B] [--limit 1e-5]
[--first STEPS] [--show STEPS] [--exact] [--from STEP]

Prints every SHOWth loss and the largest relative difference. Exits with 1 if, in the first STEPS steps, a loss differs
by more than the limit or a gradient norm by more than ten times the limit. With --exact, exits with 1 if loss or
gradient norm of a common step (from STEP on) differ in any bit.
"""
import argparse
import json
import math
import sys


def read(file):
    with open(file, encoding="utf-8") as lines:
        return {entry["step"]: entry for entry in map(json.loads, lines) if "loss" in entry}


def relative(a, b):
    return abs(a - b) / abs(b) if math.isfinite(a) and math.isfinite(b) and b else math.inf


def differs_in_bits(a, b):
    # JSON numbers are written so that they read back as the same double.
    return a["loss"] != b["loss"] or a["grad_norm"] != b["grad_norm"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs=2)
    parser.add_argument("--names", nargs=2, default=["a", "b"])
    parser.add_argument("--limit", type=float, default=1e-5)
    parser.add_argument("--first", type=int, default=10)
    parser.add_argument("--from", dest="begin", type=int, default=1)
    parser.add_argument("--show", type=int, default=1)
    parser.add_argument("--exact", action="store_true")
    options = parser.parse_args()

    left, right = map(read, options.files)
    steps = sorted(step for step in left.keys() & right.keys() if step >= options.begin)
    if not steps:
        sys.exit("error: the runs have no step in common")
    print(f"  step {options.names[0]:>20} {options.names[1]:>20}   relative difference")
    largest, largest_early, largest_norm, different = 0.0, 0.0, 0.0, []
    for step in steps:
        a, b = left[step]["loss"], right[step]["loss"]
        difference = relative(a, b)
        largest = max(largest, difference)
        if step <= options.first:
            largest_early = max(largest_early, difference)
            largest_norm = max(largest_norm, relative(left[step]["grad_norm"], right[step]["grad_norm"]))
        if differs_in_bits(left[step], right[step]):
            different.append(step)
        if step == steps[0] or step % options.show == 0 or step == steps[-1]:
            print(f"  {step:>4} {a:>20.6f} {b:>20.6f}   {difference:.1e}")

    if options.exact:
        print(f"{len(steps) - len(different)} of {len(steps)} steps have the same bits")
        return 1 if different else 0
    print(f"largest relative difference: {largest_early:.1e} in the first {options.first} steps "
          f"(allowed: {options.limit:.0e}), {largest:.1e} in all {len(steps)}; "
          f"of the gradient norm: {largest_norm:.1e}")
    return 1 if largest_early > options.limit or largest_norm > 10 * options.limit else 0


sys.exit(main())
