#!/usr/bin/env python3
"""Starts a process per rank with the variables of a launcher, and waits for all. Replaces torchrun and srun with the
options that docs/cluster.md uses.

Usage: start_ranks.py torchrun [--nnodes N --node-rank K --master-addr A] --nproc-per-node P --no-python COMMAND ...
       start_ranks.py srun [-N NODES] -n RANKS COMMAND ...
The nodes of srun are listed in ESPALIER_NODES and reached by ESPALIER_AGENT. Returns the largest status of any process.
Signals are sent to all processes."""
import argparse
import os
import shlex
import signal
import socket
import subprocess
import sys

from run_first import run_first


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def of_torchrun(options):
    """Returns the variables of each rank of this node."""
    port = free_port() if options.nnodes == 1 else 29500
    ranks, first = options.nnodes * options.nproc_per_node, options.node_rank * options.nproc_per_node
    return [{"RANK": first + local, "WORLD_SIZE": ranks, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": options.nproc_per_node,
             "GROUP_RANK": options.node_rank, "GROUP_WORLD_SIZE": options.nnodes, "MASTER_ADDR": options.master_addr,
             "MASTER_PORT": port, "TORCHELASTIC_RESTART_COUNT": 0} for local in range(options.nproc_per_node)]


def of_srun(options):
    each, job = options.ranks // options.nodes, free_port()
    tasks = str(each) + (f"(x{options.nodes})" if options.nodes > 1 else "")
    nodes = os.environ.get("ESPALIER_NODES", "localhost") if options.nodes > 1 else "localhost"
    return [{"SLURM_PROCID": rank, "SLURM_STEP_NUM_TASKS": options.ranks, "SLURM_LOCALID": rank % each,
             "SLURM_STEP_NUM_NODES": options.nodes, "SLURM_NODEID": rank // each, "SLURM_STEP_ID": 0,
             "SLURM_JOB_ID": job, "SLURM_STEP_NODELIST": nodes, "SLURM_STEP_TASKS_PER_NODE": tasks}
            for rank in range(options.ranks)]


def command_of(options, own):
    """Returns the command that starts a rank on its node."""
    if options.launcher == "torchrun" or options.nodes == 1:
        return options.command
    node = os.environ["ESPALIER_NODES"].split(",")[int(own["SLURM_NODEID"])]
    return [os.environ["ESPALIER_AGENT"], node, shlex.join(options.command)]


run_first()
parser = argparse.ArgumentParser()
launchers = parser.add_subparsers(dest="launcher", required=True)
torchrun, srun = launchers.add_parser("torchrun"), launchers.add_parser("srun")
for name in ("--nnodes", "--nproc-per-node"):
    torchrun.add_argument(name, type=int, default=1)
torchrun.add_argument("--node-rank", type=int, default=0)
torchrun.add_argument("--master-addr", default="127.0.0.1")
torchrun.add_argument("--no-python", action="store_true", required=True)
srun.add_argument("-n", dest="ranks", type=int, default=1)
srun.add_argument("-N", dest="nodes", type=int, default=1)
srun.add_argument("-K", action="store_true")
for launcher in (torchrun, srun):
    launcher.add_argument("command", nargs=argparse.REMAINDER)
options = parser.parse_args()
processes = []
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, frame: [process.send_signal(number) for process in processes])
said = of_torchrun(options) if options.launcher == "torchrun" else of_srun(options)
for variables in reversed(said):  # starts the first rank last
    own = {name: str(value) for name, value in variables.items()}
    processes.append(subprocess.Popen(command_of(options, own), env=os.environ | own))
statuses = [process.wait() for process in processes]
sys.exit(max(status if status >= 0 else 128 - status for status in statuses))
