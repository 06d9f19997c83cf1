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
import json
import pathlib
import sys

import torch
import transformers

from transformers_reference import EXPERTS, FAMILIES, GRADED, MODELS, STATES, VARIANTS, model_of

# Families whose positions are no rotary ones, or whose queries depend on them.
PLACED = {name: FAMILIES[name] for name in ("opt", "gpt_bigcode", "gpt_neo", "bloom", "mpt", "ministral3", "nanochat")}
PLACED["llama4_text"] = FAMILIES["llama4_text"] | {"attention_chunk_size": 200}  # longer than the context
# Activations with learned numbers, indexers, mixtures of experts of further families.
OTHERS = {name: FAMILIES[name] for name in ("apertus", "deepseek_v32", "sarvam_moe", "aria_text")}
ALL = MODELS | GRADED | EXPERTS | VARIANTS | PLACED | OTHERS | STATES
CONTEXT = 144
PROMPTS = [[3], [1, 2, 3, 4, 5], [(7 * i * i + 3 * i) % 19 for i in range(70)]]
TOKENS = 64


def config_of(name):
    config = dict(ALL[name])
    keys = {"gpt2": "n_positions", "gpt_bigcode": "n_positions", "bloom": "seq_length", "mpt": "max_seq_len"}
    config[keys.get(config["model_type"], "max_position_embeddings")] = CONTEXT
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
    model = model_of(config_of(name)).float().eval()
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
