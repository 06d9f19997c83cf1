#!/usr/bin/env python3
"""Compares the measured speed of one plan with predictions.

Usage: report_speed.py METRICS.jsonl TIMES.txt ROOFLINE.json PLAN.json

Compares tokens/s and step time (median of the steps after the third) with the planner's prediction and the roofline's
estimate. Then compares each kernel's time in a step with its lower bound: kernels by symbol, all products together.
Without TIMES, the table of kernels is empty.
"""
import collections
import json
import os
import re
import statistics
import sys

metrics, times, roofline, plan = sys.argv[1:]
with open(metrics, encoding="utf-8") as lines:
    steps = [entry for entry in map(json.loads, lines) if "loss" in entry]
with open(roofline, encoding="utf-8") as file:
    least = json.load(file)
with open(plan, encoding="utf-8") as file:
    predicted = json.load(file)["predicted"]
measured = statistics.median(entry["step_seconds"] for entry in steps[min(3, len(steps) - 1):])
tokens = statistics.median(entry["tokens_per_second"] for entry in steps[min(3, len(steps) - 1):])
print(f"{len(steps)} steps, loss {steps[0]['loss']:.4f} to {steps[-1]['loss']:.4f}, peak {steps[-1]['peak_bytes'] / 2**30:.2f} GiB")
print(f"step        {1e3 * measured:9.3f} ms   {tokens:12,.0f} tokens/s   measured (median of {len(steps[3:]) or 1})")
print(f"            {1e3 * least['step_seconds']:9.3f} ms   {least['tokens_per_second']:12,.0f} tokens/s   roofline")
seconds = next((predicted[key] for key in ("step_seconds", "seconds") if key in predicted), None)
if seconds:
    print(f"            {1e3 * seconds:9.3f} ms   planner's prediction, {100 * (seconds / measured - 1):+.1f} % of what was measured")


def symbol(name):
    """Returns the key of a row in both tables: the kernel, or "product" for any product."""
    word = name.split()[0]
    return "product" if word.startswith(("product", "matmul")) or re.match(r"\d+\s*x", name) else word


spent, ideal, work, launches = (collections.Counter() for _ in range(4))
with open(times if os.path.exists(times) else os.devnull, encoding="utf-8") as lines:
    for line in list(lines)[2:]:
        row = re.match(r"\s*(\d+)\s+([\d.]+)%\s+([\d.]+)\s+([\d.]+)\s+(?:([\d.]+)\s\s)?\s*(.*)", line)
        if row:
            spent[symbol(row[6])] += int(row[1]) * float(row[3])
            launches[symbol(row[6])] += int(row[1])
for row in least["rows"]:
    ideal[symbol(row["name"])] += 1e6 * row["seconds"] * row["launches"]
    work[symbol(row["name"])] += row["flops"] * row["launches"]
whole = sum(spent.values())
ratio = launches and whole / (1e6 * measured)
print(f"{'kernel':24} {'share':>6} {'launches':>9} {'us a step':>10} {'least us':>10} {'reached':>8} {'TF/s':>7}")
runs = max(1, round(ratio)) if ratio else 1
for name, micro in spent.most_common():
    reached = f"{100 * ideal[name] / (micro / runs):7.1f}%" if ideal[name] else "       -"
    print(f"{name:24} {100 * micro / whole:5.1f}% {launches[name] // runs:9} {micro / runs:10.1f} {ideal[name]:10.1f} {reached} {1e-6 * work[name] * runs / micro:7.1f}")
