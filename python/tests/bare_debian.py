"""Checks for bare_debian.sh that a run in Python equals a run of the command. Usage: bare_debian.py RUN.yaml"""
import sys

import espalier as ep

run = sys.argv[1]
print(ep.plan(run))
ep.compile(run, "again.plan")
result = ep.run("again.plan", data="text.txt", steps=40, checkpoint="checkpoints")
assert result.column("loss") == ep.read_metrics("metrics.jsonl").column("loss"), "the losses differ from the command's"
assert result.steps[-1]["loss"] < result.steps[0]["loss"], "the loss does not fall"
checkpoint = ep.Checkpoint("checkpoints")
print(checkpoint, {name: checkpoint.shape(name) for name in list(checkpoint)[:2]})
