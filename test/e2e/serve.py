#!/usr/bin/env python3
"""Sends completion requests to a server with curl. Usage: serve.py PLAN CHECKPOINT [--openai]

With --openai, uses OpenAI's client from PyPI instead of curl."""
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time

from patience import slowdown

TOKEN = "a-token-of-the-test"
REFUSED = ["", "{", "[]", "{}", '{"prompt": ""}', '{"prompt": 5}', '{"prompt": "a", "max_tokens": 0}',
           '{"prompt": "a", "temperature": -1}', '{"prompt": "a", "top_p": 2}', '{"prompt": "a", "n": 2}',
           '{"prompt": [256]}', '{"prompt": "a", "unknown": 1}', "[" * 5000]


class Server:
    def __init__(self, *options, token=None):
        environment = {**os.environ, **({"ESPALIER_TOKEN": token} if token else {})}
        self.process = subprocess.Popen(["espalier", "serve", *sys.argv[1:2], "--checkpoint", sys.argv[2], "--tokenizer",
                                         "bytes", *options], stdout=subprocess.PIPE, text=True, env=environment)
        line = self.process.stdout.readline()
        assert line.startswith("listening on http://127.0.0.1:"), line
        self.url = line.split()[-1]

    def ask(self, body, *options):
        """Returns the status and the text of an answer."""
        told = subprocess.run(["curl", "-sN", "-w", "\n%{http_code}", "--data-binary", "@-", *options,
                               f"{self.url}/v1/completions"], input=body, text=True, stdout=subprocess.PIPE, check=True)
        text, status = told.stdout.rsplit("\n", 1)
        return int(status), text

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30 * slowdown)


def check_answers(server):
    body = {"prompt": "The plan", "max_tokens": 24, "temperature": 0.7, "seed": 3}
    status, text = server.ask(json.dumps(body))
    assert status == 200, text
    whole = json.loads(text)
    assert whole["object"] == "text_completion" and whole["usage"]["completion_tokens"] == 24, whole
    status, text = server.ask(json.dumps({**body, "stream": True}))
    events = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    assert status == 200 and events[-1] == "[DONE]", text
    choices = [json.loads(event)["choices"][0] for event in events[:-1]]
    joined = "".join(choice["text"] for choice in choices)
    reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    assert joined == whole["choices"][0]["text"] and reasons == ["length"], (joined, whole, reasons)
    print("the joined stream is the whole answer")
    for refused in REFUSED:
        status, text = server.ask(refused)
        assert status == 400 and json.loads(text)["error"]["message"], (refused, status, text)
    assert server.ask(json.dumps(body))[0] == 200
    status, text = server.ask(json.dumps({"prompt": "a" * (1 << 20)}))
    assert status == 413 and "longer than 1048576 bytes" in text, (status, text)
    text = subprocess.run(["curl", "-s", f"{server.url}/v1/models"], text=True, stdout=subprocess.PIPE, check=True).stdout
    assert "GET /v1/models is not served; POST /v1/completions" in text, text
    assert server.ask(json.dumps(body))[0] == 200
    print(f"{len(REFUSED)} bodies and one that is too long are refused, and the server lives")


def check_backlog():
    """The system queues connections for a server that does not accept them, here a suspended server."""
    server = Server()
    address = ("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
    server.process.send_signal(signal.SIGSTOP)
    waiting = [socket.socket() for _ in range(200)]
    for each in waiting:
        each.setblocking(False)
        each.connect_ex(address)
    end = time.monotonic() + 2 * slowdown
    connected = set()
    while len(connected) < len(waiting) and time.monotonic() < end:
        connected.update(each for each in select.select([], waiting, [], 0.1)[1]
                         if each.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0)
    for each in waiting:
        each.close()
    server.process.send_signal(signal.SIGCONT)
    server.end()
    print(f"connected at once: {len(connected)} of {len(waiting)}")


def check_bound():
    """If one request may wait, some of many simultaneous requests are refused, and all are answered."""
    server = Server("--waiting", "1")
    statuses = []
    body = json.dumps({"prompt": "a", "max_tokens": 60, "temperature": 0})
    threads = [threading.Thread(target=lambda: statuses.append(server.ask(body)[0])) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(statuses) == 24 and set(statuses) == {200, 503}, statuses
    print("beyond the bound: 503")
    print(f"ended with {server.end()}")


def check_client():
    import openai
    server = Server(token=TOKEN)
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=TOKEN)
    options = {"model": "any", "prompt": "The plan", "max_tokens": 24, "temperature": 0}
    whole = client.completions.create(**options)
    stream = client.completions.create(**options, stream=True)
    assert "".join(event.choices[0].text for event in stream) == whole.choices[0].text
    assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 24
    print(f"openai {openai.__version__} hears the same, streamed or not")
    server.end()


def main():
    if "--openai" in sys.argv:
        return check_client()
    server = Server()
    check_answers(server)
    server.end()
    guarded = Server(token=TOKEN)
    body = json.dumps({"prompt": "a", "max_tokens": 1})
    assert guarded.ask(body, "-H", f"Authorization: Bearer {TOKEN}")[0] == 200
    assert guarded.ask(body, "-H", f"Authorization: Bearer {TOKEN}x")[0] == 401
    print(f"without the token: {guarded.ask(body)[0]}")
    guarded.end()
    check_backlog()
    check_bound()


main()
