#!/usr/bin/env python3
"""Prints continuations of prompts by the models of this folder, as the packages `tokenizers` and `sentencepiece` give them.

Usage: make_continuations.py FOLDER > FOLDER/continuations.jsonl. A line has {"model", "prompt", "new", "text",
"pieces"}: the ids, the text decode(prompt + new) minus decode(prompt), and the text that each new id adds to the ids
before it. The packages write U+FFFD for each byte of an incomplete character, so "pieces" is null where a character has
several ids, and a text with U+FFFD is left out.
"""
import json
import os.path
import pathlib
import random
import sys

import sentencepiece
import tokenizers

TEXTS = ["one two three", "thou art  there ", "naïve 中文 🙂 end", " leading", "the <s>cat</s> sat", "ﬁrst", "a", "▁ ▁x"]


def decoder_of(path):
    """Returns the number of ids, and the functions that encode and decode."""
    if path.suffix == ".model":
        model = sentencepiece.SentencePieceProcessor(model_file=str(path))
        return model.vocab_size(), model.encode, model.decode
    model = tokenizers.Tokenizer.from_file(str(path))
    return (model.get_vocab_size(), lambda text: model.encode(text, add_special_tokens=False).ids,
            lambda ids: model.decode(ids, skip_special_tokens=False))


def added(decode, before, ids):
    both = decode(before + ids)
    return both[len(os.path.commonprefix([decode(before), both])):]


def main():
    folder = pathlib.Path(sys.argv[1])
    draw = random.Random(7)
    for path in sorted([*folder.glob("*.json"), *folder.glob("*.model")]):
        size, encode, decode = decoder_of(path)
        lists = [encode(text) for text in TEXTS]
        lists += [lists[k % 3] * 20 for k in range(3)]
        lists += [[draw.randrange(size) for _ in range(draw.randrange(2, 40))] for _ in range(16)]
        for ids in lists:
            at = draw.randrange(0, len(ids))
            prompt, new = ids[:at], ids[at:]
            text = added(decode, prompt, new)
            if "\ufffd" in text:
                continue
            starts = [prompt + new[:k] for k in range(len(new))]
            pieces = [added(decode, start, new[len(start) - at:][:1]) for start in starts]
            isWhole = not any("\ufffd" in decode(start) for start in starts)
            print(json.dumps({"model": path.name, "prompt": prompt, "new": new, "text": text,
                              "pieces": pieces if isWhole else None}))


main()
