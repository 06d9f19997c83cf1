#!/usr/bin/env python3
"""Kills the process of a rank during generation. Usage: kill_generation.py TEXT RANK COMMAND ...

The command continues each line of TEXT many times. The rank's process is the child of the process that mpirun started
as RANK, or child number RANK of the command itself. Prints the command's output and `in time, none left, exit CODE`."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from patience import slowdown
from run_first import run_first


def children(pid):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def rank_process(pid, rank, starts):
    """Returns the process of a rank. `starts`: the command's children start the ranks' processes."""
    found = children(pid)
    if not starts:
        return found[rank] if len(found) > rank else None
    for starter in found:
        variables = pathlib.Path(f"/proc/{starter}/environ").read_bytes().split(b"\0")
        ranks = children(starter)
        if f"OMPI_COMM_WORLD_RANK={rank}".encode() in variables and ranks:
            return ranks[0]
    return None


def fields(pid):
    """Returns the fields of /proc/PID/stat from the state on, or an empty list if the process is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def runs(pid):
    """Returns whether the process runs; a zombie does not."""
    return fields(pid)[:1] not in ([], ["Z"])


def seconds(pid):
    return sum(map(int, fields(pid)[11:13])) / os.sysconf("SC_CLK_TCK")


run_first()
text, rank, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
with tempfile.NamedTemporaryFile("w") as prompts, tempfile.TemporaryFile("w+") as told:
    line = pathlib.Path(text).read_text().split()[0][:8]
    prompts.write(f"{line}\n" * 100000)
    prompts.flush()
    process = subprocess.Popen([*command, "--file", prompts.name], stdout=told, stderr=subprocess.STDOUT, text=True)
    starts = "espalier" not in command[0]
    target, limit = None, time.monotonic() + 60 * slowdown
    while time.monotonic() < limit and (target is None or seconds(target) < 1):  # a rank with 1 s of CPU time decodes
        time.sleep(0.1)
        target = rank_process(process.pid, rank, starts)
    others = [each for child in children(process.pid) for each in [child, *children(child)]]
    begin = time.monotonic()
    os.kill(target, signal.SIGKILL)
    process.wait(timeout=60 * slowdown)
    took = time.monotonic() - begin
    time.sleep(0.1)
    left = [pid for pid in others if runs(pid)]
    told.seek(0)
    print(told.read(), end="")
    print("in time," if took < 5 * slowdown else f"after {took:.1f} seconds,", f"{left} left," if left else "none left,",
          f"exit {process.returncode}")
