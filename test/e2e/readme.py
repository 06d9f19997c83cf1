#!/usr/bin/env python3
"""Runs the run files of README.md and compares what the commands print with what README.md says. Usage: readme.py ROOT FOLDER

Also compares the version of the command with that of the wheel and of the newest section of CHANGELOG.md.
"""
import pathlib
import re
import subprocess
import sys

MOST_COLUMNS = 100  # of a code block that GitHub shows without a scroll bar


def printed(*arguments, folder):
    return subprocess.run(["espalier", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def main():
    root, folder = map(pathlib.Path, sys.argv[1:3])
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", (root / "README.md").read_text(), re.S | re.M)
    runs = [index for index, (language, _) in enumerate(blocks) if language == "yaml"]
    (ten, ten_says), (large, large_says) = [(blocks[i][1], blocks[i + 1][1]) for i in runs]
    assert len(ten.splitlines()) == 10
    wide = [line for _, text in blocks[:runs[1] + 3] for line in text.splitlines() if len(line) > MOST_COLUMNS]
    assert not wide, wide
    (folder / "ten.yaml").write_text(ten)
    (folder / "llama70b.yaml").write_text(large)
    assert printed("plan", "llama70b.yaml", folder=folder).startswith(large_says)
    log = printed("train", "ten.yaml", "--data", "text.txt", "-o", "ten.plan", folder=folder)
    assert ten_says.splitlines()[0] in log.splitlines()
    losses, said = ([float(loss) for loss in re.findall(r"loss ([0-9.]+)", text)] for text in (log, ten_says))
    assert len(losses) == 200 and abs(losses[0] - said[0]) < 0.05 and abs(losses[-1] - said[-1]) < 0.5, (losses, said)
    pattern = re.search(r"^regex = '(.*)'", (root / "pyproject.toml").read_text(), re.M)[1]
    wheel = re.search(pattern, (root / "CMakeLists.txt").read_text())["value"]
    version = printed("--version", folder=folder).split()[-1]
    change = re.search(r"^## ([0-9.]+) \(\d{4}-\d\d-\d\d\)$", (root / "CHANGELOG.md").read_text(), re.M)[1]
    assert version == wheel == change, (version, wheel, change)
    print(f"README.md says what {version} prints")


main()
