#!/usr/bin/env python3
"""Prints the text columns of Parquet files as JSON lines, for `espalier data tokenize --jsonl -`.

Usage: parquet_to_jsonl.py COLUMN[,COLUMN...] FILE... | espalier data tokenize - --jsonl --json-keys COLUMN ...
Needs the package pyarrow; reads one batch of rows at a time. Exit status 2 if a file or column cannot be read.
"""
import json
import os
import sys


def print_rows(parquet, path, columns):
    """Prints the columns of each row as one line. Raises ValueError if the file lacks a column."""
    file = parquet.ParquetFile(path)
    missing = [c for c in columns if c not in file.schema_arrow.names]
    if missing:
        raise ValueError(f"no column {', '.join(missing)}; there are {', '.join(file.schema_arrow.names)}")
    for batch in file.iter_batches(columns=columns):
        for row in batch.to_pylist():
            sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")


def main():
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        print(f"parquet_to_jsonl.py: error: Parquet files are read by pyarrow, which {sys.executable} cannot import "
              f"({error}); python3 -m pip install pyarrow", file=sys.stderr)
        return 2
    sys.stdout.reconfigure(encoding="utf-8")
    for path in sys.argv[2:]:
        try:
            print_rows(parquet, path, sys.argv[1].split(","))
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has ended and reports its own error
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except (OSError, ValueError, pyarrow.ArrowException) as error:
            print(f"{path}: error: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
