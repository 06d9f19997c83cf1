#!/usr/bin/env python3
"""Checks the metrics of a run in float16 whose loss scale was too high at its beginning. Usage: scale_falls.py METRICS"""
import json
import sys

steps = [line for line in map(json.loads, open(sys.argv[1], encoding="utf-8")) if "step" in line]
skipped = next(i for i, step in enumerate(steps) if step["applied"])
scales = [step["loss_scale"] for step in steps]
assert scales[:skipped] == [2.0 ** (39 - i) for i in range(skipped)], scales
rates = [step["lr"] for step in steps]
assert rates[:skipped + 1] == [rates[0]] * (skipped + 1) and rates[skipped + 1] > rates[0], rates
print(f"{skipped} steps skipped before the first that is applied, all of the first rate")
applied = [step["loss"] for step in steps if step["applied"]]
assert applied[-1] < applied[0] - 0.2, applied
print("the loss falls")
