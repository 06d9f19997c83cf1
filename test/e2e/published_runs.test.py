"""Predicts published runs from run files. Each row passes through import, profile and cost model with a model file,
sizes, a pinned plan, a cluster and a system.

Usage: published_runs.test.py ESPALIER CONFIGS

Prints the error of each row. For each system and class of device, the mean error must be at most the `time_error` of
the system's file in configs/systems.
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


def llama(layers, hidden, ffn, heads):
    return gpt(layers, hidden, heads, 8192, 128256) + [f"{size}intermediate_size={ffn}", f"{size}n_kv_heads=8",
                                                       f"{size}param_init_type=bfloat16", f"{size}compute_dtype=bfloat16"]


gpt175, gpt530 = gpt(96, 12288, 96), gpt(105, 20480, 128)
llama8, llama70 = llama(32, 4096, 14336, 32), llama(80, 8192, 28672, 64)
selective = "tp=8,schedule=interleaved,vpp=3,mbs=1,sp=true,zero=0,recompute=selective"
full = "sp=false,zero=0,recompute=full"
recipe = "mbs=1,sp=true,zero=1,schedule=interleaved"
a100, h100 = "a100_80g_selene", "h100_dgx"
# Sources: Korthikanti 2022 (Tables 4, 5), Narayanan 2021 (Table 1), llm-foundry's benchmarks, NVIDIA's
# dgxc-benchmarking recipes.
rows = [
    ("gpt3_175b", gpt175, f"{a100}:8x8", "megatron_2022", f"dp=1,pp=8,{selective}", 64, 13.75),
    ("gpt3_175b", gpt530, f"{a100}:35x8", "megatron_2022", f"dp=1,pp=35,{selective}", 280, 37.83),
    ("gpt3_175b", gpt530, f"{a100}:280x8", "megatron_2022", f"dp=8,pp=35,{selective}", 2240, 39.15),
    ("gpt3_175b", gpt175, f"{a100}:8x8", "megatron_2021", f"dp=1,tp=8,pp=8,vpp=3,schedule=interleaved,mbs=1,{full}", 64, 18.13),
    ("gpt3_175b", gpt(80, 12288, 96), f"{a100}:192x8", "megatron_2021",
     f"dp=24,tp=8,pp=8,vpp=2,schedule=interleaved,mbs=2,{full}", 2304, 24.817),
    ("gpt3_175b", gpt(48, 8192, 64), f"{a100}:64x8", "megatron_2021", f"dp=32,tp=8,pp=2,mbs=4,{full}", 1536, 14.453),
    ("gpt3_175b", gpt(36, 4096, 32), f"{a100}:16x8", "megatron_2021", f"dp=32,tp=4,pp=1,mbs=16,{full}", 512, 3.696),
    ("gpt3_175b", gpt(32, 4096, 32, 4096, 50368), f"{a100}:1x8", "llm_foundry", "dp=8,tp=1,pp=1,mbs=16,zero=3,recompute=full", 256,
     35.579),
    ("gpt3_175b", gpt175, f"{h100}:16x8", "megatron_core", f"dp=4,tp=4,pp=8,vpp=12,{recipe}", 256, 8.309),
    ("gpt3_175b", gpt175, f"{h100}:128x8", "megatron_core", f"dp=32,tp=4,pp=8,vpp=12,{recipe}", 2048, 8.453),
    ("llama2_7b", llama70, f"{h100}:8x8", "megatron_core", f"dp=2,tp=4,pp=4,cp=2,vpp=5,{recipe}", 128, 14.72),
    ("llama2_7b", llama70, f"{h100}:128x8", "megatron_core", f"dp=32,tp=4,pp=4,cp=2,vpp=5,{recipe}", 2048, 14.92),
    ("llama2_7b", llama8, f"{h100}:1x8", "megatron_core", "dp=4,tp=1,pp=1,cp=2,mbs=1,zero=1", 128, 12.91),
    ("llama2_7b", llama8, f"{h100}:16x8", "megatron_core", "dp=64,tp=1,pp=1,cp=2,mbs=1,zero=1", 2048, 13.1),
    ("llama2_7b", llama(7, 16384, 53248, 128), f"{h100}:4x8", "megatron_core", "dp=2,tp=8,pp=1,cp=2,mbs=1,sp=true,zero=1", 126, 8.85),
    ("llama2_7b", llama(126, 16384, 53248, 128), f"{h100}:72x8", "megatron_core", f"dp=4,tp=8,pp=9,cp=2,vpp=7,{recipe}", 252, 17.2),
]


def predicted(espalier, configs, row):
    file, sets, cluster, system, pin, batch, _ = row
    command = [espalier, "plan", f"{configs}/{file}.yaml", "--cluster", cluster, "--system", system, "--pin", pin, "--json"]
    for key in free + [f"planner.global_batch={batch}"] + sets:
        command += ["--set", key]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, (command, run.stdout[-2000:], run.stderr[-2000:])
    return json.loads(run.stdout)["predicted"]


def main(espalier, configs):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda row: predicted(espalier, configs, row), rows))
    groups = {}
    for (file, sets, cluster, system, pin, batch, measured), answer in zip(rows, answers):
        error = answer["step_seconds"] / measured - 1
        device = cluster.split(":")[0]
        groups.setdefault((system, device, answer["error"]), []).append(error)
        print(f"{system} {cluster} {sets[0].split('=')[1]} layers {pin}: measured {measured} s, predicted "
              f"{answer['step_seconds']:.3f} s, {100 * error:+.1f} %")
    isSound = True
    for (system, device, stated), errors in groups.items():
        mean = sum(map(abs, errors)) / len(errors)
        isSound = isSound and mean <= stated
        print(f"{system} on {device}: mean {100 * mean:.1f} % of {len(errors)} rows, bias {100 * sum(errors) / len(errors):+.1f} %, "
              f"stated {100 * stated:.0f} %")
    return 0 if isSound else 1


sys.exit(main(*sys.argv[1:]))
