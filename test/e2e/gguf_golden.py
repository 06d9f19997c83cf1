#!/usr/bin/env python3
"""Compares a folder that Espalier made of gguf/small.gguf with the record of test/golden/gguf_file_reference.py.

Usage: gguf_golden.py FOLDER RECORD
"""
import hashlib
import json
import pathlib
import struct
import sys


def floats(data, kind):
    """Returns the elements as float32."""
    if kind == "F32":
        return data
    if kind == "BF16":
        return b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
    count = len(data) // 2
    return struct.pack(f"<{count}f", *struct.unpack(f"<{count}e", data))


def main():
    folder, record = pathlib.Path(sys.argv[1]), json.loads(pathlib.Path(sys.argv[2]).read_text())
    data = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    found = {name: hashlib.sha256(floats(data[8 + length:][slice(*entry["data_offsets"])], entry["dtype"])).hexdigest()
             for name, entry in json.loads(data[8:8 + length]).items() if name != "__metadata__"}
    assert found == record["tensors"], [name for name in {*found, *record["tensors"]} if found.get(name) != record["tensors"].get(name)]
    config = json.loads((folder / "config.json").read_text())
    wanted = {**record["config"], "rope_theta": record["rope_theta"]}
    values = {key: config.get(key, config.get("rope_parameters", {}).get(key)) for key in wanted}
    values["rms_norm_eps"] = struct.unpack("f", struct.pack("f", values["rms_norm_eps"]))[0]  # the file has it in float32
    assert values == wanted, (values, wanted)
    print(f"{len(found)} tensors and {len(wanted)} values of the config as transformers reads them")


main()
