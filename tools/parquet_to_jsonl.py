#!/usr/bin/env python3
"""Prints the text columns of Parquet files as JSON lines, for `espalier data tokenize --jsonl -`.

Usage: parquet_to_jsonl.py COLUMN[,COLUMN...] FILE... | espalier data tokenize - --jsonl --json-keys COLUMN ...
Needs the package pyarrow; reads one row group at a time. Exit status 2 for a file or column that cannot be read.
"""
import json
import sys

import pyarrow
import pyarrow.parquet


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    columns = sys.argv[1].split(",")
    for path in sys.argv[2:]:
        try:
            file = pyarrow.parquet.ParquetFile(path)
            missing = [c for c in columns if c not in file.schema_arrow.names]
            if missing:
                raise pyarrow.ArrowInvalid(f"no column {', '.join(missing)}; there are {', '.join(file.schema_arrow.names)}")
            for batch in file.iter_batches(columns=columns):
                for row in batch.to_pylist():
                    sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
        except (OSError, pyarrow.ArrowException) as error:
            print(f"{path}: error: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
