#!/usr/bin/env python3
"""Truncates a file once a run has trained a step. Usage: truncate_run.py FILE COMMAND ...

Prints the run's output and `exit CODE`."""
import os
import subprocess
import sys

from patience import slowdown

process = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
for line in process.stdout:
    if line.startswith("step "):
        break
os.truncate(sys.argv[1], 0)
output = process.communicate(timeout=60 * slowdown)[0]
print("\n".join(line for line in output.splitlines() if not line.startswith("step ")))
print("exit", process.returncode)
