#!/usr/bin/env python3
"""Replays compilations and compares their results with a record, so that a refactoring shows that it changes nothing.

Usage: replay.py BUILD [--share N] [--update] [--against OTHER/bin/espalier]

Each case is a run file of configs/ under one split, for one target. The record holds one hash for the IR after each
phase, one for the plan as text and one for the plan. Plans hold machine code, which the text leaves out, so they are
compared only if LLVM's version is the record's.
Each case that differs is printed with its first phase that differs, and at the end the number of cases per first phase.
--share N replays every N-th case. --update writes the record anew, with --share the rows of these cases. --against compares with another build instead of
the record, and prints the difference of the first phase of the first case that differs.
"""
import argparse
import collections
import concurrent.futures
import difflib
import hashlib
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CONFIGS = HERE.parent.parent / "configs"
PLACE = pathlib.Path("/tmp/espalier-replay")  # IR and plans hold absolute names of model files, so the place is fixed
RECORD = HERE / "record.json"
TARGETS = ("cpu", "cuda")
EXPERTS = ("mixtral_8x7b", "qwen3_30b_a3b", "qwen3_235b_a22b")

# Sizes that every split divides and that compile in a second. The kinds of layers, types and options are the file's.
SIZES = {"hidden_size": 128, "num_layers": 8, "num_heads": 8, "seq_length": 64, "vocab_size": 500}
EXPERT_SIZES = {"mixtral_8x7b": {"intermediate_size": 192, "n_kv_heads": 4},
                "qwen3_30b_a3b": {"moe_intermediate_size": 64, "n_kv_heads": 4, "head_dim": 16},
                "qwen3_235b_a22b": {"moe_intermediate_size": 64, "n_kv_heads": 4, "head_dim": 16}}


def split(name, dp=1, tp=1, pp=1, cp=1, ep=1, micro_batches=1, mode="train", **pin):
    """Describes one split: the mesh, the micro-batches of a step, and keys of planner.pin.

    Returns (name, options of compile, samples of a step).
    """
    sets = {"use_parallel": True, "run_mode": mode, "runner_config.batch_size": 2, "parallel.parallel_mode": 1,
            "parallel_config.data_parallel": dp * ep, "parallel_config.model_parallel": tp,
            "parallel_config.pipeline_stage": pp, "parallel_config.context_parallel": cp,
            "parallel_config.expert_parallel": ep, "parallel_config.micro_batch_num": micro_batches,
            "runner_config.gradient_accumulation_steps": micro_batches if pp == 1 else 1}
    if pin:
        sets["planner.pin"] = "{" + ", ".join(f"{key}: {value}" for key, value in sorted(pin.items())) + "}"
    options = ["--cluster", f"h100_dgx:1x{dp * tp * pp * cp * ep}"]
    options += [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    return name, options, 2 * micro_batches * dp * ep


SPLITS = [
    split("one"),
    split("dp2_zero0", dp=2, micro_batches=2, zero=0),
    split("dp4_zero1", dp=4, zero=1, recompute="selective"),
    split("dp4_zero2", dp=4, micro_batches=2, zero=2),
    split("dp2_tp2_zero3", dp=2, tp=2, zero=3, recompute="full"),
    split("tp4_sequence", tp=4, sequence_parallel="true", vocab_parallel="true"),
    split("dp2_cp2", dp=2, cp=2, zero=1),
    split("pp4_gpipe", pp=4, micro_batches=4, schedule="gpipe"),
    split("tp2_pp2_1f1b", tp=2, pp=2, micro_batches=4, schedule="1f1b", recompute="full"),
    split("dp2_pp2_interleaved", dp=2, pp=2, micro_batches=4, schedule="interleaved", virtual_stages=2, zero=1),
    split("pp2_zero_bubble_h1", pp=2, micro_batches=4, schedule="zero_bubble_h1"),
    split("tp2_pp2_zero_bubble_v", tp=2, pp=2, micro_batches=4, schedule="zero_bubble_v", virtual_stages=2),
    split("pp2_v_half", pp=2, micro_batches=4, schedule="v_half", virtual_stages=2),
    split("dp2_pp2_v_min", dp=2, pp=2, micro_batches=4, schedule="v_min", virtual_stages=2, zero=1),
    split("predict_tp2_pp2", tp=2, pp=2, mode="predict"),
    split("eval_dp2", dp=2, mode="eval"),
]
EXPERT_SPLITS = [
    split("ep2_dp2_zero1", dp=2, ep=2, zero=1),
    split("ep2_tp2_pp2", tp=2, pp=2, ep=2, micro_batches=2, sequence_parallel="true"),
]


def cases():
    """Yields (name, arguments of compile) for every case, in a fixed order."""
    for file in sorted(CONFIGS.glob("*.yaml")):
        is_expert = file.stem in EXPERTS
        sizes = {**SIZES, **EXPERT_SIZES.get(file.stem, {})}
        small = [word for key, value in sizes.items() for word in ("--set", f"model.model_config.{key}={value}")]
        splits = SPLITS + (EXPERT_SPLITS if is_expert else [])
        for (name, options, samples), target in itertools.product(splits, TARGETS):
            experts = ["moe_config.expert_num=8", f"planner.global_batch={samples}"] if is_expert else []
            sets = [word for key in experts for word in ("--set", key)]
            yield f"{file.stem} {name} {target}", [file.name, *small, *sets, *options, "--target", target]


def llvm_version():
    """Returns the version of LLVM that generates the plans' machine code."""
    return subprocess.run(["llvm-config-19", "--version"], text=True, capture_output=True, check=True).stdout.strip()


def compile_case(espalier, arguments, folder):
    """Compiles one case. Returns {phase or "plan": hash}, or {"refused": the first reason}."""
    command = [str(espalier), "compile", *arguments, "-o", f"{folder}/plan", "--dump-phases", str(folder)]
    result = subprocess.run(command, cwd=PLACE, text=True, capture_output=True, check=False)
    if result.returncode not in (0, 2, 3):
        sys.exit(f"{' '.join(command)} ended with {result.returncode}\n{result.stderr}")
    if result.returncode:
        return {"refused": result.stderr.strip().splitlines()[0]}
    pathlib.Path(folder, "plan.sig").unlink(missing_ok=True)  # depends on the user
    files = sorted(pathlib.Path(folder).iterdir())
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files}


