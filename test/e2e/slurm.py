#!/usr/bin/env python3
"""Runs a command under its own Slurm on this host, or on several hosts. This host is the first of several hosts, and
AGENT reaches the others like ssh.

Usage: slurm.py FOLDER [AGENT ADDRESS ...] -- COMMAND ...
Each node has 8 processors. Slurm's files are in FOLDER. Its daemons end with the command, whose status is returned."""
import os
import pathlib
import subprocess
import sys
import time

folder, *places = sys.argv[1:sys.argv.index("--")]
command = sys.argv[sys.argv.index("--") + 1:]
agent, addresses = (places[0], places[1:]) if places else ("", ["127.0.0.1"])
folder = pathlib.Path(folder).resolve()
nodes = [f"n{i}" for i in range(1, len(addresses) + 1)]
daemons = []


def on(address, line):
    """Returns the command that runs a line on a host; the first host is this one."""
    return ["sh", "-c", line] if address == addresses[0] else [agent, address, line]


def start(line, address=addresses[0]):
    with open(folder / "log", "a") as log:
        daemons.append(subprocess.Popen(on(address, "exec " + line), stdout=log, stderr=log))


def output(*words):
    return subprocess.run(words, capture_output=True, text=True).stdout.split()


def wait_for(is_so):
    end = time.monotonic() + 60
    while not is_so():
        if time.monotonic() > end or any(daemon.poll() is not None for daemon in daemons):
            sys.exit(f"Slurm does not start:\n{(folder / 'log').read_text()[-3000:]}")
        time.sleep(0.1)


for node in nodes:
    (folder / node).mkdir(parents=True)
hosts = [output(*on(address, "hostname"))[-1] for address in addresses]
(folder / "key").write_bytes(os.urandom(1024))
(folder / "key").chmod(0o600)
lines = [f"NodeName={node} NodeHostname={host} NodeAddr={address} Port=16818 CPUs=8 State=UNKNOWN"
         for node, host, address in zip(nodes, hosts, addresses)]
(folder / "slurm.conf").write_text(f"""ClusterName=espalier
SlurmctldHost={hosts[0]}({addresses[0]})
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/%n
TmpFS={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
{chr(10).join(lines)}
PartitionName=main Nodes=ALL Default=YES State=UP
""")
# Network namespaces have no cgroups, and this test needs none.
(folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
try:
    start(f"munged -F --force --key-file={folder}/key --socket={folder}/munge --pid-file={folder}/munge.pid "
          f"--log-file={folder}/munge.log --seed-file={folder}/munge.seed")
    wait_for(lambda: (folder / "munge").exists())
    start("slurmctld -D -c")
    for node, address in zip(nodes, addresses):
        start(f"slurmd -D -N {node} -f {folder}/slurm.conf", address)
    wait_for(lambda: output("sinfo", "-hNo", "%T") == ["idle"] * len(nodes))
    status = subprocess.run(command).returncode
finally:
    for daemon in reversed(daemons):
        daemon.terminate()
        daemon.wait()
sys.exit(status)
