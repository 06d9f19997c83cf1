#!/usr/bin/env python3
"""Fits the efficiency factors of configs/systems on tables of published runs.

Usage: tools/fit_planner.py [--leave-out TABLE]... [--output FOLDER] [--espalier PROGRAM] TABLE.csv ...
       tools/fit_planner.py --pairs | --intervals [--check] [--espalier PROGRAM] TABLE.csv ...

Each system has at most two factors: `matmul`, and `memory` or `attention`. A factor is fitted on the rows of that
system, except those of the tables that are left out, and stays 1 if these rows come from fewer than two sites. The sum
of absolute logarithms of predicted over measured times is minimized. The derivatives of a predicted time are differences
between two runs of `espalier bench plans`. Prints the error of each table before and after, and writes the system files
with the fitted constants and their sources to FOLDER.

`--pairs` fits nothing. It prints the mean error of the ratio of two predicted times, over the pairs of rows of dense
models with the same table, publisher, system, machine and format: for pairs with the same tp, pp, cp and parameter
sharding (`comparison_error`), and for all others (`family_error`).

`--intervals` fits nothing. It writes configs/shares/intervals.yaml: bounds of 80 % intervals of predicted times by content.
`--check` compares it instead, and `time_error` of configs/systems: the bound of the dense rows of the software, and that of all
dense rows if they come from one publisher and it is larger. Exits with 1 if a file has other values, or if the intervals that
the rows of all other publishers give hold fewer than 75 % or more than 90 % of the rows of left-out publishers.
"""
import argparse
import csv
import functools
import itertools
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

least, most = 0.4, 1.6  # of a factor
inside, unknown, few = 0.8, 0.3, 3  # share of an interval; the least bound of software without rows; publishers of a class
contents = ["experts", "experts_over_hosts", "context_over_hosts", "hybrid_shards", "more_devices", "formats"]
header = """# Bounds of 80 % intervals of predicted steps, less one, by what a plan contains beside a dense model on measured numbers of
# devices. Written by `tools/fit_planner.py --intervals`. "left out": rows of a publisher inside the interval that the rows of
# all other publishers give.
"""
step = 1.05
source = pathlib.Path(__file__).resolve().parent.parent / "configs"
variants = {"nemo": "megatron_core", "torchtitan_compiled": "torchtitan", "megatron_deepspeed_fp16": "megatron_deepspeed"}


def factors_of(text):
    """Returns the factors that the text of a system file names."""
    line = re.search(r"^efficiency: \{(.*?)\}", text, re.M)
    return {key: float(value) for key, value in re.findall(r"(\w+): ([\d.]+)", line.group(1))} if line else {}


def with_factors(text, factors, comment):
    inside = ", ".join(f"{key}: {value:.3g}" for key, value in factors.items())
    line = f"efficiency: {{{inside}}}  # {comment}"
    if re.search(r"^efficiency:", text, re.M):
        return re.sub(r"^efficiency:.*$", lambda _: line, text, flags=re.M)
    return text + line + "\n"


@functools.cache
def cells_of(table):
    with open(table, encoding="utf-8") as file:
        return list(csv.DictReader(file))


def publisher_of(table, line):
    return cells_of(table)[line - 2]["source"].split("@")[0].split()[0]


def site_of(table, line):
    """Returns what tells sites apart: the publisher and the gpu column of a row."""
    return publisher_of(table, line), cells_of(table)[line - 2]["gpu"]


def print_pairs(rows):
    """Prints the errors of ratios by system and machine."""
    groups = {}
    for (table, line), row in rows.items():
        pin = dict(part.split("=") for part in re.search(r"--pin (\S+)", row["command"]).group(1).split(","))
        if int(pin["ep"]) > 1 or re.search("qwen3|mixtral", row["command"]):
            continue  # experts
        axes = pin["tp"], pin["pp"], pin["cp"], pin["zero"] == "3"
        key = (row["system"], row["cluster"], table, publisher_of(table, line), cells_of(table)[line - 2]["precision"])
        groups.setdefault(key, []).append((axes, error(row)))
    pairs = {}
    for (system, cluster, *_), found in groups.items():
        for (one, first), (other, second) in itertools.combinations(found, 2):
            pairs.setdefault((system, cluster, one == other), []).append(math.exp(abs(first - second)) - 1)
    for (system, cluster, is_same), errors in sorted(pairs.items()):
        print(f"{system} on {cluster}, {'same' if is_same else 'other'} axes: {100 * sum(errors) / len(errors):.1f} % over "
              f"{len(errors)} pairs")


def values_of(system, key):
    """Returns the values by class of a key of a file of configs/systems."""
    line = re.search(rf"^{key}: \{{(.*?)\}}", (source / "systems" / f"{system}.yaml").read_text(), re.M)
    return {name: float(value) for name, value in re.findall(r"(\w+): ([\d.]+)", line.group(1))}


def device_of(row):
    text = (source / "clusters" / f"{row['cluster'].split(':')[0]}.yaml").read_text()
    return re.search(r"^device: (\w+)", text, re.M).group(1)


def publishers_of(rows):
    return {row["publisher"] for row in rows}