def replay(espalier, selected):
    """Returns {case: result} of the selected cases, compiled on all cores."""
    def one(case):
        with tempfile.TemporaryDirectory() as folder:
            return case[0], compile_case(espalier, case[1], folder)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(pool.map(one, selected))


def show_difference(ours, theirs, case):
    """Prints the difference between two builds in the first phase that differs."""
    name, arguments = case
    with tempfile.TemporaryDirectory() as old, tempfile.TemporaryDirectory() as new:
        compile_case(theirs, arguments, old)
        compile_case(ours, arguments, new)
        for file in sorted(pathlib.Path(new).iterdir()):
            before = pathlib.Path(old, file.name)
            if before.exists() and before.read_bytes() != file.read_bytes():
                if file.name == "plan":
                    print(f"{name}: only the machine code of the plans differs")
                    return
                lines = difflib.unified_diff(before.read_text().splitlines(), file.read_text().splitlines(),
                                             f"{theirs} {file.name}", f"{ours} {file.name}", lineterm="", n=2)
                print("\n".join(itertools.islice(lines, 200)))
                return


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--share", type=int, default=1)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--against", type=pathlib.Path)
    options = parser.parse_args()
    espalier = (options.build / "bin/espalier").resolve()
    selected = list(cases())[::options.share]
    shutil.copytree(CONFIGS, PLACE, dirs_exist_ok=True)
    results = replay(espalier, selected)
    if options.update:
        known = json.loads(RECORD.read_text()) if options.share > 1 else {}
        rows = {**known, "llvm": llvm_version(), **results}
        lines = [f"{json.dumps(name)}: {json.dumps(result)}" for name, result in rows.items()]
        RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        print(f"{len(results)} cases recorded, {sum('refused' in r for r in results.values())} of them refused")
        return 0
    record = replay(options.against, selected) if options.against else json.loads(RECORD.read_text())
    left_out = set() if options.against or record["llvm"] == llvm_version() else {"plan"}
    differing, firsts = [], collections.Counter()
    for case in selected:
        before, now = record.get(case[0], {}), results[case[0]]
        keys = [key for key in sorted({*before, *now} - left_out) if before.get(key) != now.get(key)]
        if keys:
            differing.append(case)
            later = f", then in {', '.join(keys[1:])}" if keys[1:] else ""
            print(f"{case[0]}: differs first in {keys[0]}{later}")
            firsts[keys[0]] += 1
    if differing and options.against:
        show_difference(espalier, options.against, differing[0])
    for phase, count in sorted(firsts.items()):
        print(f"{count} cases differ first in {phase}")
    print(f"{len(selected) - len(differing)} of {len(selected)} cases are as before")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
