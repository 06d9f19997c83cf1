#!/usr/bin/env python3
"""Draws the pictures of docs/ from the answers of `espalier`. Usage: draw.py ESPALIER CONFIGS FOLDER

timeline.svg is the simulated step of one model under three schedules, plans.svg the step time of the plans that
`espalier plan` shows, memory.svg their memory by stage, stream.svg the instruction stream that the verifier follows.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from svg import BACKWARD, FORWARD, PALE, SUMS, WEIGHT, Canvas

GB = 2**30
CAUSES = (("compute", "compute", FORWARD), ("recompute", "recompute", "#9dbfea"),
          ("tensor_communication", "tensor parallel", BACKWARD), ("context_communication", "context parallel", WEIGHT),
          ("pipeline_communication", "pipeline", "#d9c04a"), ("data_communication", "data parallel", SUMS),
          ("bubble", "bubble", PALE), ("optimizer", "optimizer", "#9a6fc4"))
CLASSES = (("parameters", FORWARD), ("gradients", "#9dbfea"), ("optimizer", "#9a6fc4"), ("activations", BACKWARD),
           ("workspace", "#8fd3ae"), ("buffers", SUMS))


def espalier(*arguments):
    return subprocess.run([program, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def plan(run, *arguments):
    return json.loads(espalier("plan", f"{configs}/{run}", "--json", *arguments))


def trace(run, folder, *arguments):
    """Returns the slices of the simulated step: (stage, track, name, start, end) in seconds."""
    file = pathlib.Path(folder) / "trace.json"
    espalier("plan", f"{configs}/{run}", "--trace", str(file), *arguments)
    return [(e["pid"], e["tid"], e["name"], e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6)
            for e in json.loads(file.read_text())["traceEvents"] if e["ph"] == "X"]


def short(choice):
    """Returns the sizes of the axes and the schedule of a plan."""
    axes = ", ".join(f"{axis} {choice[axis]}" for axis in ("dp", "tp", "pp", "cp", "ep") if choice[axis] > 1)
    return f"{axes}, {choice['schedule']}" + (", full recompute" if choice["recompute"] == "full" else "")


def timeline(path):
    schedules = (("1f1b", "1F1B"), ("interleaved,vpp=2", "interleaved, 2 chunks"), ("zero_bubble_v", "zero bubble V"))
    with tempfile.TemporaryDirectory() as folder:
        steps = [trace("gpt2_13b_4x8.yaml", folder, "--set", "parallel.parallel_mode=2",
                       "--set", "planner.global_batch=32", "--pin", f"dp=4,tp=2,pp=4,mbs=1,zero=1,schedule={name}")
                 for name, _ in schedules]
    end = max(slice[4] for step in steps for slice in step)
    canvas = Canvas(860, 372, "One training step of GPT-2 13B on four pipeline stages under three schedules, simulated")
    canvas.legend(70, 22, ((FORWARD, "forward"), (BACKWARD, "backward"), (WEIGHT, "weight gradient"),
                           (SUMS, "gradient sums and optimizer"), ("#eef1f5", "idle")))
    for index, ((_, label), step) in enumerate(zip(schedules, steps)):
        top = 52 + 96 * index
        last = max(slice[4] for slice in step)
        canvas.text(70, top - 4, f"{label}: {last:.2f} s", bold=True)
        for stage in range(4):
            canvas.text(62, top + 13 + 18 * stage, f"stage {stage}", "end")
            canvas.rect(70, top + 2 + 18 * stage, 760 * last / end, 16, "#eef1f5")
        for stage, track, name, start, stop in step:
            color = SUMS if track == 1 else {"F": FORWARD, "B": BACKWARD, "W": WEIGHT}[name[0].upper()]
            width = max(760 * (stop - start) / end - 0.5, 0.3)
            canvas.rect(70 + 760 * start / end, top + 2 + 18 * stage, width, 16, color,
                        f"{name}: {start:.3f} to {stop:.3f} s")
    canvas.axis(70, 340, 760, end, "s", 0.5)
    canvas.save(path)


def step_times(answer, path):
    """Draws the step time of each plan by cause, with its error."""
    plans = [answer, *answer["alternatives"]]
    end = 1.25 * max(p["predicted"]["step_seconds"] for p in plans)
    canvas = Canvas(860, 74 + 44 * len(plans), "Step time of the plans for GPT-3 175B on 1,024 A100, by cause")
    canvas.legend(20, 22, [(color, words) for _, words, color in CAUSES])
    for row, one in enumerate(plans):
        top, step = 40 + 44 * row, one["predicted"]["step_seconds"]
        canvas.text(20, top + 10, f"{short(one['plan'])}: {step:.3g} s ± {100 * one['predicted']['error']:.0f} %"
                    + (" (the file's plan)" if row == 0 else ""), bold=row == 0)
        left = 20
        for key, words, color in CAUSES:
            width = 820 * one["predicted"]["seconds"][key] / end
            canvas.rect(left, top + 15, width, 16, color, f"{words}: {one['predicted']['seconds'][key]:.2f} s")
            left += width
        error = 820 * step * one["predicted"]["error"] / end
        middle = 20 + 820 * step / end
        canvas.line(middle - error, top + 23, middle + error, top + 23)
        for at in (middle - error, middle + error):
            canvas.line(at, top + 19, at, top + 27)
    canvas.axis(20, canvas.height - 28, 820, end, "s", 5)
    canvas.save(path)


def memory(answer, path):
    """Draws the memory of each stage by class: the plan of the file and the fastest one."""
    fastest = min(answer["alternatives"], key=lambda one: one["predicted"]["step_seconds"])
    limit = answer["predicted"]["memory_limit_bytes"] / GB
    canvas = Canvas(860, 318, "Memory of each pipeline stage by class, against the limit")
    canvas.legend(60, 22, [(color, name) for name, color in CLASSES])
    for at, one, label in ((60, answer, "the file's plan"), (470, fastest, "the fastest plan")):
        classes = one["predicted"]["memory_classes"]
        canvas.text(at, 48, f"{label}: {short(one['plan'])}", bold=True)
        canvas.line(at, 280, at + 360, 280)
        for stage, bytes_of in enumerate(classes):
            base, width = 280, 360 / len(classes)
            for name, color in CLASSES:
                height = 200 * bytes_of[name] / GB / limit
                canvas.rect(at + width * stage + 1, base - height, width - 2, height, color,
                            f"stage {stage}, {name}: {bytes_of[name] / GB:.2f} GB")
                base -= height
        canvas.line(at, 80, at + 360, 80, "#c0392b", "5 4")
        canvas.text(at + 360, 74, f"limit {limit:.1f} GB", "end")
        canvas.text(at + 180, 300, f"{len(classes)} stages", "middle")
    for tick in range(0, int(limit), 20):
        canvas.text(52, 284 - 200 * tick / limit, f"{tick} GB" if tick == 0 else f"{tick}", "end")
    canvas.save(path)


def instructions(entry):
    """Yields the instructions of an entry of a plan's text, blocks unrolled: (kind, label, detail).

    The detail of a run is its micro-batch, that of other instructions a list of flights: (transfer, call, micro-batch).
    """
    def number(text, name):
        found = re.search(rf"\b{name}: (\d+)", text)
        return int(found[1]) if found else 0

    for block in entry.split("blocks {")[1:]:
        for round_ in range(number(block, "rounds")):
            later = round_ * number(block, "advance")
            for action in block.split("actions {")[1:]:
                kind, label = re.search(r"(run|start|wait) \{(?:  # (\w+))?", action).groups()
                if kind == "run":
                    yield kind, label, number(action, "micro_batch") + later
                else:
                    yield kind, "", [(flight.split()[1], number(flight, "call"), number(flight, "micro_batch") + later)
                                     for flight in action.split("flights {")[1:]]


def stream(path):
    """Draws the instruction stream of stage 0 of tiny_gpt: each RUN, and each transfer from its START to its WAIT."""
    text = espalier("compile", f"{configs}/tiny_gpt.yaml", "--compile-to", "plan")
    entry = re.search(r"entries \{  # train_step\n    blocks.*?(?=\n  entries \{|\n\})", text, re.DOTALL)[0]
    rows = {"tok": "inputs", "set": "scalars in", "out": "send forward", "dout": "receive gradient",
            "agree": "norm, loss", "metrics": "metrics out"}
    kinds, opened, bars, runs, at = {}, {}, [], [], 0
    for kind, label, detail in instructions(entry):
        if kind == "run":
            runs.append((at, label, detail))
        for name, call, number in detail if kind != "run" else ():
            row = rows.get(name, "gradient and weight collectives")
            if kind == "start":
                opened[name, call, number] = at
            else:
                bars.append((row, opened.pop((name, call, number)), at, f"{name}, call {call}, micro-batch {number}"))
        at += 1
    for row, *_ in sorted(bars, key=lambda bar: bar[1]):
        kinds.setdefault(row, len(kinds))
    assert not opened, f"never waited for: {opened}"
    width = 640 / at
    canvas = Canvas(860, 96 + 26 * (len(kinds) + 1), "The instruction stream of stage 0: runs, and transfers in flight")
    canvas.legend(200, 22, ((FORWARD, "forward"), (BACKWARD, "backward"), ("#9a6fc4", "norm, scalars, update"),
                            (SUMS, "transfer in flight")))
    canvas.text(192, 53, "RUN", "end", bold=True)
    for where, label, number in runs:
        color = {"forward": FORWARD, "backward": BACKWARD}.get(label, "#9a6fc4")
        canvas.rect(200 + width * where + 1, 40, width - 2, 18, color, f"{label}, micro-batch {number}")
    for row, index in kinds.items():
        canvas.text(192, 79 + 26 * index, row, "end")
        canvas.line(200, 84 + 26 * index, 840, 84 + 26 * index, "#eef1f5")
    for row, start, stop, tip in bars:
        canvas.rect(200 + width * (start + 0.5), 67 + 26 * kinds[row], width * (stop - start), 14, SUMS, tip)
    canvas.text(520, canvas.height - 14, f"{at} instructions of one step, in order", "middle")
    canvas.save(path)


program, configs, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
folder.mkdir(parents=True, exist_ok=True)
timeline(folder / "timeline.svg")
gpt3 = plan("gpt3_175b.yaml")
step_times(gpt3, folder / "plans.svg")
memory(gpt3, folder / "memory.svg")
stream(folder / "stream.svg")