def interval_of(rows):
    """Returns the bound of an 80 % interval of predicted over measured times, less one: the quantile of the absolute
    logarithms, the larger one of two. In the first each row counts alike, in the second each publisher."""
    if not rows:
        return 0.0
    count = {name: sum(row["publisher"] == name for row in rows) for name in publishers_of(rows)}
    bounds = []
    for weight_of in (lambda row: 1, lambda row: 1 / count[row["publisher"]]):
        weights = sorted((abs(error(row)), weight_of(row)) for row in rows)
        left = inside * sum(weight for _, weight in weights) - 1e-9
        for bound, weight in weights:
            left -= weight
            if left <= 0:
                break
        bounds.append(bound)
    return math.exp(max(bounds)) - 1


class Intervals:
    """The intervals that a set of rows gives: by software for dense models, and by content."""

    def __init__(self, rows):
        self.rows = rows
        self.devices = max(row["devices"] for row in rows)
        dense = [row for row in rows if not row["contents"]]
        self.dense = interval_of(dense)
        self.software = {}
        for system in sorted({row["software"] for row in rows}):
            own = [row for row in dense if row["software"] == system]
            self.software[system] = interval_of(own) if len(publishers_of(own)) > 1 else max(self.dense, interval_of(own))
        self.of_content = {content: [row for row in rows if content in row["contents"]] for content in contents}
        self.of_content["formats"] = [row for row in rows if row["contents"] == ["formats"]]  # the others are wider anyway
        self.of_content["more_devices"] = self.beyond_others()
        self.content = {content: interval_of(own) for content, own in self.of_content.items()}
        self.content["experts_over_hosts"] = max(self.content["experts"], self.content["experts_over_hosts"])
        for content, own in self.of_content.items():  # classes with few publishers are at least as wide as the widest one
            if len(publishers_of(own)) < few:
                self.content[content] = max(self.content.values())

    def beyond_others(self):
        """Returns the rows on more devices than all rows of the same software from other publishers."""
        most = {}
        for row in self.rows:
            key = row["software"], row["publisher"]
            most[key] = max(most.get(key, 0), row["devices"])
        others = lambda row: [n for (system, name), n in most.items() if system == row["software"] != name
                              and name != row["publisher"]]
        return [row for row in self.rows if others(row) and row["devices"] > max(others(row))]

    def error_of(self, row):
        found = [self.software.get(row["software"], max(unknown, self.dense))]
        found += [self.content[content] for content in row["contents"]]
        if row["devices"] > self.devices:
            found.append(self.content["more_devices"])
        return max(found)


def rounded(bound):
    return math.ceil(100 * bound - 1e-9) / 100


def write_intervals(rows, check):
    """Writes configs/shares/intervals.yaml, or with `check` compares it. Prints the share of rows of left-out publishers
    that lie inside. Returns whether all files have the values of the rows."""
    rows = [{**row, "publisher": publisher_of(*key), "software": variants.get(row["system"], row["system"]),
             "devices": math.prod(map(int, re.search(r"--cluster \S+?:(\d+)x(\d+)", row["command"]).groups()))}
            for key, row in rows.items()]
    table, held = Intervals(rows), []
    for name in sorted(publishers_of(rows)):
        others = Intervals([row for row in rows if row["publisher"] != name])
        held += [(row, abs(error(row)) <= math.log1p(others.error_of(row)) + 1e-9)
                 for row in rows if row["publisher"] == name]

    def line(key, bound, own, selected):
        found = [is_inside for row, is_inside in held if selected(row)]
        if not own:
            return f"{key}: {rounded(bound):g}  # no rows: as the widest one\n"
        return (f"{key}: {rounded(bound):g}  # {len(own)} rows of {len(publishers_of(own))} publishers; left out: "
                f"{sum(found)} of {len(found)} inside\n")

    text = header + line("dense", table.dense, [row for row in rows if not row["contents"]], lambda row: not row["contents"])
    for content in contents:
        own = table.of_content[content]
        key = {(row["publisher"], row["command"], row["line"]) for row in own}
        text += line(content, table.content[content], own,
                     lambda row, key=key: (row["publisher"], row["command"], row["line"]) in key)
    text += f"most_devices: {table.devices}  # of a row\n"
    share = sum(is_inside for _, is_inside in held) / len(held)
    print(f"of {len(held)} rows of left-out publishers, {100 * share:.0f} % are inside")
    is_right = 0.75 <= share <= 0.9
    file = source / "shares" / "intervals.yaml"
    if not check:
        file.write_text(text)
    elif file.read_text() != text:
        print(f"{file.name} is not\n{text}")
        is_right = False
    for system, bound in table.software.items():
        for name in [system, *(name for name, base in variants.items() if base == system)]:
            if values_of(name, "time_error") != {"other": rounded(bound)}:
                print(f"configs/systems/{name}.yaml has {values_of(name, 'time_error')}, the rows give {rounded(bound):g}")
                is_right = False
    return is_right


