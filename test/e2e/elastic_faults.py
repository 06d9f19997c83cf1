#!/usr/bin/env python3
"""Kills processes of an elastic run at random times. Usage: elastic_faults.py COUNT SEED CHECKPOINTS COMMAND ...

Each of COUNT injections waits up to 0.7 seconds and kills one process of the run, but not the supervisor, so that
injections hit starts, loads, steps, saves and ends of attempts. A third of the injections kills the same rank again
after the restart, so that its slot stays out until a save. The last two ranks are spared until the others have returned
at a save. Afterwards the run gets SIGTERM, and must end with 143.
A run that makes no progress for 30 seconds counts as hanging. Checks after each injection that `latest` in CHECKPOINTS
names a complete checkpoint, and that its step has not fallen. Prints what was wrong, or a line about all injections."""
import contextlib
import json
import math
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from patience import slowdown
from process_table import descendants


def latest_step():
    """Returns the step of the checkpoint that `latest` names; 0 without one."""
    try:
        text = (folder / "latest").read_text()
    except FileNotFoundError:
        return 0
    name = re.search(r"step-[0-9]+", text)[0]
    if not (folder / name / "manifest.json").exists():
        sys.exit(f"latest names {name}, which is not complete")
    return int(name[5:])


def ranks_left():
    """Returns the ranks that the last restart left, or infinity if all have returned since."""
    size = os.fstat(log.fileno()).st_size
    tail = os.pread(log.fileno(), 1 << 16, max(0, size - (1 << 16))).decode(errors="replace")
    events = re.findall(r"^elastic: (?:restart .*; ([0-9]+) of [0-9]+ ranks are left|lost ranks)", tail, re.MULTILINE)
    return int(events[-1]) if events and events[-1] else math.inf


def wait_until(holds, what):
    """Waits until holds() is true. The run fails if it ends, or makes no progress for 30 seconds."""
    deadline = time.monotonic() + 30 * slowdown
    while not holds():
        if process.poll() is not None or time.monotonic() > deadline:
            fail(f"seed {seed}: {what} after step {step}; the status of the run is {process.poll()}")
        time.sleep(0.05)


def pid_of(rank):
    """Returns the process of a rank by the status of the last attempt; None without one."""
    entries = json.loads(status.read_text()) if status.exists() else []
    return next((entry["pid"] for entry in entries if entry["rank"] == rank), None)


def kill_again(rank, pid):
    """Kills the process that takes the place of a killed one within 2 seconds, before its first save."""
    deadline = time.monotonic() + 2 * slowdown
    while (again := pid_of(rank)) in (None, pid) and time.monotonic() < deadline:
        time.sleep(0.005)
    if again not in (None, pid):
        kill(again)


def kill(pid):
    with contextlib.suppress(ProcessLookupError):  # the process may have ended
        os.kill(pid, signal.SIGKILL)


def fail(text):
    process.kill()
    log.seek(0)
    print(log.read())
    sys.exit(text)


count, seed, folder = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
status = pathlib.Path(tempfile.mkdtemp()) / "status.json"
command = [*sys.argv[4:], "--status", str(status)]
dice = random.Random(seed)
log = tempfile.TemporaryFile("w+")
process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
step, began = 0, time.monotonic()
for injection in range(count):
    time.sleep(0.7 * dice.random() * slowdown)
    wait_until(lambda: ranks_left() > 2, "lost ranks do not return")
    if victims := descendants(process.pid):
        victim = dice.choice(sorted(victims))
        rank = next((rank for rank in range(len(victims)) if pid_of(rank) == victim), None)
        kill(victim)
        if rank is not None and injection % 3 == 0:
            kill_again(rank, victim)
    if process.poll() is not None:
        fail(f"seed {seed}, injection {injection}: the run has ended with {process.returncode}")
    now = latest_step()
    if now < step:
        fail(f"seed {seed}, injection {injection}: the latest checkpoint has step {now}, it had {step}")
    step = now
# The run goes on: it saves a checkpoint of a later step.
wait_until(lambda: latest_step() > step, "the run does not go on")
process.send_signal(signal.SIGTERM)
try:
    code = process.wait(timeout=30 * slowdown)
except subprocess.TimeoutExpired:
    fail(f"seed {seed}: the run hangs after SIGTERM")
if code != 143 or descendants(process.pid):
    fail(f"seed {seed}: exit status {code} after SIGTERM")
log.seek(0)
events = re.findall(r"^elastic: (restart|lost ranks)", log.read(), re.MULTILINE)
print(f"{count} injections of seed {seed}: {events.count('restart')} restarts, {events.count('lost ranks')} returns, "
      f"step {latest_step()}, in {time.monotonic() - began:.0f} s; no checkpoint is lost")
