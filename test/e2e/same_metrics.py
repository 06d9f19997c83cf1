#!/usr/bin/env python3
"""Fails unless two metrics files are equal except for times, memory and checkpoints. Usage: same_metrics.py A B"""
import json
import sys


def rows(file):
    times = ("step_seconds", "tokens_per_second", "mfu", "peak_bytes")
    with open(file) as lines:
        records = [json.loads(line) for line in lines]
    return [{key: value for key, value in record.items() if key not in times}
            for record in records if "saved_by_step" not in record]


a, b = rows(sys.argv[1]), rows(sys.argv[2])
sys.exit(0 if a and a == b else f"{sys.argv[1]} and {sys.argv[2]} differ:\n{a}\n{b}")
