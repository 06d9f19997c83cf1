#!/usr/bin/env python3
"""Suspends a run like Ctrl-Z for longer than its heartbeat timeout, then continues it.

Usage: suspend_run.py COMMAND ...
STATUS, the file after --status in the command, lists the ranks' processes. Prints `suspended` when all of them are
stopped, `goes on` after two more steps, then the output until the run ends on SIGTERM, and `exit CODE`."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time


def await_steps(process, count):
    while count > 0 and (line := process.stdout.readline()):
        count -= "step " in line and " loss " in line
        if "error" in line:
            print(line, end="")


def stands(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


command = sys.argv[1:]
process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=os.setpgrp)
await_steps(process, 2)
ranks = json.loads(pathlib.Path(command[command.index("--status") + 1]).read_text())
os.killpg(process.pid, signal.SIGTSTP)
end = time.monotonic() + 60
while not all(stands(rank["pid"]) for rank in ranks) and time.monotonic() < end:
    time.sleep(0.05)
print("suspended" if time.monotonic() < end else "it goes on nevertheless", flush=True)
time.sleep(4)
os.killpg(process.pid, signal.SIGCONT)
await_steps(process, 2)
print("goes on", flush=True)
process.send_signal(signal.SIGTERM)
print(process.communicate(timeout=60)[0], end="")
print("exit", process.returncode)
