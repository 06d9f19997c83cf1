#!/usr/bin/env python3
"""Asks a server for calls of functions. Usage: tool_calls.py FOLDER CACHE. Writes a chat template into the folder."""
import atexit
import json
import os
import pathlib
import subprocess
import sys

TEMPLATE = """{% if tools %}<tools>{% for tool in tools %}{{ tool.function.name }} {% endfor %}</tools>{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
{# <tool_call> #}"""
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("add", "adds")]


def main():
    folder = pathlib.Path(sys.argv[1])
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    server = subprocess.Popen(["espalier", "serve", folder], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "XDG_CACHE_HOME": sys.argv[2]})
    atexit.register(server.kill)
    url = server.stdout.readline().split()[-1]

    def ask(**body):
        told = subprocess.run(["curl", "-sN", "--json", "@-", f"{url}/v1/chat/completions"], input=json.dumps(body),
                              text=True, stdout=subprocess.PIPE, check=True).stdout
        if body.get("stream"):
            return [json.loads(line[6:]) for line in told.split("\n") if line.startswith("data: {")]
        return json.loads(told)

    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS, "temperature": 0,
            "logit_bias": {str(vocabulary[brace]): 100 for brace in "{}"}}
    for choice, names in (("required", {"add", "adds"}), ({"type": "function", "function": {"name": "adds"}}, {"adds"})):
        answer = ask(**body, tool_choice=choice)["choices"][0]
        calls = answer["message"]["tool_calls"]
        assert answer["finish_reason"] == "tool_calls" and len(calls) == 1, answer
        assert calls[0]["function"]["name"] in names and json.loads(calls[0]["function"]["arguments"]) == {}, answer
        assert answer["message"]["content"] is None, answer
        events = [event["choices"][0] for event in ask(**body, tool_choice=choice, stream=True)]
        told = [call for event in events for call in event["delta"].get("tool_calls", [])]
        assert [call["function"] for call in told] == [calls[0]["function"]] and told[0]["index"] == 0, events
        assert events[-1]["finish_reason"] == "tool_calls", events
        assert not any(event["delta"].get("content") for event in events), events
    print("a required call is a call, whole and streamed")

    turns = [{"role": role, "content": "A word."} for _ in range(6) for role in ("user", "assistant")]
    long = ask(messages=[{"role": "system", "content": "Be brief."}, *turns, body["messages"][0]], max_tokens=4)
    assert "oldest messages are left out" in long["note"] and long["usage"]["prompt_tokens"] <= 124, long
    assert "note" not in ask(messages=body["messages"], max_tokens=4)
    print("a long conversation loses its oldest turns with a note")


main()
