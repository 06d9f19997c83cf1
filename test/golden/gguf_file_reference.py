#!/usr/bin/env python3
"""Writes gguf/small.gguf with the package `gguf`, and gguf/small.json with what transformers reads from it.

The file has the four types that are read, a tied head, a tokenizer with scores, and none of the keys whose values llama.cpp
assumes. The record has a digest of each tensor in float32 under the names of transformers, values of the config, and the
ids that llama.cpp gives texts. Usage: gguf_file_reference.py, in an environment with gguf, transformers, torch and xllamacpp.
"""
import hashlib
import json
import pathlib
import urllib.request

import gguf
import numpy
import transformers
import xllamacpp

HIDDEN, FFN, HEADS, KV_HEADS, LAYERS = 32, 64, 4, 2, 2
PIECES = ["▁t", "he", "▁the", "in", "er", "▁a", "▁an", "nd", "▁and", "ing", "en", "▁s", "▁se", "▁sen", "ten", "▁senten", "ce", "é"]
TEXTS = ["the sentence", " and  the end", "Thé é in\nging", "", "a ", "ß 1", "<s>the</s> then"]
QUANTIZED, HALF, BRAIN, WHOLE = (gguf.GGMLQuantizationType[name] for name in ("Q8_0", "F16", "BF16", "F32"))


def vocabulary():
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    types = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL] + [gguf.TokenType.BYTE] * 256
    pieces = PIECES + sorted({letter for piece in PIECES for letter in piece} - {"é"})
    return tokens + pieces, types + [gguf.TokenType.NORMAL] * len(pieces), [0.0] * 259 + [-float(i) for i in range(len(pieces))]


def add(writer, name, shape, kind):
    count = int(numpy.prod(shape))
    seed = sum(name.encode())
    values = (numpy.sin(numpy.arange(count, dtype=numpy.float64) * (1 + seed % 7) + seed) / 4).astype(numpy.float32).reshape(shape)
    writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)


def write(file):
    tokens, types, scores = vocabulary()
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(5000.0)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([token.encode() for token in tokens])
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    kv = HIDDEN // HEADS * KV_HEADS
    add(writer, "token_embd.weight", (len(tokens), HIDDEN), HALF)
    add(writer, "output_norm.weight", (HIDDEN,), WHOLE)
    for layer in range(LAYERS):
        for name, shape, kind in (("attn_norm", (HIDDEN,), WHOLE), ("ffn_norm", (HIDDEN,), WHOLE),
                                  ("attn_q", (HIDDEN, HIDDEN), BRAIN), ("attn_k", (kv, HIDDEN), BRAIN),
                                  ("attn_v", (kv, HIDDEN), WHOLE), ("attn_output", (HIDDEN, HIDDEN), QUANTIZED),
                                  ("ffn_gate", (FFN, HIDDEN), QUANTIZED), ("ffn_up", (FFN, HIDDEN), HALF),
                                  ("ffn_down", (HIDDEN, FFN), QUANTIZED)):
            add(writer, f"blk.{layer}.{name}.weight", shape, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def ids_of(file, texts):
    """Returns each text with the ids of llama.cpp's server."""
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.warmup, params.n_parallel = str(file), 64, False, 1
    server = xllamacpp.Server(params)
    found = []
    for text in texts:
        body = json.dumps({"content": text, "add_special": True, "parse_special": True}).encode()
        request = urllib.request.Request(server.listening_address + "/tokenize", body, {"Content-Type": "application/json"})
        found.append([text, json.loads(urllib.request.urlopen(request).read())["tokens"]])
    return found


def main():
    folder = pathlib.Path(__file__).parent / "gguf"
    write(folder / "small.gguf")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file="small.gguf", dtype="float32")
    config = model.config.to_dict()
    state = {name: hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for name, tensor in model.state_dict().items()
             if name != "lm_head.weight"}
    record = {"made_by": f"gguf_file_reference.py with gguf, transformers {transformers.__version__}",
              "config": {key: config[key] for key in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                                                      "num_attention_heads", "num_key_value_heads", "rms_norm_eps",
                                                      "max_position_embeddings", "tie_word_embeddings")},
              "rope_theta": config.get("rope_theta") or config["rope_parameters"]["rope_theta"],
              "tensors": dict(sorted(state.items())),
              "ids": ids_of(folder / "small.gguf", TEXTS)}
    (folder / "small.json").write_text(json.dumps(record, indent=1) + "\n")


main()
