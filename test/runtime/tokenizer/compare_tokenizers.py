#!/usr/bin/env python3
"""Compares our tokenizers with the packages `tokenizers` and `sentencepiece`, id by id.

Usage: compare_tokenizers.py CLI SHARED_DATA [ROUNDS]
CLI is build/bin/espalier. Both packages must be installed. Trains small models of every form that we read, encodes
random and real text with both implementations, and prints `N texts, M differences` at the end.
"""
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "golden/tokenizers"))
from make_step_cases import LLAMA3, every_character, marks, step_models  # noqa: E402

def random_texts(rounds, seed):
    """Returns random Unicode, code, emoji, control characters, combining marks and very long words."""
    rng = random.Random(seed)
    words = ["the", "don't", "we'll", "I'VE", "naïve", "🙂", "👩‍👩‍👧", "e\u0301", "中文", "हिन्दी", "x=1;", "\t", "\n",
             "\r\n", "  ", "\u00a0", "\u3000", "\u2028", "\u180e", "123456", "½", "٣", "'", "''s", "<|endoftext|>",
             "</s>", "<s>", "▁", "_", "(){}[]", "#include <x>", "\x00", "\x1f", "\u200d", "ﬁ", "Å", "ｆｕｌｌ"]
    texts = ["", " ", "\n", "a", " a ", "▁", "<0x0A>"]
    for i in range(rounds):
        kind = i % 6
        if kind == 0:
            texts.append("".join(rng.choice(words) + rng.choice(["", " ", "  "]) for _ in range(rng.randrange(40))))
        elif kind == 1:
            texts.append("".join(chr(rng.choice([rng.randrange(0x80), rng.randrange(0x3000), rng.randrange(0xd800)]))
                                 for _ in range(rng.randrange(80))))
        elif kind == 2:
            texts.append("".join(chr(rng.randrange(0xe000, 0x110000)) for _ in range(rng.randrange(20))))
        elif kind == 3:
            texts.append("".join(rng.choice(" \t\n'sreve1!a\u00e9") for _ in range(rng.randrange(60))))
        elif kind == 4:
            texts.append("".join(rng.choice("abcdeinrst") for _ in range(rng.randrange(400))))
        else:
            texts.append("".join(chr(rng.randrange(32)) if rng.random() < .2 else rng.choice("The cat sat on it. ")
                                 for _ in range(rng.randrange(100))))
    return texts


def ours(cli, folder, texts, arguments):
    """Returns our ids of each text."""
    source = pathlib.Path(folder, "in.jsonl")
    with source.open("w") as file:
        for text in texts:
            file.write(json.dumps({"text": text}) + "\n")
    prefix = pathlib.Path(folder, "out")
    result = subprocess.run([cli, "data", "tokenize", str(source), "--output-prefix", str(prefix), "--overwrite", *arguments],
                            capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{' '.join(arguments)}: {result.stderr}")
    index = pathlib.Path(f"{prefix}_text_document.idx").read_bytes()
    tokens = pathlib.Path(f"{prefix}_text_document.bin").read_bytes()
    sequences, entries = struct.unpack_from("<QQ", index, 18)
    lengths = struct.unpack_from(f"<{sequences}i", index, 34)
    documents = struct.unpack_from(f"<{entries}q", index, 34 + 12 * sequences)
    code = {8: ("H", 2), 4: ("i", 4)}[index[17]]
    ids = struct.unpack(f"<{len(tokens) // code[1]}{code[0]}", tokens)
    out, at = [], 0
    for first, last in zip(documents, documents[1:]):
        length = sum(lengths[first:last])
        out.append(list(ids[at:at + length]))
        at += length
    return out


def hf_models(corpus):
    """Yields (name, tokenizer) for every form of tokenizer.json that we read."""
    def train(tokenizer, vocabulary=1500, **more):
        tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
            vocab_size=vocabulary, show_progress=False, special_tokens=["<unk>", "<s>", "</s>"], **more))
        return tokenizer

    alphabet = pre_tokenizers.ByteLevel.alphabet()
    plain = tokenizers.Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    yield "byte-level", train(plain, initial_alphabet=alphabet)
    prefixed = tokenizers.Tokenizer(models.BPE())
    prefixed.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                      pre_tokenizers.ByteLevel(add_prefix_space=True)])
    prefixed.decoder = decoders.ByteLevel()
    train(prefixed, initial_alphabet=alphabet)
    prefixed.add_tokens([tokenizers.AddedToken("cat", single_word=True, normalized=True),
                         tokenizers.AddedToken("<|endoftext|>", lstrip=True, rstrip=True)])
    yield "digits, prefix, added tokens", prefixed
    split = tokenizers.Tokenizer(models.BPE(ignore_merges=True))
    split.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    split.decoder = decoders.ByteLevel()
    train(split, initial_alphabet=alphabet)
    split.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    yield "llama 3 pattern", split
    byte_tokens = [f"<0x{b:02X}>" for b in range(256)]
    for name, setup in (("prepend and replace", None), ("metaspace first", "first"), ("metaspace always", "always")):
        chars = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        if setup is None:
            chars.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        else:
            chars.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=setup)
        chars.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
        trainer = trainers.BpeTrainer(vocab_size=1500, show_progress=False,
                                      special_tokens=["<unk>", "<s>", "</s>"] + byte_tokens)
        chars.train_from_iterator(corpus[:3000], trainer)
        # The byte tokens are part of the model, not special tokens to look for.
        state = json.loads(chars.to_str())
        state["added_tokens"] = state["added_tokens"][:3]
        yield name, tokenizers.Tokenizer.from_str(json.dumps(state))
    unknown = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    unknown.pre_tokenizer = pre_tokenizers.Split("e", "merged_with_previous")
    yield "unknown characters", train(unknown)
    bert = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    bert.normalizer, bert.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    special = ["[UNK]", "[CLS]", "[SEP]"]
    bert.train_from_iterator(corpus, trainers.WordPieceTrainer(vocab_size=1500, show_progress=False, special_tokens=special))
    bert.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    yield "WordPiece", bert


