#!/usr/bin/env python3
"""Sets the last value of a tensor of DIR/model.safetensors. Usage: set_weight.py DIR TENSOR VALUE"""
import json
import pathlib
import struct
import sys

file = pathlib.Path(sys.argv[1]) / "model.safetensors"
data = bytearray(file.read_bytes())
length = struct.unpack("<Q", data[:8])[0]
end = 8 + length + json.loads(data[8:8 + length])[sys.argv[2]]["data_offsets"][1]
data[end - 4:end] = struct.pack("<f", float(sys.argv[3]))
file.write_bytes(data)
