#!/usr/bin/env python3
"""Greedy continuations of transformers for the tiny models of transformers_reference.py: an oracle for generation.

    generation_reference.py                          writes generation.json beside this file
    generation_reference.py --add NAME..             adds or replaces the entries of these models
    generation_reference.py --write DIR NAME         saves the model NAME, in float32
    generation_reference.py --prompts                prints the prompts, a line of ids each
    generation_reference.py --check NAME             compares continuations, a line of ids each on standard input, with
                                                     those of the installed transformers

The models and weights are those of transformers_reference.py, with a longer context. Each entry has a config.json,
prompts, the tokens that follow each prompt (float32, one prompt at a time), the logits after each prompt, and the
smallest difference of the two largest logits over all steps. If this difference is below 1e-4, another order of
additions could give other tokens.
"""
import copy
import json
import pathlib
import sys

import torch
import transformers

from transformers_reference import EXPERTS, FAMILIES, GRADED, MODELS, STATES, model_of

# Options of config.json.
VARIANTS = {
    "llama_biases": GRADED["llama_wide"] | {"attention_bias": True, "mlp_bias": True},
    "qwen3_biases": GRADED["qwen3"] | {"attention_bias": True},
    "olmo2_biases": GRADED["olmo2"] | {"attention_bias": True, "num_hidden_layers": 3},
    "gemma2_biases": GRADED["gemma2"] | {"attention_bias": True},
    "stablelm_biases": GRADED["stablelm"] | {"use_qkv_bias": True},
    "gpt_neox_sequential": GRADED["gpt_neox"] | {"use_parallel_residual": False},
    "gpt_neox_yarn": {key: value for key, value in GRADED["gpt_neox"].items() if not key.startswith("rotary_")} | {
        "attention_bias": False, "rope_parameters": {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 100.0,
            "partial_rotary_factor": 0.5}},
    "mixtral_yarn": EXPERTS["mixtral"] | {
        "head_dim": 4, "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 100.0}},
    "qwen3_moe_biases": EXPERTS["qwen3_moe"] | {
        "attention_bias": True, "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 100.0}},
    "qwen2_moe_no_biases": EXPERTS["qwen2_moe"] | {"qkv_bias": False},
    "phi3_longrope_short": GRADED["phi3_longrope"] | {"original_max_position_embeddings": 200},
    "olmo_hybrid_no_rope": STATES["olmo_hybrid"] | {
        "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
        "rope_parameters": {"rope_type": "default", "rope_theta": None}},
    "glm4_moe_no_biases": EXPERTS["glm4_moe"] | {"attention_bias": False},
}
# Families whose positions are no rotary ones, or whose queries depend on them.
PLACED = {name: FAMILIES[name] for name in ("opt", "gpt_bigcode", "gpt_neo", "bloom", "mpt", "ministral3", "nanochat")}
PLACED["llama4_text"] = FAMILIES["llama4_text"] | {"attention_chunk_size": 200}  # longer than the context
# Activations with learned numbers, indexers, mixtures of experts of further families.
OTHERS = {name: FAMILIES[name] for name in ("apertus", "deepseek_v32", "sarvam_moe", "aria_text", "bitnet")}
ALL = MODELS | GRADED | EXPERTS | VARIANTS | PLACED | OTHERS | STATES
CONTEXT = 144
PROMPTS = [[3], [1, 2, 3, 4, 5], [(7 * i * i + 3 * i) % 19 for i in range(70)]]
TOKENS = 64


def config_of(name):
    config = dict(ALL[name])
    keys = {"gpt2": "n_positions", "gpt_bigcode": "n_positions", "bloom": "seq_length", "mpt": "max_seq_len"}
    config[keys.get(config["model_type"], "max_position_embeddings")] = CONTEXT
    return config


def compiled(config):
    """Returns the config with longrope's factors for long texts alone if the context is longer than the original one:
    the compiled context decides, and not the length of each text."""
    config = copy.deepcopy(config)
    for key in ("rope_scaling", "rope_parameters"):
        rope = config.get(key, {})
        original = config.get("original_max_position_embeddings", rope.get("original_max_position_embeddings", CONTEXT))
        if "long_factor" in rope and CONTEXT > original:
            rope["short_factor"] = rope["long_factor"]
    return config


def continuation(model, prompt):
    """Returns the greedy tokens, the smallest difference of the two largest logits, and the logits after the prompt.
    Uses no cache."""
    tokens, closest, first = list(prompt), float("inf"), None
    for _ in range(TOKENS):
        with torch.no_grad():
            logits = model(torch.tensor([tokens])).logits[0, -1]
        first = logits.tolist() if first is None else first
        best = torch.topk(logits, 2)
        closest = min(closest, float(best.values[0] - best.values[1]))
        tokens.append(int(best.indices[0]))
    return tokens[len(prompt):], closest, first


def entry_of(name):
    model = model_of(compiled(config_of(name))).float().eval()
    model.config.use_cache = False
    texts = [continuation(model, prompt) for prompt in PROMPTS]
    return {"config": config_of(name), "prompts": PROMPTS, "tokens": [tokens for tokens, _, _ in texts],
            "closest": min(closest for _, closest, _ in texts),
            "logits": [[round(value, 6) for value in first] for _, _, first in texts]}


def main():
    if sys.argv[1:2] == ["--write"]:
        return model_of(config_of(sys.argv[3])).float().save_pretrained(sys.argv[2])
    if sys.argv[1:2] == ["--prompts"]:
        return print("\n".join(" ".join(map(str, prompt)) for prompt in PROMPTS))
    if sys.argv[1:2] == ["--check"]:
        said = [[int(word) for word in line.split()] for line in sys.stdin]
        entry = entry_of(sys.argv[2])
        print(f"{sys.argv[2]}: transformers {transformers.__version__}, two best logits {entry['closest']:.2g} apart")
        sys.exit(0 if said == entry["tokens"] else f"says {said}, transformers {entry['tokens']}")
    file, added = pathlib.Path(__file__).with_name("generation.json"), sys.argv[2:]
    made = json.loads(file.read_text()) if added else {}
    made["made_by"] = f"generation_reference.py with transformers {transformers.__version__}, torch {torch.__version__}"
    file.write_text(json.dumps(made | {name: entry_of(name) for name in added or ALL}) + "\n")


if __name__ == "__main__":
    main()
