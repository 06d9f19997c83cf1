#!/usr/bin/env python3
"""Makes steps.jsonl: the results of the package `tokenizers` for every supported normalizer and pre-tokenizer.

Usage: make_step_cases.py FOLDER. One line a step: {"name", "normalizer", "pre_tokenizer", "ids",
"texts", "every": digest of the ids of every character}.
"""
import hashlib
import json
import pathlib
import random
import struct
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, models, normalizers, pre_tokenizers

TEXTS = ["", " ", "  Hello, World 12½³ x_y don't  ", "E\u0301\u0323 \u0344 \u1100\u1161\u11a8 \uac00\u11a8 ﬁ Å ｆｕｌｌ ﷺ",
         "İSTANBUL ΑΣ \ua7dc 'S 'ſ", "\u180e\u2028\n\ta\r\nb \u200d a\u200db c\u0301d", "$1+2=<3> (a)[b]…—", "aTa T",
         "q\u0301\u0334\u0323\U0001d165\U0001d16e\u11930\u0301", "\u3000x\u3000"]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")

GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def every_character():
    """Yields texts with every code point, each after a letter."""
    points = [c for c in range(0x110000) if not 0xd800 <= c < 0xe000]
    for start in range(0, len(points), 512):
        yield "".join("a" + chr(c) for c in points[start:start + 512])


def marks():
    """Yields texts with every code point and marks that reorder and compose, and texts with runs of random marks."""
    points = [chr(c) for c in range(0x110000) if not 0xd800 <= c < 0xe000]
    for start in range(0, len(points), 512):
        yield "".join(c + "\u0301\u0334\u0323" for c in points[start:start + 512])
    rng = random.Random(2)
    combining = [c for c in points if unicodedata.combining(c)]
    for _ in range(400):
        yield "".join(rng.choice(["a", "A\u030a", "\u1100\u1161", "\u11a8", "\u0dd9", "q", " "])
                      + "".join(rng.choice(combining) for _ in range(rng.randrange(12))) for _ in range(20))


def step_models():
    """Yields (name, tokenizer) for every normalizer and pre-tokenizer. For normalizers, bytes are tokens, so that ids
    show the result. For pre-tokenizers, each word is one unknown token, so that ids show the cuts."""
    def model(**more):
        tokens = {token: i for i, token in enumerate(["<unk>"] + [f"<0x{b:02X}>" for b in range(256)])}
        return tokenizers.Tokenizer(models.BPE(vocab=tokens, merges=[], unk_token="<unk>", fuse_unk=True, **more))

    for step in (normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD(), normalizers.Lowercase(),
                 normalizers.Strip(), normalizers.Strip(left=False), normalizers.Strip(right=False),
                 normalizers.Replace(Regex(r"\s+"), "_"), normalizers.Nmt(), normalizers.StripAccents(),
                 normalizers.BertNormalizer(), normalizers.BertNormalizer(lowercase=False),
                 normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=False),
                 normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(), normalizers.Lowercase(),
                                       normalizers.NFD(), normalizers.Prepend("▁")])):
        tokenizer = model(byte_fallback=True)
        tokenizer.normalizer = step
        yield f"normalizer {step}", tokenizer
    for step in (pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(True),
                 pre_tokenizers.Digits(False), pre_tokenizers.BertPreTokenizer(), pre_tokenizers.CharDelimiterSplit("a"),
                 *(pre_tokenizers.Punctuation(b) for b in ("isolated", "removed", "contiguous", "merged_with_previous",
                                                           "merged_with_next")),
                 *(pre_tokenizers.Split(Regex(r"[a-z]\s|\d+"), b, invert) for b in ("isolated", "removed", "contiguous")
                   for invert in (False, True)),
                 *(pre_tokenizers.Split(Regex(p), "isolated") for p in (
                     LLAMA3, GPT4O, r"^\w+|\W$", r"[\S]+", r"[^\d\S]|\p{^L}\PN", r"[\p{P}\p{S}\p{M}]+|\h")),
                 pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(),
                                          pre_tokenizers.Digits(True), pre_tokenizers.Metaspace(prepend_scheme="first")])):
        tokenizer = model()
        tokenizer.pre_tokenizer = step
        yield f"pre-tokenizer {step}", tokenizer
    for step in (normalizers.Strip(), normalizers.BertNormalizer(), normalizers.Replace("a", ""), normalizers.Replace("T", "tt"),
                 normalizers.Sequence([normalizers.Strip(), normalizers.Prepend("x")])):
        both = model(byte_fallback=True)
        both.normalizer = step
        both.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
        yield f"{step} before metaspace", both


def main():
    everything = list(every_character())
    with pathlib.Path(sys.argv[1], "steps.jsonl").open("w") as file:
        for name, tokenizer in step_models():
            state = json.loads(tokenizer.to_str())
            digest = hashlib.sha256()
            for encoding in tokenizer.encode_batch(everything):
                digest.update(struct.pack(f"<{len(encoding.ids)}i", *encoding.ids))
            file.write(json.dumps({
                "name": name, "normalizer": state["normalizer"], "pre_tokenizer": state["pre_tokenizer"],
                "byte_fallback": state["model"]["byte_fallback"], "texts": TEXTS,
                "ids": [tokenizer.encode(text).ids for text in TEXTS], "every": digest.hexdigest()}) + "\n")


if __name__ == "__main__":
    main()
