#!/usr/bin/env python3
"""Checks a Promela model with Spin: no assertion fails, and one fails for each MUTANT_... macro that the model names.

Usage: check.py MODEL.pml FOLDER COMPILER. The checker is generated and compiled in FOLDER.
"""
import re
import subprocess
import sys
from pathlib import Path

model, folder, compiler = Path(sys.argv[1]).resolve(), Path(sys.argv[2]), sys.argv[3]


def errors(*macros):
    """Returns the number of errors that an exhaustive search finds, and what it prints."""
    work = folder / "-".join((model.stem,) + macros)
    work.mkdir(parents=True, exist_ok=True)
    subprocess.run(["spin", "-a", *(f"-D{macro}" for macro in macros), model], cwd=work, check=True)
    # A mutant fails soon, so its compilation takes the longer time. Partial order reduction does not know `provided`.
    optimized = "-O0" if macros else "-O1"
    subprocess.run([compiler, optimized, "-w", "-DSAFETY", "-DNOREDUCE", "-o", "pan", "pan.c"], cwd=work, check=True)
    # -E: a process that a crash has stopped is no error. Processes that wait for ever are found by assertions.
    printed = subprocess.run(["./pan", "-E", "-m100000"], cwd=work, check=True, capture_output=True, text=True).stdout
    if "search not completed" in printed and "errors: 0" in printed:
        sys.exit(f"{model.name}: the search was not exhaustive\n{printed}")
    return int(re.search(r"errors: (\d+)", printed)[1]), printed


count, printed = errors()
if count:
    sys.exit(f"{model.name}: an assertion fails\n{printed}")
mutants = sorted(set(re.findall(r"\bMUTANT_[A-Z_]+\b", model.read_text())) - {"MUTANT_"})
unseen = [mutant for mutant in mutants if not errors(mutant)[0]]
if unseen or not mutants:
    sys.exit(f"{model.name}: no assertion fails under {', '.join(unseen) or 'any mutant: it names none'}")
states = re.search(r"(\d+) states, stored", printed)[1]
print(f"{model.name}: {states} states, no error; {len(mutants)} mutants, each found")
