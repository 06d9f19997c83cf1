#!/usr/bin/env python3
"""Records the GGUF files of a small Llama as the package `gguf` quantizes it, with llama.cpp's names and keys.

Usage: gguf_reference.py FOLDER. Reads the folder of transformers that test/e2e/hf_folder.py FOLDER blocks writes, with
split.json of test/golden/tokenizers as its tokenizer, and writes gguf.json beside this script: for each type, the
tensors with their element types, shapes and digests, and the keys.
"""
import hashlib
import json
import pathlib
import sys

import gguf
import numpy
from safetensors.numpy import load_file

NAMES = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
         "lm_head.weight": "output.weight", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
         "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
TYPES = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16,
         "bf16": gguf.GGMLQuantizationType.BF16, "q8_0": gguf.GGMLQuantizationType.Q8_0}


def renamed(name):
    if name in NAMES:
        return NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def permuted(tensor, heads):
    """Makes the halves of each head alternate, as llama.cpp's converter does for Llama."""
    return tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(tensor.shape)


def tensors(folder, config, wanted):
    found = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        kind = wanted if tensor.ndim > 1 else gguf.GGMLQuantizationType.F32
        if kind == gguf.GGMLQuantizationType.Q8_0 and tensor.shape[-1] % 32:
            kind = gguf.GGMLQuantizationType.F16
        if "q_proj" in name:
            tensor = permuted(tensor, config["num_attention_heads"])
        if "k_proj" in name:
            tensor = permuted(tensor, config["num_key_value_heads"])
        data = gguf.quants.quantize(numpy.ascontiguousarray(tensor), kind)
        found[renamed(name)] = [int(kind), list(tensor.shape)[::-1], hashlib.sha256(data.tobytes()).hexdigest()]
    return found


def keys(folder, config):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokens = [f"[PAD{i}]" for i in range(config["vocab_size"])]
    types = [gguf.TokenType.UNUSED] * len(tokens)
    for text, number in tokenizer["model"]["vocab"].items():
        tokens[number], types[number] = text, gguf.TokenType.NORMAL
    for added in tokenizer["added_tokens"]:
        types[added["id"]] = gguf.TokenType.CONTROL
    head = config["hidden_size"] // config["num_attention_heads"]
    return {"general.architecture": "llama", "general.quantization_version": 2, "llama.vocab_size": config["vocab_size"],
            "llama.context_length": config["max_position_embeddings"], "llama.embedding_length": config["hidden_size"],
            "llama.block_count": config["num_hidden_layers"], "llama.feed_forward_length": config["intermediate_size"],
            "llama.attention.layer_norm_rms_epsilon": float(numpy.float32(config["rms_norm_eps"])),
            "llama.attention.head_count": config["num_attention_heads"],
            "llama.attention.head_count_kv": config["num_key_value_heads"], "llama.attention.key_length": head,
            "llama.attention.value_length": head, "llama.rope.dimension_count": head,
            "llama.rope.freq_base": config["rope_theta"], "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe",
            "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [int(t) for t in types],
            "tokenizer.ggml.merges": [" ".join(m) for m in tokenizer["model"]["merges"]],
            "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.add_bos_token": True,
            "tokenizer.chat_template": "{{ messages[0].content }}"}


def main():
    folder = pathlib.Path(sys.argv[1])
    config = json.loads((folder / "config.json").read_text())
    record = {"keys": {key: value if not isinstance(value, list) else hashlib.sha256(json.dumps(value).encode()).hexdigest()
                       for key, value in sorted(keys(folder, config).items())},
              "file_type": {"f32": 0, "f16": 1, "bf16": 32, "q8_0": 7},
              "tensors": {name: dict(sorted(tensors(folder, config, kind).items())) for name, kind in TYPES.items()}}
    (pathlib.Path(__file__).parent / "gguf.json").write_text(json.dumps(record, indent=1) + "\n")


main()
