#!/usr/bin/env python3
"""Prints tables and token files as JSON lines, for `espalier data tokenize --jsonl -`.

Usage: to_jsonl.py COLUMN[,COLUMN...] FILE|FOLDER... | espalier data tokenize - --jsonl --json-keys COLUMN ...
       to_jsonl.py --tokens uint16|uint32 [--border ID] FILE... | espalier data tokenize - --jsonl \\
           --json-keys input_ids --tokenizer null --vocab-size N ...
The first form reads Parquet and Arrow files, and the Parquet and Arrow files of a folder in the order of their names,
such as a Hugging Face data set. It needs the package pyarrow and reads one batch of rows at a time.
The second form reads the token files of nanoGPT (no header) and llm.c (a header of 1024 bytes). A document ends behind
the token --border, or before it in a file of llm.c, where the default is the token that begins a document.
Exit status 2 if a file or column cannot be read.
"""
import array
import json
import os
import pathlib
import sys

TABLES = (".parquet", ".arrow")
# The first integer of a file of llm.c: the type of its tokens, and the token that begins a document.
LLM_C = {20240520: ("uint16", 50256), 20240801: ("uint32", 128000)}
HEADER_BYTES = 1024
BLOCK_BYTES = 1 << 24


def files_of(path):
    """Returns the tables of a folder, or the file itself. Raises ValueError if a folder has none or several splits."""
    if not os.path.isdir(path):
        return [path]
    found = sorted(str(file) for file in pathlib.Path(path).rglob("*") if file.suffix in TABLES)
    if not found:
        raise ValueError("a folder without .parquet and .arrow files")
    folders = sorted({os.path.dirname(file) for file in found})
    if len(folders) > 1:
        raise ValueError(f"the folder has several data sets, give one of: {', '.join(folders)}")
    splits = sorted({os.path.basename(file).split("-")[0].split(".")[0] for file in found})
    if len(splits) > 1:
        raise ValueError(f"the folder has several splits ({', '.join(splits)}), give the files of one: "
                         f"{os.path.join(folders[0], splits[0])}*")
    return found


def batches(path, columns):
    """Yields the column names of a table, and then batches of rows."""
    import pyarrow
    import pyarrow.parquet
    with open(path, "rb") as file:
        magic = file.read(6)
    if magic.startswith(b"PAR1"):
        table = pyarrow.parquet.ParquetFile(path)
        yield table.schema_arrow.names
        yield from table.iter_batches(columns=columns)
        return
    source = pyarrow.memory_map(path)
    if magic == b"ARROW1":
        table = pyarrow.ipc.open_file(source)
        yield table.schema.names
        yield from (table.get_batch(k).select(columns) for k in range(table.num_record_batches))
    else:  # the stream format, which Hugging Face's data sets have
        table = pyarrow.ipc.open_stream(source)
        yield table.schema.names
        yield from (batch.select(columns) for batch in table)


def print_rows(path, columns):
    """Prints the columns of each row as one line. Raises ValueError if the file lacks a column."""
    rows = batches(path, columns)
    names = next(rows)
    missing = [c for c in columns if c not in names]
    if missing:
        raise ValueError(f"no column {', '.join(missing)}; there are {', '.join(names)}")
    for batch in rows:
        for row in batch.to_pylist():
            sys.stdout.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")


def print_tokens(path, kind, border):
    """Prints the documents of a token file, a line each. Raises ValueError for another type or a cut token."""
    with open(path, "rb") as file:
        known = LLM_C.get(int.from_bytes(file.read(4), "little"))
        if known and known[0] != kind:
            raise ValueError(f"the header is that of llm.c with tokens of {known[0]}, --tokens is {kind}")
        file.seek(HEADER_BYTES if known else 0)
        border = known[1] if known and border is None else border
        document = []

        def end():
            if document:
                sys.stdout.write(json.dumps({"input_ids": document}) + "\n")
                document.clear()

        while block := file.read(BLOCK_BYTES):
            tokens = array.array("H" if kind == "uint16" else "I")
            if len(block) % tokens.itemsize:
                raise ValueError(f"the size is no multiple of {tokens.itemsize} bytes, so the tokens are not {kind}")
            tokens.frombytes(block)
            if sys.byteorder == "big":
                tokens.byteswap()
            for token in tokens:
                if token == border and known:
                    end()
                document.append(token)
                if token == border and not known:
                    end()
        end()


def print_all(words):
    """Prints the files of a command line. Returns the exit status."""
    if words[0] == "--tokens":
        kind, words, border = words[1], words[2:], None
        if kind not in ("uint16", "uint32"):
            print(f"to_jsonl.py: error: --tokens {kind}, want uint16 or uint32", file=sys.stderr)
            return 2
        if words[0] == "--border":
            border, words = int(words[1]), words[2:]
        one = lambda path: print_tokens(path, kind, border)
    else:
        columns = words.pop(0).split(",")
        one = lambda path: [print_rows(file, columns) for file in files_of(path)]
    for path in words:
        try:
            one(path)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has ended and reports its own error
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except (OSError, ValueError) as error:  # errors of pyarrow are ValueErrors or OSErrors
            print(f"{path}: error: {error}", file=sys.stderr)
            return 2
    return 0


def main():
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    sys.stdout.reconfigure(encoding="utf-8")
    try:
        return print_all(sys.argv[1:])
    except ImportError as error:
        print(f"to_jsonl.py: error: tables are read by pyarrow, which {sys.executable} cannot import ({error}); "
              "python3 -m pip install pyarrow", file=sys.stderr)
        return 2
    except IndexError:
        print(__doc__, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
