#!/usr/bin/env python3
"""Writes a loss mask beside a dataset whose documents are one sequence each. Usage: loss_mask.py PREFIX ones|no-first:
every token counts; or every token but the first of each document, which is the one that follows the end of another."""
import struct
import sys


def main():
    prefix, kind = sys.argv[1:3]
    index = bytearray(open(prefix + ".idx", "rb").read())
    sequences, = struct.unpack_from("<Q", index, 18)
    lengths = struct.unpack_from(f"<{sequences}i", index, 34)
    index[17] = 1  # u8
    values = bytearray()
    for i, length in enumerate(lengths):
        struct.pack_into("<q", index, 34 + 4 * sequences + 8 * i, len(values))
        values += bytes([kind == "ones"]) + b"\1" * (length - 1)
    open(prefix + "_loss_mask.bin", "wb").write(values)
    open(prefix + "_loss_mask.idx", "wb").write(index)


if __name__ == "__main__":
    main()
