"""Compares the loads of experts in metrics files. Usage: expert_loads.py FILE STEP... [--equal OTHER] [--dropless]
                                                   [--report REPORT.html]

Fails unless exactly these steps of FILE have loads, all layers count the same choices, and tokens are dropped (or, with
--dropless, not). With --equal, OTHER must have the same loads in the steps that both have, and it must have some. With --report, the report of the run must have these
loads in its charts, and those of the last step in its table.
"""
import argparse
import json
import re

parser = argparse.ArgumentParser()
parser.add_argument("file")
parser.add_argument("steps", type=int, nargs="+")
parser.add_argument("--equal")
parser.add_argument("--dropless", action="store_true")
parser.add_argument("--report")
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
if arguments.report:
    text = open(arguments.report, encoding="utf-8").read()
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])
    sections = {section["title"]: section for section in data["sections"]}

    def points(title):
        return {step: value for step, value in sections[title]["series"][0]["points"]}

    for title, key, factor in (("Busiest expert of all layers", "max_over_mean", 1),
                               ("Dropped choices of experts", "dropped", 100)):
        assert sorted(points(title)) == arguments.steps, points(title)
        for step, value in points(title).items():
            assert abs(value - factor * loads[step][key]) < 1e-3 * factor, (title, step, value)
    last = loads[arguments.steps[-1]]["layers"]
    rows = sections["Experts by layer"]["rows"]
    assert len(rows) == len(last)
    for (name, busiest, high, idlest, low, _), layer in zip(rows, last):
        load = layer["load"]
        assert name == layer["layer"] and load[busiest] == max(load) and load[idlest] == min(load), (name, layer)
        assert abs(float(high) - max(load) * len(load)) < 0.006 and abs(float(low) - min(load) * len(load)) < 0.006
