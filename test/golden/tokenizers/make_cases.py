#!/usr/bin/env python3
"""Makes the small models of this folder, and their ids as the packages `tokenizers` and `sentencepiece` compute them.

Usage: make_cases.py SHARED_DATA FOLDER. Each model file NAME has NAME.cases.jsonl beside it: {"text", "ids",
"framed"} per line, "framed" being the ids with the post-processor's tokens.
"""
import json
import pathlib
import sys
import tempfile

import sentencepiece
import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXTS = ["", " ", "Hello, world", "  two  spaces ", "we'll don't I'VE", "tab\tnew\n\nline", "naïve e\u0301 中文 🙂",
         "12345 ½ ٣", "\x00\x01\u200d", "<unk><s>thou</s> cat scatter", "the<|end|> \u2028\u3000x", "▁already▁ there",
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ﬁ Å", "\U0010ffff"]
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")


def save(folder, name, tokenizer, texts=TEXTS):
    path = folder / name
    tokenizer.save(str(path))
    with (folder / f"{name}.cases.jsonl").open("w") as file:
        for text in texts:
            file.write(json.dumps({
                "text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids,
                "framed": tokenizer.encode(text).ids,
                "decoded": tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids,
                                            skip_special_tokens=False)}) + "\n")


def main():
    shared, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    corpus = [json.loads(line)["text"] for line in (shared / "corpus/tinyshakespeare.jsonl").open()][:1500]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<unk>", "<s>", "</s>"]

    def train(tokenizer, size, **more):
        tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=size, show_progress=False, **more))
        return tokenizer

    split = tokenizers.Tokenizer(models.BPE(ignore_merges=True))
    split.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    split.decoder = decoders.ByteLevel()
    train(split, 400, initial_alphabet=alphabet, special_tokens=special)
    split.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    save(folder, "split.json", split)

    prefixed = tokenizers.Tokenizer(models.BPE())
    prefixed.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                      pre_tokenizers.ByteLevel(add_prefix_space=True)])
    prefixed.decoder = decoders.ByteLevel()
    train(prefixed, 320, initial_alphabet=alphabet, special_tokens=special)
    prefixed.add_tokens([tokenizers.AddedToken("cat", single_word=True),
                         tokenizers.AddedToken("<|end|>", lstrip=True, rstrip=True)])
    save(folder, "prefixed.json", prefixed)

    chars = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    chars.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    chars.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                       decoders.Strip(" ", 1, 0)])
    train(chars, 450, special_tokens=special + [f"<0x{b:02X}>" for b in range(256)])
    state = json.loads(chars.to_str())
    state["added_tokens"] = state["added_tokens"][:3]
    save(folder, "chars.json", tokenizers.Tokenizer.from_str(json.dumps(state)))

    meta = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    meta.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    meta.decoder = decoders.Metaspace(prepend_scheme="first")
    save(folder, "metaspace.json", train(meta, 200, special_tokens=special))

    with tempfile.TemporaryDirectory() as scratch:
        text = pathlib.Path(scratch, "corpus.txt")
        text.write_text("\n".join(" ".join(t.split()) for t in corpus))
        rules = pathlib.Path(scratch, "rules.tsv")
        rules.write_text("FB01\t66 69\n41 30A\tC5\n3000\t20\n9\t20\nA\t20\n200D\t\n")
        for name, more in (("bytes", dict(normalization_rule_name="identity", byte_fallback=True, vocab_size=450,
                                          remove_extra_whitespaces=False)),
                           ("rules", dict(normalization_rule_tsv=str(rules), vocab_size=200,
                                          user_defined_symbols=["thou", "the"]))):
            prefix = str(folder / name)
            sentencepiece.SentencePieceTrainer.train(input=str(text), model_prefix=prefix, model_type="bpe",
                                                     minloglevel=2, **more)
            pathlib.Path(prefix + ".vocab").unlink()
            processor = sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")
            with (folder / f"{name}.model.cases.jsonl").open("w") as file:
                for one in TEXTS:
                    ids = processor.encode(one)
                    file.write(json.dumps({"text": one, "ids": ids, "framed": [1] + ids,
                                           "decoded": processor.decode(ids)}) + "\n")


if __name__ == "__main__":
    main()
