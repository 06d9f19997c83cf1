#!/usr/bin/env python3
"""Measures the goodput of an elastic run. Usage: goodput.py STEPS EVERY X.plan

Runs the plan on mock data without failures, and then with one killed rank, at a random step, in each EVERY steps. Both
save every 10 steps. Prints for each run the share of its time that it spent in steps that count, and the steps per
second."""
import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

steps, every, plan = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dice = random.Random(7)


def measure(folder, options, kills):
    """Returns the share of time in steps that count, the steps per second, and the number of restarts."""
    status = folder / "status.json"
    command = ["espalier", "run", plan, "--data", "mock", "--steps", str(steps), "--processes", "--save-every", "10",
               "--checkpoint", str(folder / "ckpt"), "--keep", "3", "--metrics", str(folder / "m.jsonl"), "--status",
               str(status), "--log-every", "1", *options]
    began, restarts = time.monotonic(), 0
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in process.stdout:
        restarts += line.startswith("elastic: restart")
        if kills and line.startswith("step ") and int(line[5:].split("/")[0]) >= kills[0]:
            kills.pop(0)
            with contextlib.suppress(ProcessLookupError):  # the rank may have ended
                os.kill(dice.choice(json.loads(status.read_text()))["pid"], signal.SIGKILL)
    if process.wait() != 0:
        sys.exit(f"the run has ended with {process.returncode}")
    seconds = time.monotonic() - began
    lines = map(json.loads, (folder / "m.jsonl").read_text().splitlines())
    useful = sum(line["step_seconds"] for line in lines if "step" in line)
    return useful / seconds, steps / seconds, restarts


for name, options, kills in (("without failures", [], []),
                             ("with failures", ["--elastic", "--max-restarts", str(steps)],
                              [dice.randint(begin + 1, begin + every) for begin in range(0, steps, every)])):
    with tempfile.TemporaryDirectory() as folder:
        share, rate, restarts = measure(pathlib.Path(folder), options, kills)
    print(f"{name}: {100 * share:.1f} % of the time in steps that count, {rate:.1f} steps/s, {restarts} restarts")
