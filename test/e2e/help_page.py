#!/usr/bin/env python3
"""Checks the help of every verb. Usage: help_page.py ESPALIER

At widths of 60, 80 and 100 columns no line is wider, except for a word that is wider itself. Every verb has an example that
begins with the verb, and whose options the help lists. A verb with many options lists them in groups. `help VERB` is
`VERB --help`.
"""
import os
import re
import subprocess
import sys

ESPALIER = sys.argv[1]


def help_of(verb, columns=80):
    answer = subprocess.run([ESPALIER, *verb, "--help"], capture_output=True, text=True,
                            env={**os.environ, "COLUMNS": str(columns)})
    assert answer.returncode == 0 and not answer.stderr, (verb, answer)
    return answer.stdout


def check(verb):
    name = " ".join(["espalier", *verb])
    for columns in (60, 80, 100):
        wide = [line for line in help_of(verb, columns).splitlines() if len(line) > columns]
        assert not wide, f"{name} at {columns} columns: {wide}"
    text = help_of(verb)
    assert text == subprocess.run([ESPALIER, "help", *verb], capture_output=True, text=True,
                                  env={**os.environ, "COLUMNS": "80"}).stdout, f"help {name} is another text"
    example = " ".join(text.partition("\nExample:\n")[2].split())
    assert example.startswith("espalier" if not verb else name), f"{name} has no example"
    used = re.findall(r"(?<= )--?[a-z][a-z-]*", example.partition(" -- ")[0])
    is_group = "Subcommands:" in text
    assert is_group or all(re.search(rf"(^|[ ,]){option}\b", text.partition("\nExample:")[0], re.MULTILINE)
                           for option in used), f"{name}: the example has unknown options: {example}"
    groups = re.findall(r"^(\S.*):\n((?:  .*\n)+)", text, re.MULTILINE)
    options = sum(len(re.findall(r"^  -", body, re.MULTILINE)) for _, body in groups)
    largest = max((len(re.findall(r"^  -", body, re.MULTILINE)) for _, body in groups), default=0)
    assert largest <= max(11, options // 2), f"{name}: {largest} of {options} options in one group"
    below = text.partition("Subcommands:\n")[2].partition("\n\n")[0]
    return [[*verb, word] for word in re.findall(r"^  ([\w-]+)", below, re.MULTILINE)]


def main():
    waiting, count = [[]], 0
    while waiting:
        waiting += check(waiting.pop())
        count += 1
    print(f"{count} texts of help hold")


main()
