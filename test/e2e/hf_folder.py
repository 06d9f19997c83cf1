#!/usr/bin/env python3
"""Writes a folder in transformers' format: a Llama of two layers with weights from a formula. Usage: hf_folder.py DIR
[small|large|blocks]: all elements differ; small: trainable values; large: 115 MB of zeros; blocks: rows of 32 elements and
more."""
import json
import pathlib
import struct
import sys

CONFIG = {"architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "hidden_act": "silu", "hidden_size": 12,
          "intermediate_size": 10, "max_position_embeddings": 16, "model_type": "llama", "num_attention_heads": 6,
          "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_scaling": None,
          "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float32", "vocab_size": 7}


if "small" in sys.argv:
    CONFIG["vocab_size"] = 260  # the byte tokens and an end-of-document token
if "blocks" in sys.argv:
    CONFIG.update(hidden_size=64, intermediate_size=80, num_attention_heads=4, vocab_size=404)
if "large" in sys.argv:
    CONFIG.update(hidden_size=512, intermediate_size=1024, num_attention_heads=8, num_hidden_layers=12, vocab_size=2000)


def shapes():
    hidden, ffn, kv = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["hidden_size"] // CONFIG["num_attention_heads"] * 2
    yield "model.embed_tokens.weight", (CONFIG["vocab_size"], hidden)
    for layer in range(CONFIG["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", (hidden,)
        yield at + "post_attention_layernorm.weight", (hidden,)
        for name, rows in (("q", hidden), ("k", kv), ("v", kv), ("o", hidden)):
            yield at + f"self_attn.{name}_proj.weight", (rows, hidden)
        for name, shape in (("gate", (ffn, hidden)), ("up", (ffn, hidden)), ("down", (hidden, ffn))):
            yield at + f"mlp.{name}_proj.weight", shape
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (CONFIG["vocab_size"], hidden)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True)
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for number, (name, shape) in enumerate(sorted(shapes())):
        count = 1
        for size in shape:
            count *= size
        if "large" in sys.argv:
            values = bytes(4 * count)
        else:
            numbers = [1000.0 * number + element for element in range(count)]
            if "small" in sys.argv or "blocks" in sys.argv:
                numbers = [value * 7919 % 2003 / 2003 - 0.5 for value in numbers]
            values = struct.pack(f"<{count}f", *numbers)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    (folder / "generation_config.json").write_text('{"bos_token_id": 1}\n')
    (folder / "tokenizer.json").write_text("{}\n")
    (folder / "README.md").write_text("# Tiny\n")


main()
