#!/usr/bin/env python3
"""Posts the requests of lm-evaluation-harness to `espalier serve` and compares log likelihoods with those that
transformers has (test/golden/lm_eval.json). Usage: lm_eval.py PLAN CHECKPOINT RECORD"""
import json
import pathlib
import subprocess
import sys
import urllib.request

plan, checkpoint, record = sys.argv[1:]
requests = json.loads(pathlib.Path(record).read_text())["requests"]
server = subprocess.Popen(["espalier", "serve", plan, "--checkpoint", checkpoint], stdout=subprocess.PIPE, text=True)


def scores(url, entry, **changes):
    """Returns the log likelihood of the tokens behind the context, and whether each of them is the likeliest one."""
    body = json.dumps({**entry["body"], **changes}).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"})) as answer:
        (choice,) = json.load(answer)["choices"]
    (prompt,) = entry["body"]["prompt"]
    told, likeliest = choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"]
    behind = slice(entry["context"], len(prompt))  # the harness leaves the generated token out
    assert len(told) == len(prompt) + {**entry["body"], **changes}["max_tokens"], (prompt, told)
    return sum(told[behind]), all(a >= max(b.values()) for a, b in zip(told[behind], likeliest[behind], strict=True))


try:
    url = server.stdout.readline().split()[-1] + "/v1/completions"
    greedy = 0
    for entry in requests:
        for changes in ({}, {"max_tokens": 0}):
            value, is_greedy = scores(url, entry, **changes)
            assert abs(value - entry["log_likelihood"]) < 1e-4 * abs(entry["log_likelihood"]), (entry, value)
            assert entry["is_greedy"] in (None, is_greedy), (entry, is_greedy)
        greedy += bool(entry["is_greedy"])
finally:
    server.terminate()
    server.wait()
print(f"{len(requests)} requests of lm-evaluation-harness have the log likelihoods of transformers, {greedy} of them "
      "of greedy answers")
