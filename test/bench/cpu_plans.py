#!/usr/bin/env python3
"""Compares predicted and measured steps of twelve plans on this machine. Usage: cpu_plans.py ESPALIER [FOLDER]

Calibrates the machine for 1, 2 and 4 ranks, compiles the plans, trains each of them, and prints predicted and measured
medians, the error of each plan and the rank correlation. Exits with 1 if an error exceeds 15 % or the correlation is
below 0.8. Nothing else should run at the same time. FOLDER keeps the cluster files and plans.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_ERROR, LEAST_CORRELATION = 0.15, 0.8
SECONDS = 4  # of training for each plan
GPT = "configs/tiny_gpt.yaml"
MIXTURE = "test/equivalence/mixtral.yaml"

# Name, run file, ranks, sizes and pins. Pins leave no choice to the planner. Steps take 0.1 to 0.5 s on a core of 2024.
PLANS = [
    ("2 layers", GPT, 1, "layers=2 hidden=256 seq=256 batch=8", "mbs=8"),
    ("12 layers, full recompute, accumulation", GPT, 1, "layers=12 hidden=192 seq=128 batch=4", "mbs=1 recompute=full"),
    ("6 layers, selective recompute", GPT, 1, "layers=6 hidden=256 seq=128 batch=8", "mbs=4 recompute=selective"),
    ("4 layers, dp 2, accumulation", GPT, 2, "layers=4 hidden=256 seq=256 batch=8", "dp=2 mbs=2"),
    ("8 layers, dp 2, ZeRO 1", GPT, 2, "layers=8 hidden=256 seq=128 batch=8", "dp=2 mbs=4 zero=1"),
    ("6 layers, dp 2, ZeRO 3, full recompute", GPT, 2, "layers=6 hidden=256 seq=256 batch=4",
     "dp=2 mbs=2 zero=3 recompute=full"),
    ("4 layers, tp 2, sequence parallel", GPT, 2, "layers=4 hidden=512 seq=128 batch=4", "tp=2 mbs=2 sp=True"),
    ("10 layers, pp 2", GPT, 2, "layers=10 hidden=256 seq=128 batch=8", "pp=2 mbs=1 schedule=1f1b"),
    ("4 layers, cp 2 in zigzag order", GPT, 2, "layers=4 hidden=256 seq=1024 batch=2", "cp=2 mbs=1 zigzag=True"),
    ("2 layers, ep 2", MIXTURE, 2, "layers=2 hidden=256 seq=256 batch=8 intermediate=512", "ep=2 mbs=4"),
    ("6 layers, dp 2, tp 2, ZeRO 2", GPT, 4, "layers=6 hidden=256 seq=256 batch=8", "dp=2 tp=2 mbs=2 zero=2"),
    ("12 layers, dp 2, pp 2, interleaved", GPT, 4, "layers=12 hidden=256 seq=128 batch=8",
     "dp=2 pp=2 mbs=2 schedule=interleaved virtual_stages=2"),
]
SIZES = {"layers": "num_layers", "hidden": "hidden_size", "seq": "seq_length", "intermediate": "intermediate_size"}
PINS = {"mbs": "micro_batch_size", "sp": "sequence_parallel"}


def pairs(text):
    return [word.split("=") for word in text.split()]


def settings(sizes, pins):
    """Returns the options of `compile` that fix the model, the batch and the whole plan."""
    keys = {"parallel.parallel_mode": "2"}
    for key, value in pairs(sizes):
        keys["planner.global_batch" if key == "batch" else "model.model_config." + SIZES[key]] = value
    chosen = {"dp": "1", "tp": "1", "pp": "1", "cp": "1", "ep": "1", "zero": "0", "recompute": "none"}
    chosen.update({PINS.get(key, key): value for key, value in pairs(pins)})
    keys.update({"planner.pin." + key: value for key, value in chosen.items()})
    return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


def checked(command):
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def median_step(espalier, plan, text, steps):
    """Trains and returns predicted and measured seconds of a step. One thread per rank, as the cluster file says."""
    result = json.loads(checked([espalier, "run", plan, "--data", text, "--steps", str(steps), "--threads", "1", "--json"]))
    return result["predicted_step_seconds"], result["median_step_seconds"]


def ranks_of(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    return [order.index(i) for i in range(len(values))]


def spearman(first, second):
    n = len(first)
    return 1 - 6 * sum((a - b) ** 2 for a, b in zip(ranks_of(first), ranks_of(second))) / (n * (n * n - 1))


def main(espalier, folder):
    text = folder / "text"
    checked([ROOT / "test/e2e/license_text.sh", text])
    for ranks in sorted({plan[2] for plan in PLANS}):
        print("calibrating for ranks on this machine:", ranks, file=sys.stderr)
        checked([espalier, "calibrate", "--ranks", str(ranks), "-o", folder / f"ranks_{ranks}.yaml"])
    predicted, measured = [], []
    print(f"{'plan':<42} {'predicted':>10} {'measured':>10} {'error':>7}")
    for name, run, ranks, sizes, pins in PLANS:
        plan = folder / f"{len(predicted)}.plan"
        checked([espalier, "compile", ROOT / run, "-o", plan, "--cluster", folder / f"ranks_{ranks}.yaml",
                 *settings(sizes, pins)])
        _, first = median_step(espalier, plan, text, 3)
        expected, seconds = median_step(espalier, plan, text, max(5, min(200, round(SECONDS / first))))
        predicted.append(expected)
        measured.append(seconds)
        print(f"{name:<42} {expected * 1e3:>7.1f} ms {seconds * 1e3:>7.1f} ms {expected / seconds - 1:>+7.1%}", flush=True)
    worst = max(abs(one / other - 1) for one, other in zip(predicted, measured))
    correlation = spearman(predicted, measured)
    print(f"worst error {worst:.1%} (bound {MOST_ERROR:.0%}), Spearman {correlation:.2f} (bound {LEAST_CORRELATION})")
    return worst > MOST_ERROR or correlation < LEAST_CORRELATION


if __name__ == "__main__":
    if len(sys.argv) > 2:
        kept = pathlib.Path(sys.argv[2]).resolve()
        kept.mkdir(parents=True, exist_ok=True)
        sys.exit(main(sys.argv[1], kept))
    with tempfile.TemporaryDirectory() as scratch:
        sys.exit(main(sys.argv[1], pathlib.Path(scratch)))
