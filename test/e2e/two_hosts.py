#!/usr/bin/env python3
"""Runs a command on the first of two hosts, or on a third machine. All are network namespaces. The third machine has a
switch with a cable to each host.

Usage: two_hosts.py [--outside] [--lossy] [--after STEPS cut|drop|mend|die|kill] COMMAND ...
In the command, {first} and {second} are the hosts' addresses, 10.0.0.1 and 10.0.0.2. {agent} is a program that runs
a line on a host that the network reaches, like ssh: agent [OPTION ...] ADDRESS LINE .... After STEPS lines of steps, the first host's cable is
cut, every process of the second host is killed, or the last rank in STATUS (the file after --status) is killed. With
`drop`, the first host receives no more messages of MPI's ports 20000 to 20099, while the launchers reach each other; with
--lossy, it loses 30 % of these from the beginning. With `mend`, the cable is cut until the run has restarted and trained a step, and then it is whole again; prints whether that
step came within 20 seconds.
ESPALIER_SECOND_HOST is a command that changes the second host before a line runs there: mounts are its own.
Prints the command's output and, after such a fault, whether the command needed more than 5 seconds to end (times patience.slowdown). Always
prints the processes left on each host and on the third machine, and `exit CODE`. A command that has not ended after
120 seconds, or ESPALIER_TWO_HOSTS_SECONDS, counts as hanging."""
import contextlib
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import time

from patience import slowdown
from run_first import run_first


def ip(*words, check=True):
    subprocess.run(["ip", *words], check=check, stdout=subprocess.DEVNULL, stderr=None if check else subprocess.DEVNULL)


def processes_of(host):
    """Returns the running processes of a host, without zombies."""
    pids = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True).stdout.split()
    states = {pid: pathlib.Path(f"/proc/{pid}/stat") for pid in pids}
    return [int(pid) for pid, stat in states.items()
            if stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"]


def lose(*match):
    """Lets the first host drop messages of MPI that match."""
    for port in ("--dports", "--sports"):
        subprocess.run(["ip", "netns", "exec", first, "iptables", "-A", "INPUT", "-p", "tcp", "-m", "multiport", port,
                        "20000:20099", *match, "-j", "DROP"], check=True)


def kill_all(host):
    for pid in processes_of(host):
        with contextlib.suppress(ProcessLookupError):  # the process may have ended with its parent
            os.kill(pid, signal.SIGKILL)


patience = os.environ.get("ESPALIER_TWO_HOSTS_SECONDS")
if not patience:  # a set timeout means long work whose duration is not measured
    run_first()
names = [f"espalier-{os.getpid()}-{letter}" for letter in "abc"]
first, second, outside = names
cables = [f"es{os.getpid()}{letter}" for letter in "ab"]
addresses = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
words = sys.argv[1:]
home = outside if words[0] == "--outside" else first
words = words[words[0] == "--outside":]
is_lossy = words[0] == "--lossy"
words = words[is_lossy:]
steps, fate = (int(words[1]), words[2]) if words[0] == "--after" else (0, "")
words = words[3:] if fate else words
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # exits through the cleanup below
process = None
with tempfile.TemporaryDirectory() as folder:
    agent = pathlib.Path(folder, "agent")
    cases = "".join(f"{address}) name={name};;\n" for address, name in zip(addresses, names))
    # Like ssh, the agent needs the network: a closed port of a host that is reached refuses a connection.
    reach = pathlib.Path(folder, "reach.py")
    reach.write_text("import errno, socket, sys\ns = socket.socket()\ns.settimeout(1)\n"
                     "sys.exit(s.connect_ex((sys.argv[1], 9)) != errno.ECONNREFUSED)\n")
    agent.write_text('#!/bin/sh\nwhile :; do case $1 in -o) shift 2;; -*) shift;; *) break;; esac; done\n'
                     f'{sys.executable} {reach} $1 || {{ echo "no route to $1" >&2; exit 255; }}\n'
                     f'host=$1; shift\ncase $host in\n{cases}*) echo "no host $host" >&2; exit 255;;\nesac\n'
                     f'case $name in {second}) setup={shlex.quote(os.environ.get("ESPALIER_SECOND_HOST", "true"))};; esac\n'
                     'exec ip netns exec $name unshare --uts --mount sh -c "hostname $name; ${setup:-true} && $*"\n')
    agent.chmod(0o755)
    known = {"first": addresses[0], "second": addresses[1], "agent": str(agent)}
    for name in known:
        words = [word.replace("{" + name + "}", known[name]) for word in words]
    try:
        for name in names:
            ip("netns", "add", name)
        ip("-n", outside, "link", "add", "switch", "type", "bridge")
        for name, cable in zip(names, cables):
            ip("-n", name, "link", "add", cable, "type", "veth", "peer", "name", cable, "netns", outside)
            ip("-n", outside, "link", "set", cable, "master", "switch", "up")
        for name, device, address in zip(names, [*cables, "switch"], addresses):
            for line in (f"addr add {address}/24 dev {device}", f"link set {device} up", "link set lo up"):
                ip("-n", name, *line.split())
        if is_lossy:
            lose("-m", "statistic", "--mode", "random", "--probability", "0.3")
        process = subprocess.Popen(["ip", "netns", "exec", home, "unshare", "--uts", "sh", "-c",
                                    f'hostname {home}; exec "$@"', "sh", *words],
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        seen = 0
        while fate and seen < steps and (line := process.stdout.readline()):
            print(line, end="", flush=True)
            seen += "step " in line and " loss " in line
        begin = time.monotonic()
        if fate in ("cut", "mend"):
            ip("-n", first, "link", "set", cables[0], "down")
        elif fate == "drop":
            lose()
        elif fate == "die":
            kill_all(second)
        elif fate == "kill":
            os.kill(json.loads(pathlib.Path(words[words.index("--status") + 1]).read_text())[-1]["pid"], signal.SIGKILL)
        if fate == "mend":
            has_restarted = False
            while line := process.stdout.readline():
                print(line, end="", flush=True)
                has_restarted |= line.startswith("elastic: restart")
                if has_restarted and "step " in line and " loss " in line:
                    break
            print("recovered in time" if time.monotonic() - begin < 20 * slowdown else "recovered too late")
            ip("-n", first, "link", "set", cables[0], "up")
        print(process.communicate(timeout=float(patience or 120))[0], end="")
        if fate:
            while any(processes_of(name) for name in names) and time.monotonic() < begin + 10 * slowdown:
                time.sleep(0.05)
            print("in time" if time.monotonic() - begin < 5 * slowdown else f"too late: {time.monotonic() - begin:.1f} s")
        print("left:", [len(processes_of(name)) for name in names])
        print("exit", process.returncode)
    finally:
        for name in names:
            kill_all(name)
            ip("netns", "del", name, check=False)
