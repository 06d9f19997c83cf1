#!/usr/bin/env python3
"""Writes a parquet file with several row groups and reads it with parquet_to_jsonl.py.

Usage: parquet_oracle.py TOOL FILE"""
import json
import subprocess
import sys

import pyarrow
import pyarrow.parquet

ROWS = [{"text": f"row {i}\nof \u00e9 and \U0001f642", "number": i} for i in range(7)]


def told(*words):
    return subprocess.run([sys.executable, *words], text=True, capture_output=True, check=False)


tool, file = sys.argv[1:]
pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), file, row_group_size=3)
answer = told(tool, "text", file)
lines = [json.loads(line) for line in answer.stdout.splitlines()]
assert lines == [{"text": row["text"]} for row in ROWS], (lines, answer.stderr)
refused = told(tool, "title", file)
assert refused.returncode == 2 and "no column title; there are text, number" in refused.stderr, refused
print(f"pyarrow {pyarrow.__version__}: {len(lines)} rows of parquet are as many lines")
