#!/usr/bin/env python3
"""Runs the commands of docs/cluster.md as printed, on the hosts of two_hosts.py, whose devices are emulated.

Usage: cluster_page.py BUILD SOURCE_DIR FOLDER AGENT
Commands with an address run on that host, and all commands of a group run at once. Other commands run in sequence on
this host, the first one. AGENT replaces ssh, and start_ranks.py replaces torchrun and srun. Prints the commands of a
group, and the topology that each run found."""
import os
import pathlib
import re
import subprocess
import sys

from patience import slowdown

build, source, folder = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
agent = sys.argv[4]
hangs = 900 * slowdown  # seconds; long enough for a busy machine
prompt = re.compile(r"    (10\.0\.0\.\d )?\$ (.*?)(?:\s{3,}.*)?$")  # text after three spaces is a remark


def groups():
    """Yields groups of adjacent commands with their addresses."""
    lines = (source / "docs/cluster.md").read_text().splitlines()
    group = []
    for line in [*lines, ""]:
        if match := prompt.match(line):
            group.append(((match[1] or "").strip(), match[2]))
        elif group:
            yield group
            group = []


def start(address, command):
    line = ["bash", "-c", command] if not address else [agent, address, f"bash -c {quoted(command)}"]
    return subprocess.Popen(line, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def finish(command, process):
    output = process.communicate(timeout=hangs)[0]
    if process.returncode != 0:
        sys.exit(f"$ {command}\n{output[-3000:]}\nended with {process.returncode}")
    return output


def export(command):
    for entry in subprocess.run(["bash", "-c", command + " && env -0"], cwd=folder, check=True, capture_output=True,
                                text=True).stdout.split("\0")[:-1]:
        name, _, value = entry.partition("=")
        os.environ[name] = value


def type_group(group):
    """Runs a group of commands and returns their output."""
    together = [(command, start(address, command)) for address, command in group if address]
    outputs = []
    for address, command in group:
        if command.startswith("export "):
            export(command)
        elif not address:
            outputs.append(finish(command, start("", command)))
    return "".join(outputs + [finish(*one) for one in together])


tools = folder / "tools"
tools.mkdir(parents=True)
(folder / "configs").symlink_to(source / "configs")
ranks = source / "test/e2e/start_ranks.py"
for name, line in (("ssh", agent), ("srun", f"{sys.executable} {ranks} srun"),
                   ("torchrun", f"{sys.executable} {ranks} torchrun")):
    (tools / name).write_text(f'#!/bin/sh\nexec {line} "$@"\n')
    (tools / name).chmod(0o755)
os.environ |= {"PATH": f"{tools}:{build}/bin:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(build / "emulator"),
               "ESPALIER_EMULATOR_DEVICES": "2", "ESPALIER_AGENT": agent, "ESPALIER_NODES": "10.0.0.1,10.0.0.2"}
for group in groups():
    for address, command in group:
        print(f"{address}$ {command}")
    output = type_group(group)
    print("".join(line + "\n" for line in output.splitlines() if re.search(r"^  \w.*\(.*\)$|done after", line)), end="",
          flush=True)
