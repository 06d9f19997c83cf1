#!/usr/bin/env python3
"""Compares a GGUF file with the record of test/golden/gguf_reference.py. Usage: gguf.py FILE TYPE RECORD"""
import hashlib
import json
import math
import pathlib
import struct
import sys

FORMATS = {4: "I", 5: "i", 6: "f", 7: "?"}
BYTES = {0: (1, 4), 1: (1, 2), 8: (32, 34), 30: (1, 2)}  # elements and bytes of a block


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def text(self):
        size = self.number("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind != 9:
            return self.number(FORMATS[kind])
        inner, count = self.number("I"), self.number("Q")
        return [self.value(inner) for _ in range(count)]


def main():
    data, kind, record = pathlib.Path(sys.argv[1]).read_bytes(), sys.argv[2], json.loads(pathlib.Path(sys.argv[3]).read_text())
    reader = Reader(data)
    assert reader.number("I") == 0x46554747 and reader.number("I") == 3
    tensors, keys = reader.number("Q"), reader.number("Q")
    found = {reader.text(): reader.value(reader.number("I")) for _ in range(keys)}
    assert found.pop("general.file_type") == record["file_type"][kind]
    found = {key: hashlib.sha256(json.dumps(value).encode()).hexdigest() if isinstance(value, list) else value
             for key, value in found.items()}
    assert found == record["keys"], sorted(set(found.items()) ^ set(record["keys"].items()))
    infos = []
    for _ in range(tensors):
        name, axes = reader.text(), reader.number("I")
        infos.append((name, [reader.number("Q") for _ in range(axes)], reader.number("I"), reader.number("Q")))
    start = (reader.at + 31) // 32 * 32
    listed = {}
    for name, shape, form, offset in infos:
        elements, size = BYTES[form]
        end = start + offset + math.prod(shape) // elements * size
        assert offset % 32 == 0 and end <= len(data), name
        listed[name] = [form, shape, hashlib.sha256(data[start + offset:end]).hexdigest()]
    wanted = record["tensors"][kind]
    assert listed == wanted, [name for name in {*listed, *wanted} if listed.get(name) != wanted.get(name)]
    print(f"{tensors} tensors and {keys} keys as recorded")


main()
