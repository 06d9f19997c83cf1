"""Compares the loads of experts in metrics files. Usage: expert_loads.py FILE STEP... [--equal OTHER] [--dropless]

Fails unless exactly these steps of FILE have loads, all layers count the same choices, and tokens are dropped (or, with
--dropless, not). With --equal, OTHER must have the same loads in the steps that both have, and it must have some.
"""
import argparse
import json

parser = argparse.ArgumentParser()
parser.add_argument("file")
parser.add_argument("steps", type=int, nargs="+")
parser.add_argument("--equal")
parser.add_argument("--dropless", action="store_true")
arguments = parser.parse_args()


def loads_of(file):
    lines = [json.loads(line) for line in open(file)]
    return {line["step"]: line["experts"] for line in lines if "experts" in line}


loads = loads_of(arguments.file)
assert sorted(loads) == arguments.steps, sorted(loads)
for step, found in loads.items():
    assert len({layer["choices"] for layer in found["layers"]}) == 1, found
    assert all(abs(sum(layer["load"]) - 1) < 1e-9 for layer in found["layers"]), found
    assert (found["dropped"] == 0) == arguments.dropless, found
    assert found["max_over_mean"] >= 1, found
if arguments.equal:
    other = loads_of(arguments.equal)
    both = sorted(set(other) & set(loads))
    assert both
    for step in both:
        assert other[step] == loads[step], (step, other[step], loads[step])
