#!/usr/bin/env python3
"""Makes small models of the types Unigram and WordPiece, and their ids as `tokenizers` and `sentencepiece` compute them.

Usage: make_word_model_cases.py SHARED_DATA FOLDER. The files have the form that make_cases.py describes. Beside its
texts, each model has random ones.
"""
import json
import pathlib
import random
import sys
import tempfile

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from make_cases import TEXTS, save

RULES = "FB01\t66 69\n41 30A\tC5\n65 301\tE9\nBD\t31 2F 32\n3000\t20\n9\t20\nA\t20\nD\t20\n200D\t\n41\t61\n"


def random_texts(count=60, seed=7):
    """Returns texts of words, marks, emoji, ideographs, control characters and random code points."""
    rng = random.Random(seed)
    words = ["the", "thou art", "don't", "Romeo", "naïve", "e\u0301", "A\u030a", "中文字", "हिन्दी", "x=1;", "\t", "\r\n", "  ",
             "\u00a0", "\u3000", "\u2028", "123", "½", "ﬁ", "ｆｕｌｌ", "</s>", "[MASK]", "▁", "##s", ".", ",", "'", "\u200d", "🙂", "\x07",
             "\ufffd", "\u0301", "\U000e0041", "\u1734", "\u11f01", "superfluous", "x" * 120]
    texts = []
    for i in range(count):
        if i % 3 == 2:
            texts.append("".join(chr(rng.choice([rng.randrange(0x20, 0x250), rng.randrange(0x3000),
                                                 rng.randrange(0xe000, 0x110000)])) for _ in range(rng.randrange(30))))
        else:
            texts.append("".join(rng.choice(words) + rng.choice(["", " ", "  "]) for _ in range(rng.randrange(20))))
    return texts


def train_sentencepiece(corpus, prefix, scratch, **more):
    """Trains a unigram model PREFIX.model."""
    text = pathlib.Path(scratch, "corpus.txt")
    text.write_text("\n".join(" ".join(t.split()) for t in corpus))
    rules = pathlib.Path(scratch, "rules.tsv")
    rules.write_text(RULES)
    sentencepiece.SentencePieceTrainer.train(input=str(text), model_prefix=prefix, model_type="unigram", minloglevel=2,
                                             normalization_rule_tsv=str(rules), **more)
    pathlib.Path(prefix + ".vocab").unlink()


def main():
    shared, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    corpus = [json.loads(line)["text"] for line in (shared / "corpus/tinyshakespeare.jsonl").open()][:1500]
    texts = TEXTS + random_texts()
    with tempfile.TemporaryDirectory() as scratch:
        for name, more in (("unigram", dict(vocab_size=300, user_defined_symbols=["thou", "<tag>"])),
                           ("unigram_bytes", dict(vocab_size=450, byte_fallback=True, split_by_whitespace=False,
                                                  remove_extra_whitespaces=False))):
            prefix = str(folder / name)
            train_sentencepiece(corpus, prefix, scratch, **more)
            processor = sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")
            with (folder / f"{name}.model.cases.jsonl").open("w") as file:
                for one in texts:
                    ids = processor.encode(one)
                    file.write(json.dumps({"text": one, "ids": ids, "framed": [1] + ids,
                                           "decoded": processor.decode(ids)}) + "\n")
    proto = sentencepiece_model_pb2.ModelProto.FromString((folder / "unigram.model").read_bytes())
    charsmap = proto.normalizer_spec.precompiled_charsmap
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]

    t5 = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=0))
    t5.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap), normalizers.Strip(left=False),
                                          normalizers.Replace(Regex(" {2,}"), "▁")])
    t5.pre_tokenizer = pre_tokenizers.Metaspace()
    t5.decoder = decoders.Metaspace()
    t5.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    t5.add_special_tokens(["<unk>", "</s>", "[MASK]"])
    save(folder, "unigram.json", t5, texts)

    fallback = tokenizers.Tokenizer(models.Unigram(
        [(piece.piece, piece.score) for piece in
         sentencepiece_model_pb2.ModelProto.FromString((folder / "unigram_bytes.model").read_bytes()).pieces],
        unk_id=0, byte_fallback=True))
    fallback.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKD(), normalizers.StripAccents(),
                                                normalizers.Lowercase()])
    fallback.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                                      pre_tokenizers.CharDelimiterSplit("="),
                                                      pre_tokenizers.Metaspace(prepend_scheme="always")])
    fallback.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                          decoders.Strip(" ", 1, 0)])
    fallback.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    save(folder, "unigram_bytes.json", fallback, texts)

    bert = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    bert.normalizer = normalizers.BertNormalizer()
    bert.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    bert.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    bert.train_from_iterator(corpus, trainers.WordPieceTrainer(vocab_size=400, show_progress=False, special_tokens=special))
    bert.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    save(folder, "wordpiece.json", bert, texts)

    cased = tokenizers.Tokenizer(models.WordPiece(bert.get_vocab(), unk_token="[UNK]", continuing_subword_prefix="##",
                                                  max_input_chars_per_word=9))
    cased.normalizer = normalizers.BertNormalizer(lowercase=False, handle_chinese_chars=False)
    cased.pre_tokenizer = pre_tokenizers.Whitespace()
    cased.decoder = decoders.WordPiece(cleanup=False)
    save(folder, "wordpiece_cased.json", cased, texts)


if __name__ == "__main__":
    main()
