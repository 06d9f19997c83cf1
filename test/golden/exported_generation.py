#!/usr/bin/env python3
"""transformers saves a Llama. Our plan reads its folder under tp 2 and pp 2. We export the weights as two shards in
both formats, and transformers loads each folder. The greedy tokens of all must be equal. Usage: exported_generation.py
ESPALIER ROOT FOLDER"""
import pathlib
import subprocess
import sys

import torch
import transformers

from generation_reference import PROMPTS, TOKENS, config_of
from transformers_reference import model_of

espalier, root, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
folder.mkdir()


def run(*words):
    return subprocess.run([espalier, *map(str, words)], text=True, stdout=subprocess.PIPE, check=True, cwd=root).stdout


def continue_prompt(model, prompt):
    """Generates greedily. The attention mask is needed, because token 0 would count as padding without it."""
    whole = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=TOKENS, do_sample=False,
                           eos_token_id=None, pad_token_id=0)
    return whole[0, prompt.shape[1]:].tolist()


def continuations(place):
    model = transformers.AutoModelForCausalLM.from_pretrained(place).float().eval()
    with torch.no_grad():
        return [continue_prompt(model, torch.tensor([prompt])) for prompt in PROMPTS]


model_of(config_of("llama")).float().save_pretrained(folder / "hf")
run("import-hf", folder / "hf", "-o", folder / "run.yaml")
run("compile", folder / "run.yaml", "-o", folder / "say.plan", "--set", "run_mode=predict", "--set",
    "parallel.parallel_mode=1", "--set", "parallel_config.model_parallel=2", "--set", "parallel_config.pipeline_stage=2",
    "--set", "runner_config.batch_size=2", "--cluster", "cpu_local:1x4")
prompts = [word for prompt in PROMPTS for word in ("--tokens", " ".join(map(str, prompt)))]
told = run("generate", folder / "say.plan", "--checkpoint", folder / "hf", *prompts, "--max-tokens", TOKENS)
ours = [[int(word) for word in line.split()] for line in told.splitlines()]
run("convert", folder / "hf", folder / "ours", "--to", "espalier", "--model", folder / "run.yaml")
for form in ("safetensors", "bin"):
    run("convert", folder / "ours", folder / form, "--to", "hf", "--model", folder / "run.yaml", "--reference",
        folder / "hf", "--shards", 2, "--format", form)
    theirs = continuations(folder / form)
    assert theirs == ours, (form, theirs, ours)
print(f"transformers {transformers.__version__} says of what was exported what the plan says of its source")
