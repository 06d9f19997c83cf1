#!/usr/bin/env python3
"""Generates a text, and again with two letters of its second half as --stop. Usage: stop_text.py COMMAND ..."""
import json
import re
import subprocess
import sys


def answer(*options):
    result = subprocess.run([*sys.argv[1:], "--json", *options], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(result.stdout)[0]


def main():
    whole = answer()
    text = whole["text"]
    stop = re.compile("[ -~]{2}").search(text, len(text) // 2).group()
    stopped = answer("--stop", "never in a text", "--stop", stop)
    assert whole["finish_reason"] == "length" and stopped["finish_reason"] == "stop", (whole, stopped)
    assert stopped["text"] == text[:text.index(stop)], (whole, stop, stopped)
    print("ends before the stop")


main()
