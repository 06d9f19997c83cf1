#!/usr/bin/env python3
"""Slows one process of a run by stopping it half of the time. Usage: slow_rank.py RANK COMMAND ...

STATUS, the file after --status in the command, lists the ranks' processes. When the run names the rank as slow, kills its
process. Prints the line that names the rank, then the output of the end and `exit CODE`."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

rank, command = int(sys.argv[1]), sys.argv[2:]
process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
is_named = threading.Event()


def slow_down(pid):
    while not is_named.is_set():
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.01)
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)


slower = None
for line in process.stdout:
    if "step " in line and " loss " in line:
        if not slower:
            ranks = json.loads(pathlib.Path(command[command.index("--status") + 1]).read_text())
            slower = threading.Thread(target=slow_down, args=[ranks[rank]["pid"]])
            slower.start()
        continue
    print(line, end="")
    if line.startswith(f"rank {rank} on ") and " is slow: " in line:
        is_named.set()
is_named.set()
slower.join()
print("exit", process.wait())
