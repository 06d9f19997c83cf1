#!/usr/bin/env python3
"""Runs a command on a small and on a large folder. The second run may use at most MOST_MB MB more memory. Usage:
peak_memory.py MOST_MB SMALL LARGE COMMAND ..., where {} in the command is the folder."""
import os
import subprocess
import sys

from patience import is_sanitized


def peak_megabytes(folder):
    process = subprocess.Popen([word.replace("{}", folder) for word in sys.argv[4:]], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"ended with {os.waitstatus_to_exitcode(status)}")
    return usage.ru_maxrss / 1024


def main():
    small, large = map(peak_megabytes, sys.argv[2:4])
    print(f"peak of memory: {small:.0f} MB, for the large folder {large:.0f} MB")
    if not is_sanitized and large - small > float(sys.argv[1]):  # a sanitizer keeps freed memory
        sys.exit(f"{large - small:.0f} MB more, may be {sys.argv[1]}")
    print("a few tensors at a time")


main()
