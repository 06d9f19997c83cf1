#!/usr/bin/env python3
"""Kills ranks of an elastic run. Usage: lose_ranks.py STEPS[,STEPS ...] RANK[,RANK ...] COMMAND ...

Kills a rank of STATUS (the file after --status in the command) after STEPS lines of steps of an attempt, then the next
one after STEPS lines of the next attempt, and so on. The last number of STEPS counts for all further ranks. Prints the run's output, whether each next step came within 20
seconds, the processes of the last attempt that are left, and `exit CODE`."""
import json
import os
import signal
import subprocess
import sys
import time

from patience import slowdown
from process_table import runs
from run_first import run_first


def ranks():
    with open(command[command.index("--status") + 1]) as file:
        return {entry["rank"]: entry["pid"] for entry in json.load(file)}


steps, victims = ([int(number) for number in word.split(",")] for word in sys.argv[1:3])
command = sys.argv[3:]
run_first()
process = subprocess.Popen(command + ["--log-every", "1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
seen, killed = 0, None
for line in process.stdout:
    print(line, end="")
    if line.startswith("elastic: "):
        seen = 0
    if not ("step " in line and " loss " in line):
        continue
    seen += 1
    if killed and seen == 1:
        print("recovered in time" if time.monotonic() - killed < 20 * slowdown else "recovered too late")
        killed = None
    if seen == steps[0] and victims:
        killed = time.monotonic()
        os.kill(ranks()[victims.pop(0)], signal.SIGKILL)
        steps = steps[1:] or steps
code = process.wait(timeout=60 * slowdown)
print("left:", [rank for rank, pid in ranks().items() if runs(pid)])
print("exit", code)
