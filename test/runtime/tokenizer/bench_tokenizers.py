#!/usr/bin/env python3
"""Compares the speed of our GPT-2 tokenizer with the package `tokenizers`, on one core each.

Usage: bench_tokenizers.py CLI SHARED_DATA [COPIES]
CLI is build/bin/espalier. The text is the tinyshakespeare corpus, COPIES times (default 20). Times are CPU seconds of
the process, so that other load on the machine does not matter. Ours include reading and writing files.
"""
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # noqa: E402  (reads the environment when it is loaded)


def ours(cli, arguments, folder):
    """Returns the CPU seconds of one run of the command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([cli, "data", "tokenize", *arguments, "--output-prefix", f"{folder}/out"], check=True,
                   stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def theirs(encode, texts):
    begin = time.process_time()
    encode(texts)
    return time.process_time() - begin


def main():
    cli, shared = sys.argv[1], pathlib.Path(sys.argv[2])
    copies = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    documents = [json.loads(line)["text"] for line in (shared / "corpus/tinyshakespeare.jsonl").open()] * copies
    text_bytes = sum(len(d.encode()) for d in documents)
    files = [str(shared / "gpt2_bpe/encoder.json"), str(shared / "gpt2_bpe/vocab.bpe")]
    options = ["--tokenizer", "gpt2", "--vocab-file", files[0], "--merge-file", files[1]]
    with tempfile.TemporaryDirectory() as folder:
        jsonl, text, empty = (pathlib.Path(folder, name) for name in ("a.jsonl", "a.txt", "empty.txt"))
        jsonl.write_text("".join(json.dumps({"text": d}) + "\n" for d in documents))
        text.write_text("\n\n".join(documents))
        empty.write_text("")
        start = min(ours(cli, [str(empty), *options], folder) for _ in range(3))
        rows = [(f"ours, {path.suffix}", min(ours(cli, [str(path), *options], folder) for _ in range(3)) - start)
                for path in (text, jsonl)]
        package = tokenizers.ByteLevelBPETokenizer(*files)
        package.encode_batch(documents[:7222])
        rows.append(("tokenizers, encode_batch", min(theirs(package.encode_batch, documents) for _ in range(2))))
        rows.append(("tokenizers, encode_batch_fast",
                     min(theirs(package._tokenizer.encode_batch_fast, documents) for _ in range(2))))
    print(f"{text_bytes / 1e6:.1f} MB in {len(documents)} documents; start-up of ours, left out: {start:.2f} s")
    for name, seconds in rows:
        print(f"{name:32} {seconds:7.2f} CPU s {text_bytes / 1e6 / seconds:8.1f} MB/s")


main()