def unigram_models(folder):
    """Yields (name, tokenizer) of the type Unigram, with the pieces and the character maps of SentencePiece models."""
    for number in (5, 6):
        proto = sentencepiece_model_pb2.ModelProto.FromString(pathlib.Path(folder, f"sp{number}.model").read_bytes())
        unigram = tokenizers.Tokenizer(models.Unigram([(piece.piece, piece.score) for piece in proto.pieces], unk_id=0,
                                                      byte_fallback=number == 6))
        unigram.normalizer = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
        unigram.pre_tokenizer = pre_tokenizers.Metaspace()
        unigram.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
        yield f"Unigram {number}", unigram


def sp_models(corpus, folder):
    source = pathlib.Path(folder, "corpus.txt")
    source.write_text("\n".join(" ".join(text.split()) for text in corpus[:4000]))
    for number, more in enumerate((
            dict(normalization_rule_name="identity", byte_fallback=True, remove_extra_whitespaces=False),
            dict(normalization_rule_name="nmt_nfkc"),
            dict(normalization_rule_name="nfkc_cf", byte_fallback=True, user_defined_symbols=["thou", "<sep>", "the"]),
            dict(normalization_rule_name="identity", add_dummy_prefix=False, split_digits=True),
            dict(normalization_rule_name="identity", treat_whitespace_as_suffix=True),
            dict(normalization_rule_name="nmt_nfkc", model_type="unigram"),
            dict(normalization_rule_name="nmt_nfkc_cf", model_type="unigram", byte_fallback=True,
                 user_defined_symbols=["thou", "<sep>", "the"]))):
        prefix = str(pathlib.Path(folder, f"sp{number}"))
        sentencepiece.SentencePieceTrainer.train(input=str(source), model_prefix=prefix, vocab_size=1200, minloglevel=2,
                                                 **{"model_type": "bpe", **more})
        yield f"sentencepiece {more}", prefix + ".model"


def main():
    cli, shared = sys.argv[1], pathlib.Path(sys.argv[2])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3000
    corpus = [json.loads(line)["text"] for line in (shared / "corpus/tinyshakespeare.jsonl").open()]
    texts = random_texts(rounds, 1) + corpus + ["\n\n".join(corpus)[:200000]]
    characters = list(every_character()) + list(marks())
    total = differences = 0

    def check(name, got, want, texts=texts):
        nonlocal total, differences
        wrong = [i for i in range(len(texts)) if got[i] != want[i]]
        print(f"{name}: {len(texts)} texts, {len(wrong)} differences", flush=True)
        for i in wrong[:2]:
            print("  ", repr(texts[i][:300]), "\n   ours", got[i][:60], "\n   want", want[i][:60])
        total += len(texts)
        differences += len(wrong)

    with tempfile.TemporaryDirectory() as folder:
        gpt2_files = [str(shared / "gpt2_bpe/encoder.json"), str(shared / "gpt2_bpe/vocab.bpe")]
        gpt2 = tokenizers.ByteLevelBPETokenizer(*gpt2_files)
        check("gpt2", ours(cli, folder, texts, ["--tokenizer", "gpt2", "--vocab-file", gpt2_files[0], "--merge-file",
                                                gpt2_files[1]]), [e.ids for e in gpt2.encode_batch(texts)])
        for name, path in sp_models(corpus, folder):
            processor = sentencepiece.SentencePieceProcessor(model_file=path)
            check(name, ours(cli, folder, texts, ["--tokenizer", "sentencepiece", "--tokenizer-model", path]),
                  processor.encode(texts))
        for name, tokenizer in [*hf_models(corpus), *unigram_models(folder)]:
            path = str(pathlib.Path(folder, "tokenizer.json"))
            tokenizer.save(path)
            chosen = texts + (characters if name.startswith("Unigram") else [])
            for special in (False, True):
                check(f"{name}, special tokens {special}",
                      ours(cli, folder, chosen, ["--tokenizer", "hf", "--tokenizer-model", path]
                           + ["--special-tokens"] * special),
                      [e.ids for e in tokenizer.encode_batch(chosen, add_special_tokens=special)], chosen)
        for name, tokenizer in step_models():
            path = str(pathlib.Path(folder, "tokenizer.json"))
            tokenizer.save(path)
            chosen = texts[:rounds] + characters
            check(name, ours(cli, folder, chosen, ["--tokenizer", "hf", "--tokenizer-model", path]),
                  [e.ids for e in tokenizer.encode_batch(chosen)], chosen)
    print(f"{total} texts, {differences} differences")
    return 1 if differences else 0


sys.exit(main())
