#!/usr/bin/env python3
"""Removes the device code for all GPUs except one from a shared library.

Usage: keep_device_code.py LIBRARY CAPABILITY OUT

Headers and offsets of the library stay. The code of other capabilities is overwritten with zeros, which compress well.
So is the code that is only needed for linking (__nv_relfatbin)."""
import struct
import sys

magic, forLinking = 0xBA55ED50, "__nv_relfatbin"


def sections(data):
    (table,), (count, names) = struct.unpack_from("<Q", data, 0x28), struct.unpack_from("<HH", data, 0x3C)
    entries = [struct.unpack_from("<IIQQQQIIQQ", data, table + 64 * i) for i in range(count)]
    start = entries[names][4]
    for entry in entries:
        begin = start + entry[0]
        yield data[begin:data.index(0, begin)].decode(), entry[4], entry[4] + entry[5]


def clear(data, name, begin, end, kept):
    """Clears the code of a section and returns the number of bytes that stay."""
    total = 0
    while begin + 16 <= end:
        word, _, header, size = struct.unpack_from("<IHHQ", data, begin)
        if word != magic:
            begin += 8
            continue
        entry, begin = begin + header, begin + header + size
        while entry < begin:
            kind, _, header = struct.unpack_from("<HHI", data, entry)
            (size,), (capability,) = struct.unpack_from("<Q", data, entry + 8), struct.unpack_from("<I", data, entry + 28)
            if name != forLinking and kind == 2 and capability == kept:
                total += size
            else:
                data[entry + header:entry + header + size] = bytes(size)
            entry += header + size
    return total


library, capability, out = sys.argv[1:]
with open(library, "rb") as file:
    data = bytearray(file.read())
total = sum(clear(data, name, begin, end, int(capability)) for name, begin, end in list(sections(data))
            if name in (forLinking, ".nv_fatbin"))
if total == 0:
    sys.exit(f"{library}: no device code for capability {capability}")
with open(out, "wb") as file:
    file.write(data)
print(f"{total} bytes of device code")
