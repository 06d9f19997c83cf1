#!/usr/bin/env python3
"""Writes tables as Parquet, as both formats of Arrow and as a folder, and reads each with to_jsonl.py.

Usage: to_jsonl_oracle.py TOOL FOLDER. FOLDER/rows.parquet stays."""
import json
import os
import subprocess
import sys

import pyarrow
import pyarrow.parquet

ROWS = [{"text": f"row {i}\nof \u00e9 and \U0001f642", "number": i} for i in range(7)]


def told(*words):
    return subprocess.run([sys.executable, *words], text=True, capture_output=True, check=False)


def lines_of(*words):
    answer = told(*words)
    assert answer.returncode == 0, answer.stderr
    return [json.loads(line) for line in answer.stdout.splitlines()]


tool, folder = sys.argv[1:]
table = pyarrow.Table.from_pylist(ROWS)
path = lambda *names: os.path.join(folder, *names)
os.makedirs(path("saved"), exist_ok=True)
pyarrow.parquet.write_table(table, path("rows.parquet"), row_group_size=3)
with pyarrow.OSFile(path("file.arrow"), "wb") as sink, pyarrow.ipc.new_file(sink, table.schema) as writer:
    writer.write_table(table, 3)
for shard in range(2):  # as save_to_disk of Hugging Face's datasets writes
    part = table.slice(shard * 4, 4)
    with pyarrow.OSFile(path("saved", f"data-0000{shard}-of-00002.arrow"), "wb") as sink, \
            pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(part)
for name in ("rows.parquet", "file.arrow", "saved"):
    assert lines_of(tool, "text", path(name)) == [{"text": row["text"]} for row in ROWS], name
    refused = told(tool, "title", path(name))
    assert refused.returncode == 2 and "no column title; there are text, number" in refused.stderr, refused
refused = told(tool, "text", folder)
assert refused.returncode == 2 and "the folder has several data sets" in refused.stderr, refused
open(path("junk.arrow"), "wb").write(b"junk" * 100)
assert told(tool, "text", path("junk.arrow")).returncode == 2
print(f"pyarrow {pyarrow.__version__}: {len(ROWS)} rows of 3 kinds of tables are as many lines")
