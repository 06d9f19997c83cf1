#!/usr/bin/env python3
"""Compares the plans of two builds. Usage, in the repository's root: same_plans.py OLD NEW, two commands `espalier`.

Runs `plan --json` of large run files, free and under pins, with and without plans that cannot be executed. Prints each
pair of step times and bounds. Exits with 1 if a step time differs or a gap grew.
"""
import json
import subprocess
import sys

LLAMA_70B = "num_layers=80 hidden_size=8192 intermediate_size=28672 num_heads=64 n_kv_heads=8"
LLAMA_405B = "num_layers=126 hidden_size=16384 intermediate_size=53248 num_heads=128 n_kv_heads=8 vocab_size=128256"
RUNS = [
    ("gpt3_175b", "", ""),
    ("gpt2_13b", "", ""),
    ("gpt2_52b", "", ""),
    ("mixtral_8x7b", "", ""),
    ("qwen3_30b_a3b", "", ""),
    ("qwen3_235b_a22b", "", ""),
    ("llama2_7b", "", ""),
    ("llama2_7b", LLAMA_70B, "h100_dgx:32x8"),
    ("llama2_7b", LLAMA_405B, "h100_dgx:128x8"),
    ("llama2_7b", LLAMA_405B, "h100_dgx:2048x8"),
]
PINS = ["", "tp=4,pp=4", "recompute=full", "zero=3", "schedule=interleaved,vpp=2", "pp=8,mbs=1"]


def answer(command, run, sizes, cluster, pins, everything):
    line = [command, "plan", f"configs/{run}.yaml", "--json", "--set", "parallel.parallel_mode=2"]
    if sizes:
        line += ["--set", "context.max_device_memory=74GB", "--set", "planner.global_batch=2048"]
        for size in sizes.split():
            line += ["--set", "model.model_config." + size]
    line += ["--cluster", cluster] if cluster else []
    line += ["--pin", pins] if pins else []
    line += ["--all"] if everything else []
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": done.stderr.splitlines()[:1]}
    found = json.loads(done.stdout)
    seconds = found["predicted"]["step_seconds"]
    return {"seconds": seconds, "gap": 1 - found["search"]["lower_bound_seconds"] / seconds,
            "search": found["search"].get("seconds", 0)}


def main(old, new):
    worse = 0
    for run, sizes, cluster in RUNS:
        for pins in PINS:
            for everything in (False, True):
                before = answer(old, run, sizes, cluster, pins, everything)
                after = answer(new, run, sizes, cluster, pins, everything)
                if "error" in before or "error" in after:
                    same = before == after
                else:
                    same = (abs(before["seconds"] - after["seconds"]) <= 1e-9 * before["seconds"]
                            and after["gap"] <= before["gap"] + 1e-6)
                worse += not same
                print("same" if same else "DIFFERS", run, cluster, pins or "free",
                      "all" if everything else "executable", before, after, flush=True)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
