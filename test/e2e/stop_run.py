#!/usr/bin/env python3
"""Sends signals to a run once it has trained a step. Usage: stop_run.py SIGNAL[,SIGNAL] COMMAND ...

Prints the run's output and `exit CODE`, where CODE is minus the signal's number if a signal ended the run. No step ends
between two signals."""
import signal
import subprocess
import sys

from patience import slowdown
from run_first import run_first

names, command = sys.argv[1].split(","), sys.argv[2:]
run_first()
# Shells ignore SIGINT in background processes, and children inherit this.
process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           preexec_fn=lambda: [signal.signal(s, signal.SIG_DFL) for s in (signal.SIGINT, signal.SIGHUP)])
for line in process.stdout:
    print(line, end="")
    if line.startswith("step "):
        break
for name in names:
    process.send_signal(getattr(signal, name))
    if name != names[-1]:
        for line in process.stdout:  # waits until the first signal is handled
            print(line, end="")
            if "second signal" in line:
                break
print(process.communicate(timeout=60 * slowdown)[0], end="")
print("exit", process.returncode)
