#!/usr/bin/env python3
"""Runs clang-tidy-19 with the checks of .clang-tidy. Usage: tidy.py BUILD [--most N]

BUILD is a build folder whose precompiled headers are up to date. Without --most, checks every source of the product
with its headers. With --most N, checks at most N of the sources that differ from the branch main, without headers; each
commit begins with another one. Prints the findings and exits with 1 if there are any.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROOMS = ("compiler/", "dialects/", "format/", "messages/", "planner/", "runtime/", "tools/")
PROGRAM = "clang-tidy-19"


def git(*arguments):
    """Returns the output of a git command, or an empty text if git fails."""
    result = subprocess.run(["git", "-C", str(ROOT), *arguments], text=True, capture_output=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else ""


def sources(build):
    """Returns the sources of the product that the build folder compiles."""
    commands = json.loads((build / "compile_commands.json").read_text())
    files = {pathlib.Path(command["directory"], command["file"]).resolve() for command in commands}
    names = (str(file.relative_to(ROOT)) for file in files if file.is_relative_to(ROOT))
    return sorted(name for name in names if name.startswith(ROOMS))


def selected(names, most):
    """Returns the sources to check in this run, at most `most`."""
    commit = int(git("rev-parse", "HEAD") or "0", 16)
    changed = set(git("diff", "--name-only", "main...HEAD").split()) | set(git("diff", "--name-only", "HEAD").split())
    names = [name for name in names if name in changed]
    return [names[(commit + i) % len(names)] for i in range(min(most, len(names)))]


def check(build, name, *options):
    """Returns the findings in one source, and in its headers unless the options exclude them, as text."""
    result = subprocess.run([PROGRAM, "--quiet", "-p", str(build), *options, str(ROOT / name)], text=True,
                            capture_output=True, check=False)
    return result.stdout if result.returncode else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--most", type=int)
    options = parser.parse_args()
    if not shutil.which(PROGRAM):
        print(f"{PROGRAM} is not installed: nothing is checked")
        return 0
    build = options.build.resolve()
    names = sources(build)
    filters = []
    if options.most:
        names, filters = selected(names, options.most), ["--header-filter=^$"]
    with concurrent.futures.ThreadPoolExecutor(1 if options.most else os.cpu_count()) as pool:
        findings = list(filter(None, pool.map(lambda name: check(build, name, *filters), names)))
    print("".join(findings) + f"{len(names)} sources checked, {len(findings)} with findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