class Bench:
    def __init__(self, espalier, tables):
        self.espalier, self.tables = os.path.abspath(espalier), [os.path.abspath(table) for table in tables]

    def rows(self, systems):
        """Returns the priced rows by (table, line), with these factors by system."""
        with tempfile.TemporaryDirectory() as folder:
            configs = pathlib.Path(folder) / "configs"
            shutil.copytree(source, configs)
            for name, factors in systems.items():
                file = configs / "systems" / f"{name}.yaml"
                file.write_text(with_factors(file.read_text(), factors, "tried"))
            run = subprocess.run([self.espalier, "bench", "plans", "--json", "--rows", *self.tables], cwd=folder,
                                 env={**os.environ, "ESPALIER_CONFIGS": str(configs)}, capture_output=True, text=True)
        if run.returncode:
            raise SystemExit(run.stderr)
        return {(table["table"], row["line"]): row for table in json.loads(run.stdout) for row in table["priced"]
                if row["measured_seconds"] > 0 and not row["is_range"]}


def error(row, factor=1.0):
    return math.log(factor * row["predicted_seconds"] / row["measured_seconds"])


def fit(base, slopes, keys, rows):
    """Returns the changes of the logarithms of the factors `keys` with the least sum of absolute errors: coordinate
    descent over the linear model of log times."""
    change = {key: 0.0 for key in keys}
    grid = [i / 200 for i in range(-100, 101)]
    for _ in range(6):
        for key in keys:
            rest = {row: error(base[row]) + sum(slopes[other][row] * change[other] for other in keys if other != key)
                    for row in rows}
            change[key] = min(grid, key=lambda value: sum(abs(rest[row] + slopes[key][row] * value) for row in rows) +
                              1e-3 * len(rows) * abs(value))
    return change


def mean_errors(rows):
    tables = {}
    for (table, _), row in rows.items():
        tables.setdefault(table, []).append(row["predicted_seconds"] / row["measured_seconds"] - 1)
    return {table: (sum(map(abs, errors)) / len(errors), sum(errors) / len(errors), len(errors))
            for table, errors in tables.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--pairs", action="store_true", help="print the errors of ratios and fit nothing")
    parser.add_argument("--intervals", action="store_true", help="write configs/shares/intervals.yaml and fit nothing")
    parser.add_argument("--check", action="store_true", help="with --intervals: compare the file and time_error")
    parser.add_argument("--leave-out", action="append", default=[], help="name of a table that nothing is fitted on")
    parser.add_argument("--output", help="folder for the system files")
    parser.add_argument("--espalier", default="build/bin/espalier")
    asked = parser.parse_args()
    unknown = [name for name in asked.leave_out if name not in map(os.path.basename, asked.tables)]
    if unknown:
        parser.error(f"--leave-out {unknown[0]}: not one of the tables")
    bench = Bench(asked.espalier, asked.tables)
    if asked.pairs:
        print_pairs(bench.rows({}))
        return
    if asked.intervals:
        raise SystemExit(0 if write_intervals(bench.rows({}), asked.check) else 1)
    files = {file.stem: file.read_text() for file in sorted((source / "systems").glob("*.yaml"))}
    start = {name: factors_of(text) for name, text in files.items() if factors_of(text)}
    systems = {name: {key: 1.0 for key in factors} for name, factors in start.items()}
    base, notes = bench.rows(systems), {}
    before = base
    for _ in range(2):
        slopes = {}
        for key in sorted({key for factors in systems.values() for key in factors}):
            tried = {name: {other: value * (step if other == key else 1) for other, value in factors.items()}
                     for name, factors in systems.items()}
            moved = bench.rows(tried)
            slopes[key] = {row: math.log(moved[row]["predicted_seconds"] / base[row]["predicted_seconds"]) /
                           math.log(step) for row in base}
        for name, factors in systems.items():
            rows = [row for row in base if base[row]["system"] == name and
                    os.path.basename(row[0]) not in asked.leave_out]
            sites = {site_of(*row) for row in rows}
            if len(sites) < 2:
                notes[name] = f"not fitted: rows of {len(sites)} sites"
                continue
            change = fit(base, slopes, list(factors), rows)
            systems[name] = {key: min(most, max(least, value * math.exp(change[key]))) for key, value in factors.items()}
            tables = sorted({os.path.basename(row[0]) for row in rows})
            notes[name] = f"tools/fit_planner.py: {len(rows)} rows of {len(sites)} sites in {', '.join(tables)}"
        base = bench.rows(systems)
    for table, (mean, bias, count) in mean_errors(base).items():
        first = mean_errors(before)[table][0]
        left = " (left out)" if os.path.basename(table) in asked.leave_out else ""
        print(f"{os.path.basename(table)}{left}: {100 * first:.1f} % with factors of 1, {100 * mean:.1f} % fitted, "
              f"bias {100 * bias:+.1f} %, {count} rows")
    for name, factors in systems.items():
        print(f"{name}: {factors}  # {notes[name]}")
        if asked.output:
            pathlib.Path(asked.output).mkdir(parents=True, exist_ok=True)
            (pathlib.Path(asked.output) / f"{name}.yaml").write_text(with_factors(files[name], factors, notes[name]))


if __name__ == "__main__":
    main()
