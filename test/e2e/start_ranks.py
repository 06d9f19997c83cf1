#!/usr/bin/env python3
"""Starts a process for each rank, with the variables of a launcher, and waits for all: what torchrun and srun do.

Usage: start_ranks.py torchrun|srun|--first-of-two ADDRESS|--second-of-two ADDRESS RANKS COMMAND ...
The last two are torchrun on one of two hosts, of which the first has ADDRESS. Ends with the largest status of any process; signals go to all."""
import os
import signal
import socket
import subprocess
import sys


def variables(launcher, rank, ranks, port):
    if launcher == "torchrun":
        return {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks, "GROUP_RANK": 0,
                "GROUP_WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                "TORCHELASTIC_RESTART_COUNT": 0}
    return {"SLURM_PROCID": rank, "SLURM_STEP_NUM_TASKS": ranks, "SLURM_LOCALID": rank, "SLURM_STEP_NUM_NODES": 1,
            "SLURM_NODEID": 0, "SLURM_STEP_ID": 0, "SLURM_JOB_ID": port, "SLURM_STEP_NODELIST": "localhost",
            "SLURM_STEP_TASKS_PER_NODE": ranks}


def of_two_hosts(node, first, rank, ranks):
    return {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank - node * ranks // 2, "LOCAL_WORLD_SIZE": ranks // 2,
            "GROUP_RANK": node, "GROUP_WORLD_SIZE": 2, "MASTER_ADDR": first, "MASTER_PORT": 29500,
            "TORCHELASTIC_RESTART_COUNT": 0}


node = {"--first-of-two": 0, "--second-of-two": 1}.get(sys.argv[1])
first = sys.argv.pop(2) if node is not None else ""
launcher, ranks, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
here = range(ranks) if node is None else range(node * ranks // 2, (node + 1) * ranks // 2)
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
processes = []
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, frame: [process.send_signal(number) for process in processes])
for rank in reversed(here):  # the first one comes last
    said = variables(launcher, rank, ranks, port) if node is None else of_two_hosts(node, first, rank, ranks)
    own = {name: str(value) for name, value in said.items()}
    processes.append(subprocess.Popen(command, env=os.environ | own))
statuses = [process.wait() for process in processes]
sys.exit(max(status if status >= 0 else 128 - status for status in statuses))
