#!/usr/bin/env python3
"""Compares our trained tokenizer.json with that of the package `tokenizers`, byte by byte.

Usage: compare_trainers.py CLI SHARED_DATA
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers


def main():
    cli, shared = sys.argv[1], pathlib.Path(sys.argv[2])
    differences = 0
    for name in ("tinyshakespeare.txt", "tinyshakespeare.jsonl"):
        source = shared / "corpus" / name
        for size, frequency in ((300, 0), (2000, 0), (8000, 2), (50000, 0), (50000, 5)):
            with tempfile.TemporaryDirectory() as folder:
                begin = time.time()
                subprocess.run([cli, "data", "train-tokenizer", str(source), "--vocab-size", str(size), "--min-frequency",
                                str(frequency), "--output", f"{folder}/ours.json"], check=True, capture_output=True)
                seconds = time.time() - begin
                package = tokenizers.Tokenizer(models.BPE())
                package.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
                package.decoder = decoders.ByteLevel(add_prefix_space=False)
                trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=frequency, show_progress=False,
                                              special_tokens=["<|endoftext|>"],
                                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
                begin = time.time()
                if name.endswith(".txt"):
                    package.train([str(source)], trainer)
                else:
                    package.train_from_iterator([json.loads(line)["text"] for line in source.open()], trainer)
                theirs = time.time() - begin
                package.save(f"{folder}/theirs.json")
                ours_text, their_text = (pathlib.Path(folder, f).read_text() for f in ("ours.json", "theirs.json"))
                a, b = json.loads(ours_text), json.loads(their_text)
                same = a["model"]["vocab"] == b["model"]["vocab"] and a["model"]["merges"] == b["model"]["merges"]
                differences += not same
                print(f"{name} {size} tokens, frequency {frequency}: {'same' if same else 'DIFFERENT'} vocabulary and merges, "
                      f"file {'same' if ours_text == their_text else 'different'} bytes, ours {seconds:.2f} s, package {theirs:.2f} s")
    print(f"{differences} differences")
    return 1 if differences else 0


sys.exit(main())
