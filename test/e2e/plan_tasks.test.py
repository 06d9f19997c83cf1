"""Eleven planning tasks with published answers. planner/README.md has the sources.

Usage: plan_tasks.test.py ESPALIER CONFIGS [TASK ...]

Each task is planned for espalier and for a published system. The answer must take at most 3 % more than the fastest plan
and keep the memory margin. It must belong to the family that is used in practice, unless each shown plan of that family
takes more than 3 % more than the fastest plan. The search considered the plan of a published MFU, too, so that the
answer's MFU is not below it, within the time error. published_runs.test.py checks the published plans themselves. Prints
the table of planner/README.md.
"""
import concurrent.futures
import json
import subprocess
import sys

size = "model.model_config."
free = ["context.max_device_memory=null", "parallel.parallel_mode=2", "use_parallel=True", "planner.pin={}"]


def gpt(layers, hidden, heads, seq=2048, vocab=51200):
    return [f"{size}num_layers={layers}", f"{size}hidden_size={hidden}", f"{size}num_heads={heads}",
            f"{size}seq_length={seq}", f"{size}vocab_size={vocab}"]


def llama(layers, hidden, ffn, heads, kv_heads, seq, vocab=128256):
    return gpt(layers, hidden, heads, seq, vocab) + [f"{size}intermediate_size={ffn}", f"{size}n_kv_heads={kv_heads}",
                                                     f"{size}param_init_type=bfloat16", f"{size}compute_dtype=bfloat16"]


def is_pipelined_tensor(p):
    return 1 < p["tp"] <= 8 and p["pp"] > 1 and p["cp"] <= 2 and p["zero"] < 3


def is_sharded(p):  # replicas, with tensor parallelism only inside a host
    return p["pp"] == 1 and p["cp"] == 1 and p["tp"] <= 8


def is_dense(p):
    return p["tp"] <= 8 and p["cp"] <= 2 and (p["pp"] == 1 or p["zero"] < 3)


def is_long(p):  # context parallelism, or tensor parallelism inside a host, shards the sequence
    return p["pp"] == 1 and (p["cp"] > 1 or p["sequence_parallel"]) and p["tp"] <= 8


def is_replicated(p):
    return p["dp"] * p["tp"] == p["dp"] and p["pp"] == p["cp"] == 1 and p["zero"] < 2


a100, h100 = "a100_80g_selene", "h100_dgx"
# name: run file, sizes, cluster, global batch, family, published MFU of the system (None where it is not comparable), system
tasks = {
    "175B, 1,024 A100": ("gpt3_175b", gpt(96, 12288, 96), f"{a100}:128x8", 1536, is_pipelined_tensor, 0.514, "megatron_2022"),
    "530B, 2,240 A100": ("gpt3_175b", gpt(105, 20480, 128), f"{a100}:280x8", 2240, is_pipelined_tensor, 0.542, "megatron_2022"),
    "Llama 2 7B, 8 A100": ("llama2_7b", llama(32, 4096, 11008, 32, 32, 4096, 32000), f"{a100}:1x8", 256, is_sharded, None,
                           "llm_foundry"),
    "70B, 64 H100": ("llama2_7b", llama(80, 8192, 28672, 64, 8, 8192), f"{h100}:8x8", 128, is_dense, 0.513, "megatron_core"),
    "405B, 16,384 H100": ("llama2_7b", llama(126, 16384, 53248, 128, 8, 8192), f"{h100}:2048x8", 2048, is_pipelined_tensor, 0.41,
                          "megatron_core"),
    "Mixtral 8x7B, 64 H100": ("mixtral_8x7b", [], f"{h100}:8x8", 256, is_dense, None, "megatron_core"),
    "Qwen3-30B-A3B, 16 H100": ("qwen3_30b_a3b", [], f"{h100}:2x8", 1024, is_dense, None, "megatron_core"),
    "13B, 32 Ascend 910": ("gpt2_13b", [], "ascend_910_32g:4x8", 64, is_dense, None, "mindformers"),
    "1.3B, 4 RTX 4090": ("gpt3_857m", gpt(24, 2048, 16), "rtx4090_x4:1x4", 64, is_dense, None, "torchtitan"),
    "124M, 8 H100": ("gpt2_124m", gpt(12, 768, 12, 1024, 50257), f"{h100}:1x8", 512, is_replicated, None, "llm_foundry"),
    "8B, 131,072 tokens, 64 H100": ("llama2_7b", llama(32, 4096, 14336, 32, 8, 131072), f"{h100}:8x8", 64, is_long, None,
                                    "torchtitan"),
}


def answer(espalier, configs, task, system):
    file, sets, cluster, batch = task[:4]
    command = [espalier, "plan", f"{configs}/{file}.yaml", "--cluster", cluster, "--system", system, "--json"]
    for key in free + [f"planner.global_batch={batch}"] + sets:
        command += ["--set", key]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, (command, run.stderr[-2000:])
    return json.loads(run.stdout)


def words(p):
    axes = " · ".join(f"{axis} {p[axis]}" for axis in ("dp", "tp", "pp", "cp", "ep") if p[axis] > 1) or "one device"
    more = [f"ZeRO {p['zero']}"] if p["zero"] else []
    if p["pp"] > 1:
        more.append(p["schedule"])
    if p["recompute"] != "none":
        more.append(f"{p['recompute']} recompute")
    return ", ".join([axes] + more)


def faults_of(name, system, found):
    family, plan, predicted = tasks[name][4], found["plan"], found["predicted"]
    limit = 1.03 * found["search"]["fastest_seconds"] * (1 + 1e-9)
    known = [other for other in found["alternatives"] if family(other["plan"])]
    if not family(plan) and any(other["predicted"]["step_seconds"] <= limit for other in known):
        yield f"{name}, {system}: nobody runs {words(plan)}"
    if plan["tp"] > found["machine"]["devices_per_host"]:
        yield f"{name}, {system}: tensor parallelism over hosts"
    if max(predicted["memory_bytes"]) > predicted["memory_limit_bytes"] or predicted["memory_margin_bytes"] <= 0:
        yield f"{name}, {system}: no margin"
    if predicted["step_seconds"] > limit:
        yield f"{name}, {system}: more than 3 % slower than the fastest"


def main(espalier, configs, *chosen):
    names = [name for name in tasks if not chosen or name in chosen]
    jobs = [(name, system) for name in names for system in ("espalier", tasks[name][6])]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        answers = dict(zip(jobs, pool.map(lambda job: answer(espalier, configs, tasks[job[0]], job[1]), jobs)))
    faults = []
    for name in names:
        published, system = tasks[name][5:]
        cells = [name]
        for job in ((name, "espalier"), (name, system)):
            predicted = answers[job]["predicted"]
            cells += [words(answers[job]["plan"]), f"{100 * predicted['mfu']:.0f} ± {100 * predicted['error'] * predicted['mfu']:.0f} %"]
            faults += faults_of(*job, answers[job])
        mfu, error = predicted["mfu"], predicted["error"]
        if published and published / mfu - 1 > error:  # predicted over published step time
            faults.append(f"{name}: MFU {mfu:.3f} under {system}, {published} is published")
        print("| " + " | ".join(cells + [system, f"{100 * published:.0f} %" if published else "–"]) + " |", flush=True)
    for fault in faults:
        print("FAULT", fault)
    return 1 if faults else 0


sys.exit(main(*sys.argv[1:]))
