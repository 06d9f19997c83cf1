#!/usr/bin/env python3
"""Makes small.tiktoken and tekken.json, and their ids as the package `tiktoken` computes them.

Usage: make_tiktoken_cases.py SHARED_DATA FOLDER. small.tiktoken.cases.jsonl has for each pattern lines of {"encoding",
"text", "ids", "framed"}, "framed" being the ids with special tokens recognized. tekken.json.cases.jsonl has the ids of
the patterns of tekken.json. The patterns and special tokens are those that OpenAI, Meta and Alibaba publish.
"""
import base64
import json
import pathlib
import sys
from unittest import mock

import tiktoken
import tiktoken_ext.openai_public as openai
import tokenizers
from tokenizers import models, pre_tokenizers, trainers
from make_cases import SPLIT, TEXTS
from make_word_model_cases import random_texts

QWEN = SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")


def main():
    shared, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    corpus = [json.loads(line)["text"] for line in (shared / "corpus/tinyshakespeare.jsonl").open()][:1500]
    trained = tokenizers.Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=420, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    byte_of = dict(zip(map(ord, openai_alphabet()), range(256)))
    by_id = sorted(trained.get_vocab().items(), key=lambda pair: pair[1])
    texts = [bytes(byte_of[ord(c)] for c in token) for token, _ in by_id]
    ranks = {text: rank for rank, text in enumerate(sorted(texts[:256]) + texts[256:])}
    (folder / "small.tiktoken").write_text("".join(f"{base64.b64encode(t).decode()} {r}\n" for t, r in ranks.items()))
    with mock.patch.object(openai, "load_tiktoken_bpe", lambda *_, **__: ranks):
        known = {name: openai.ENCODING_CONSTRUCTORS[name]() for name in
                 ("r50k_base", "p50k_base", "cl100k_base", "o200k_base")}
    known["llama3"] = dict(pat_str=SPLIT, special_tokens={"<|begin_of_text|>": 128000, "<|end_of_text|>": 128001})
    known["qwen"] = dict(pat_str=QWEN, special_tokens={"<|endoftext|>": 151643, "<|im_start|>": 151644})
    samples = TEXTS + random_texts(12) + ["a<|endoftext|>b", "<|im_start|>x", "<|begin_of_text|>", "CamelCaseIs'nT  /\r\n/ "]
    with (folder / "small.tiktoken.cases.jsonl").open("w") as file:
        for name, one in known.items():
            encoding = tiktoken.Encoding(name, pat_str=one["pat_str"], mergeable_ranks=ranks,
                                         special_tokens=one["special_tokens"])
            for text in samples:
                file.write(json.dumps({"encoding": name, "text": text, "ids": encoding.encode_ordinary(text),
                                       "framed": encoding.encode(text, allowed_special="all")}) + "\n")
    # Mistral's file restricts the ranks to default_vocab_size and puts the special tokens first.
    special, used = ["<unk>", "<s>", "</s>", "[INST]"], 380
    pattern = known["o200k_base"]["pat_str"]
    (folder / "tekken.json").write_text(json.dumps({
        "config": {"pattern": pattern, "num_vocab_tokens": len(ranks), "default_num_special_tokens": 5,
                   "default_vocab_size": used + 5, "version": "v7"},
        "vocab": [{"rank": r, "token_bytes": base64.b64encode(t).decode(), "token_str": None} for t, r in ranks.items()],
        "special_tokens": [{"rank": i, "token_str": text, "is_control": True} for i, text in enumerate(special)]}))
    encoding = tiktoken.Encoding("tekken", pat_str=pattern, mergeable_ranks={t: r for t, r in ranks.items() if r < used},
                                 special_tokens={text: used + i for i, text in enumerate(special)})
    with (folder / "tekken.json.cases.jsonl").open("w") as file:
        for text in samples:
            framed = [i - used if i >= used else i + 5 for i in encoding.encode(text, allowed_special="all")]
            file.write(json.dumps({"text": text, "ids": [i + 5 for i in encoding.encode_ordinary(text)],
                                   "framed": [1] + framed}) + "\n")


def openai_alphabet():
    """Returns the byte-level character of each byte, in the order of the bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return [chr(b) if b in plain else chr(256 + others.index(b)) for b in range(256)]


main()
