#!/usr/bin/env python3
"""Sends signals to one process of a run after some steps. Usage: fail_rank.py SIGNAL[,SIGNAL] RANK COMMAND ...

In place of a signal, `hang:CALL` lets the next CALL of the main thread of the process hang, `hangs:CALL` that of any of
its threads (hang.c). RANK is a rank in STATUS (the file after --status in the command), `starter-of-RANK` for the parent of that rank's
process, `parent` or `group`. Prints the run's output, whether all processes ended within 5 seconds (times
patience.slowdown), the processes that are left, and `exit CODE`."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from patience import slowdown
from process_table import runs
from run_first import run_first


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


numbers, whom, command = sys.argv[1].split(","), sys.argv[2], sys.argv[3:]
command += ["--log-every", "1"]  # under mpirun, the output is a terminal, which shows a progress line instead
run_first()
process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           preexec_fn=lambda: [os.setpgrp()] +
                           [signal.signal(s, signal.SIG_DFL) for s in (signal.SIGINT, signal.SIGHUP)])
steps = 0
for line in process.stdout:
    print(line, end="")
    steps += "step " in line and " loss " in line
    if steps == 4:
        break
with open(command[command.index("--status") + 1]) as file:
    ranks = {str(entry["rank"]): entry["pid"] for entry in json.load(file)}
begin = time.monotonic()
for i, number in enumerate(numbers):
    for line in process.stdout if i > 0 and ":" not in numbers[i - 1] else ():  # waits until the previous signal is handled
        print(line, end="")
        if "second signal" in line:
            break
    target = parent_of(ranks[whom[-1]]) if whom.startswith("starter-of-") else ranks.get(whom, process.pid)
    if ":" in number:
        hang, call = number.split(":")
        pathlib.Path(os.environ["ESPALIER_HANG"]).write_text(f"{call} {target if hang == 'hang' else -target}")
        time.sleep(1)  # until it hangs
    elif whom == "group":
        os.killpg(process.pid, getattr(signal, number))
    else:
        os.kill(target, getattr(signal, number))
print(process.communicate(timeout=60 * slowdown)[0], end="")
closed = time.monotonic()  # a process closes its output some time before it has ended
while any(runs(pid) for pid in ranks.values()) and time.monotonic() - closed < 5 * slowdown:
    time.sleep(0.02)
print("in time" if time.monotonic() - begin < 5 * slowdown else "too late")
print("left:", [rank for rank, pid in ranks.items() if runs(pid)])
print("exit", process.returncode)
