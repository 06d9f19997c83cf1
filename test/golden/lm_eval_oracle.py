#!/usr/bin/env python3
"""lm-evaluation-harness measures one Llama twice: with transformers, and over HTTP from `espalier serve`. The log
likelihood of each answer and the choices must be equal. Usage: lm_eval_oracle.py ESPALIER FOLDER"""
import json
import pathlib
import random
import subprocess
import sys

import lm_eval
import tokenizers
import transformers

from generation_reference import config_of
from transformers_reference import model_of

espalier, folder = sys.argv[1], pathlib.Path(sys.argv[2])
folder.mkdir()
hf = folder / "hf"


def run(*words):
    subprocess.run([espalier, *map(str, words)], stdout=subprocess.DEVNULL, check=True)


def tokenizer_of(size):
    """Returns a tokenizer whose words are w2, w3, ... and </s>, which ends a text."""
    words = {"<unk>": 0, "</s>": 1, **{f"w{i}": i for i in range(2, size)}}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=model, unk_token="<unk>", eos_token="</s>",
                                                pad_token="</s>")


def tasks_of(size):
    draw = random.Random(5)
    words = lambda count: " ".join(f"w{draw.randrange(2, size)}" for _ in range(count))
    lines = [{"text": words(6), "choices": [words(draw.randrange(1, 5)) for _ in range(3)], "gold": draw.randrange(3)}
             for _ in range(12)]
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    common = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data)}}, "test_split": "test",
              "doc_to_text": "{{text}}"}
    return [{"task": "choose", **common, "output_type": "multiple_choice", "doc_to_choice": "{{choices}}",
             "doc_to_target": "{{gold}}"},
            {"task": "perplexity", **common, "output_type": "loglikelihood_rolling", "doc_to_text": "",
             "doc_to_target": "{{text}}", "metric_list": [{"metric": "word_perplexity"}]}]


def measure(name, tasks, **arguments):
    result = lm_eval.simple_evaluate(model=name, model_args=arguments, tasks=tasks, log_samples=True, bootstrap_iters=0)
    return result["results"], result["samples"]


config = config_of("llama")
model_of(config).float().save_pretrained(hf)
size = config["vocab_size"]
tokenizer_of(size).save_pretrained(hf)
run("import-hf", hf, "-o", folder / "run.yaml")
run("compile", folder / "run.yaml", "-o", folder / "say.plan", "--set", "run_mode=predict", "--set",
    "parallel.parallel_mode=1", "--set", "parallel_config.model_parallel=2", "--set", "runner_config.batch_size=2",
    "--cluster", "cpu_local:1x2")
server = subprocess.Popen([espalier, "serve", str(folder / "say.plan"), "--checkpoint", str(hf)],
                          stdout=subprocess.PIPE, text=True)
try:
    url = server.stdout.readline().split()[-1] + "/v1/completions"
    likely, truth = measure("hf", tasks_of(size), pretrained=str(hf), dtype="float32", device="cpu")
    for concurrent in (1, 3):
        ours, answers = measure("local-completions", tasks_of(size), model="any", base_url=url, tokenizer=str(hf),
                                tokenizer_backend="huggingface", tokenized_requests=True, num_concurrent=concurrent)
        for task in ("choose", "perplexity"):
            for one, other in zip(truth[task], answers[task], strict=True):
                for a, b in zip(one["filtered_resps"], other["filtered_resps"], strict=True):
                    a, b = (a, b) if isinstance(a, (list, tuple)) else ([a], [b])
                    assert abs(float(a[0]) - float(b[0])) < 1e-3, (task, one, other)
                    assert list(map(str, a[1:])) == list(map(str, b[1:])), (task, one, other)
        assert ours["choose"]["acc,none"] == likely["choose"]["acc,none"], (ours, likely)
finally:
    server.terminate()
    server.wait()
print(f"lm_eval {lm_eval.__version__} measures the same over HTTP as with transformers")
