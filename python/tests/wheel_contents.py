#!/usr/bin/env python3
"""Lists the contents of a wheel by their share of the compressed size. Usage: wheel_contents.py WHEEL

Exits with 1 if the wheel is larger than MAX_MEGABYTES.
"""
import os
import pathlib
import sys
import zipfile

MAX_MEGABYTES = 120


def part(name):
    """Returns the name under which a file is counted: the library or program itself, or the folder of small files."""
    path = pathlib.PurePath(name)
    if path.parts[0].endswith(".libs") or ".so" in path.name or path.parent.name == "bin":
        return path.name.split("-")[0].split(".so")[0].split(".cpython")[0]
    return "configs" if "configs" in path.parts else "Python and metadata"


def main():
    wheel = sys.argv[1]
    sizes = {}
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            packed, plain = sizes.get(part(entry.filename), (0, 0))
            sizes[part(entry.filename)] = packed + entry.compress_size, plain + entry.file_size
    for name, (packed, plain) in sorted(sizes.items(), key=lambda item: -item[1][0]):
        print(f"{packed / 1e6:8.2f} MB  {plain / 1e6:8.2f} MB unpacked  {name}")
    megabytes = os.path.getsize(wheel) / 1e6
    print(f"{megabytes:8.2f} MB  {wheel}, at most {MAX_MEGABYTES}")
    return 0 if megabytes <= MAX_MEGABYTES else 1


sys.exit(main())
