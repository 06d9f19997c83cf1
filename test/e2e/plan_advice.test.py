"""Follows the advice of `espalier plan`. Usage: plan_advice.test.py ESPALIER CONFIGS INPUTS FOLDER"""
import concurrent.futures
import json
import pathlib
import random
import re
import subprocess
import sys

espalier, configs, inputs, folder = sys.argv[1:]
folder = pathlib.Path(folder)
STEP = 1e-9


def run(*arguments, codes=(0, 3)):
    done = subprocess.run([espalier, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode in codes, (arguments, done.returncode, done.stdout[-1000:], done.stderr[-2000:])
    return done.stdout


def answer_of(*arguments):
    """Returns the plan of the answer with its step, and whether the file pins another plan."""
    found = json.loads(run("plan", *arguments, "--json"))
    others = [other for other in found["alternatives"] if other["answer"]]
    assert len(others) <= 1
    first = others[0] if others else found
    return first["plan"], first["predicted"]["step_seconds"], bool(others)


def follows(arguments):
    """Checks the answer that the advice of a question gives. Returns whether there was advice."""
    plan, seconds, has_own = answer_of(*arguments)
    text = run("plan", *arguments)
    advice = re.search(r"^to use the answer add (.*(?:\n  .*)*)", text, re.M)
    if not has_own:
        assert advice is None or "--set" in advice[1], text
        return False
    assert advice, text
    words = advice[1].replace("\n", " ").split()
    got, got_seconds, still_own = answer_of(*arguments, *words)
    assert not still_own, (arguments, words)
    assert got == plan and abs(got_seconds / seconds - 1) < STEP, (arguments, words, plan, got)
    return True


def script_of(number):
    """Returns a launch script and its cluster: one of the inputs, or a variation of one."""
    names = ["megatron_175b", "megatron_857m", "megatron_qwen3"]
    if number < len(names):
        return pathlib.Path(inputs, names[number] + ".sh").read_text(), "h100_dgx"
    choose = random.Random(number).choice
    text = pathlib.Path(inputs, "megatron_857m.sh").read_text()
    layers, tp, pp, hosts = choose((16, 24, 32)), choose((1, 2, 4, 8)), choose((1, 2, 4)), choose((1, 2, 4))
    hidden = choose((1024, 2048, 4096, 8192))
    changes = {"tensor-model-parallel-size": tp, "pipeline-model-parallel-size": pp, "num-layers": layers,
               "hidden-size": hidden, "num-attention-heads": hidden // 64, "micro-batch-size": choose((1, 2)),
               "global-batch-size": choose((64, 128, 256))}
    for flag, value in changes.items():
        text, count = re.subn(rf"--{flag} \d+", f"--{flag} {value}", text)
        assert count == 1, flag
    more = choose(("", "--use-distributed-optimizer", "--sequence-parallel --use-distributed-optimizer",
                   "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"))
    text = text.replace("    --fp16\n", f"    --fp16 {more if tp > 1 or 'sequence' not in more else ''}\n")
    text = text.replace("--nproc_per_node 4 --nnodes 1", f"--nproc_per_node 8 --nnodes {hosts}")
    return text, choose(("h100_dgx", "a100_80g_selene"))


def imported(script, cluster, name):
    (folder / f"{name}.sh").write_text(script)
    run("import-args", folder / f"{name}.sh", "--cluster", cluster, "-o", folder / f"{name}.yaml", codes=(0,))
    return folder / f"{name}.yaml"


def check_script(number):
    script, cluster = script_of(number)
    asked = [imported(script, cluster, f"script{number}"), "--system", "megatron_core"]
    follows(asked)
    plan, seconds, _ = answer_of(*asked)
    edited = run("plan", *asked, "--export", "megatron", "--diff", folder / f"script{number}.sh")
    same, same_seconds, has_own = answer_of(imported(edited, cluster, f"edited{number}"), "--system", "megatron_core")
    assert not has_own and same == plan and abs(same_seconds / seconds - 1) < STEP, (number, plan, same)


files = sorted(pathlib.Path(configs).glob("*.yaml"))
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    advised = list(pool.map(lambda file: follows([file]), files))
    assert sum(advised) > 3, advised
    print(f"{len(files)} run files and 20 scripts: the advice gives the answer")
    list(pool.map(check_script, range(20)))
    print("20 scripts of --diff have the answer as their plan")
