#!/usr/bin/env python3
"""Runs a command on a host that reaches others by a real ssh: each gets its own sshd, with new keys.

Usage: ssh_hosts.py FOLDER AGENT ADDRESS ... -- COMMAND ...
AGENT starts the daemons, as ssh would. Keys and settings are in FOLDER, and `ssh` in the command's PATH uses them. The
daemons end with the command, whose status is returned."""
import getpass
import os
import pathlib
import subprocess
import sys
import time

folder, agent, *addresses = sys.argv[1:sys.argv.index("--")]
command = sys.argv[sys.argv.index("--") + 1:]
folder = pathlib.Path(folder).resolve()
port = 2222
(folder / "bin").mkdir(parents=True)
pathlib.Path("/run/sshd").mkdir(exist_ok=True)  # Debian's sshd needs this folder, which systemd usually creates
for name in ("host_key", "key"):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
public = " ".join((folder / "host_key.pub").read_text().split()[:2])
(folder / "known_hosts").write_text("".join(f"[{address}]:{port} {public}\n" for address in addresses))
# Ends a session soon after its client stops answering, because such a session is not part of the run.
(folder / "sshd_config").write_text(f"""Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PermitRootLogin prohibit-password
StrictModes no
PidFile none
ClientAliveInterval 1
ClientAliveCountMax 1
SetEnv "PATH={os.environ["PATH"]}"
""")
(folder / "ssh_config").write_text(f"""Host *
  Port {port}
  User {getpass.getuser()}
  IdentityFile {folder}/key
  UserKnownHostsFile {folder}/known_hosts
  BatchMode yes
""")
os.environ["PATH"] = f"{folder}/bin:{os.environ['PATH']}"
(folder / "bin/ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {folder}/ssh_config "$@"\n')
(folder / "bin/ssh").chmod(0o755)
with open(folder / "log", "w") as log:
    line = f"exec /usr/sbin/sshd -D -e -f {folder}/sshd_config"
    daemons = [subprocess.Popen([agent, address, line], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
               for address in addresses]
try:
    for address in addresses:
        for _ in range(100):
            if subprocess.run(["ssh", address, "true"], capture_output=True, check=False).returncode == 0:
                break
            time.sleep(0.1)
        else:
            sys.exit(f"sshd does not answer at {address}:\n{(folder / 'log').read_text()[-3000:]}")
    status = subprocess.run(command, check=False).returncode
finally:
    for daemon in daemons:
        daemon.terminate()
        daemon.wait()
sys.exit(status if status >= 0 else 128 - status)
