#!/usr/bin/env python3
"""Runs the commands of a page of docs/ as printed in one shell. Usage: page.py SOURCE_DIR PAGE FOLDER"""
import pathlib
import subprocess
import sys

from patience import slowdown

source, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[3]).resolve()
lines = [line.strip()[2:] for line in (source / "docs" / sys.argv[2]).read_text().splitlines()
         if line.startswith("    ") and line.strip().startswith("$ ")]  # deeper inside of lists
folder.mkdir(parents=True)
for name in ("configs", "README.md"):
    (folder / name).symlink_to(source / name)
script = "set -eo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n" + "\n".join(lines) + "\nwait || true\n"
result = subprocess.run(["bash", "-c", script], cwd=folder, check=False, timeout=300 * slowdown)
print(f"{len(lines)} commands do what {sys.argv[2]} says" if result.returncode == 0 else f"ended with {result.returncode}")
sys.exit(result.returncode)
