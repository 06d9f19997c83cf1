#!/usr/bin/env python3
"""Sends requests to a server with curl. Usage: serve.py PLAN CHECKPOINT [--openai]

With --openai, uses OpenAI's client from PyPI instead of curl."""
import atexit
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
REFUSED = ["", "{", "[]", "{}", '{"prompt": ""}', '{"prompt": 5}', '{"prompt": "a", "max_tokens": -1}',
           '{"prompt": "a", "temperature": -1}', '{"prompt": "a", "top_p": 2}', '{"prompt": "a", "n": 200}',
           '{"prompt": [256]}', '{"prompt": "a", "unknown": 1}', "[" * 5000]
MESSAGES = [{"role": "user", "content": "Hi"}]  # the model's context is 64 tokens


class Server:
    def __init__(self, *options, token=None):
        environment = {**os.environ, **({"ESPALIER_TOKEN": token} if token else {})}
        self.process = subprocess.Popen(["espalier", "serve", *sys.argv[1:2], "--checkpoint", sys.argv[2], "--tokenizer",
                                         "bytes", *options], stdout=subprocess.PIPE, text=True, env=environment)
        atexit.register(self.process.kill)  # if a check fails
        line = self.process.stdout.readline()
        assert line.startswith("listening on http://127.0.0.1:"), line
        self.url = line.split()[-1]

    def ask(self, body, *options, path="/v1/completions"):
        """Returns the status and the text of an answer."""
        told = subprocess.run(["curl", "-sN", "-w", "\n%{http_code}", "--json", "@-", *options,
                               f"{self.url}{path}"], input=body, text=True, stdout=subprocess.PIPE, check=True)
        text, status = told.stdout.rsplit("\n", 1)
        return int(status), text

    def answer(self, path="/v1/completions", **body):
        """Returns the object of a whole answer."""
        status, text = self.ask(json.dumps(body), path=path)
        assert status == 200, text
        return json.loads(text)

    def events(self, path="/v1/completions", **body):
        """Returns the objects of a stream."""
        status, text = self.ask(json.dumps({**body, "stream": True}), path=path)
        events = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
        assert status == 200 and events[-1] == "[DONE]", text
        return [json.loads(event) for event in events[:-1]]

    def get(self, path, *options):
        """Returns the text of a page, with the headers if the options ask for them."""
        return subprocess.run(["curl", "-s", *options, f"{self.url}{path}"], text=True, stdout=subprocess.PIPE,
                              check=True).stdout

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
    assert server.ask(json.dumps(body), path="/v1/completions/")[0] == 200, "a final slash"
    print("the joined stream is the whole answer")
    for refused in REFUSED:
        status, text = server.ask(refused)
        assert status == 400 and json.loads(text)["error"]["message"], (refused, status, text)
    assert server.ask(json.dumps(body))[0] == 200
    status, text = server.ask(json.dumps({"prompt": "a" * (1 << 20)}))
    assert status == 413 and "longer than 1048576 bytes" in text, (status, text)
    text = server.get("/v1/embeddings")
    assert "GET /v1/embeddings is not served; these are: GET /," in text, text
    assert server.ask(json.dumps(body))[0] == 200
    print(f"{len(REFUSED)} bodies and one that is too long are refused, and the server lives")


def check_choices(server):
    """Lists of prompts, several choices, token ids and usage."""
    body = {"max_tokens": 6, "temperature": 0.9, "seed": 3, "return_token_ids": True}
    whole = server.answer(prompt=["The", "plan"], n=2, **body)
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2, 3], whole
    assert whole["usage"] == {"prompt_tokens": 7, "completion_tokens": 24, "total_tokens": 31}, whole
    texts = [choice["text"] for choice in whole["choices"]]
    assert texts[0] != texts[1], texts
    for choice, prompt, seed in [(0, "The", 3), (1, "The", 4), (2, "plan", 3), (3, "plan", 4)]:
        alone = server.answer(prompt=list(prompt.encode()), **{**body, "seed": seed})["choices"][0]
        assert alone["text"] == texts[choice], (choice, alone, texts)
        assert alone["token_ids"] == whole["choices"][choice]["token_ids"] and len(alone["token_ids"]) == 6, alone
        assert alone["prompt_token_ids"] == list(prompt.encode()), alone
    events = server.events(prompt=["The", "plan"], n=2, stream_options={"include_usage": True}, **body)
    last = events.pop()
    assert last["choices"] == [] and last["usage"] == whole["usage"], last
    for index, text in enumerate(texts):
        mine = [event["choices"][0] for event in events if event["choices"][0]["index"] == index]
        assert "".join(choice["text"] for choice in mine) == text, (index, mine, text)
        assert sum((choice["token_ids"] for choice in mine), []) == whole["choices"][index]["token_ids"], mine
        assert [choice["finish_reason"] for choice in mine if choice["finish_reason"]] == ["length"], mine
    assert not any("usage" in event for event in events)
    print("each of 4 choices is what a request of its own gets, streamed or not")


def check_scores(server):
    """What was generated greedily has the same log probabilities when it is scored as a prompt."""
    body = {"temperature": 0, "logprobs": 2}
    made = server.answer(prompt="The plan", max_tokens=8, **body)["choices"][0]
    scores = made["logprobs"]
    assert len(scores["tokens"]) == len(scores["token_logprobs"]) == len(scores["top_logprobs"]) == 8, scores
    assert "".join(scores["tokens"]) == made["text"] and scores["text_offset"] == list(range(8)), made
    for value, best in zip(scores["token_logprobs"], scores["top_logprobs"]):
        assert value == max(best.values()) <= 0 and len(best) == 2, (value, best)
    for most in (0, 1):
        echo = server.answer(prompt="The plan" + made["text"], max_tokens=most, echo=True, **body)
        choice, scored = echo["choices"][0], echo["choices"][0]["logprobs"]
        assert choice["text"].startswith("The plan" + made["text"]) and len(scored["tokens"]) == 16 + most, choice
        assert scored["token_logprobs"][0] is None and scored["top_logprobs"][0] is None, scored
        assert all(abs(a - b) < 1e-4 for a, b in zip(scored["token_logprobs"][8:16], scores["token_logprobs"])), echo
        assert echo["usage"]["completion_tokens"] == most and choice["finish_reason"] == "length", echo
    events = server.events(prompt="The plan", max_tokens=8, **body)
    parts = [event["choices"][0]["logprobs"] for event in events]
    for key, values in scores.items():
        assert sum((part[key] for part in parts), []) == values, (key, parts, values)
    empty = server.answer(prompt="a", max_tokens=0)
    assert empty["choices"][0]["text"] == "" and empty["usage"]["completion_tokens"] == 0, empty
    print("generated tokens and echoed prompts have equal scores")


def check_chat(server):
    path = "/v1/chat/completions"
    body = {"messages": MESSAGES, "max_tokens": 8, "temperature": 0, "logprobs": True, "top_logprobs": 1}
    whole = server.answer(path, **body)
    choice = whole["choices"][0]
    assert whole["object"] == "chat.completion" and choice["message"]["role"] == "assistant", whole
    prompt = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in MESSAGES) + "<|im_start|>assistant\n"
    same = server.answer(prompt=prompt, max_tokens=8, temperature=0, logprobs=1, stop=["<|im_end|>"])
    assert same["choices"][0]["text"] == choice["message"]["content"] and same["usage"] == whole["usage"], (same, whole)
    assert [one["logprob"] for one in choice["logprobs"]["content"]] == same["choices"][0]["logprobs"]["token_logprobs"]
    events = server.events(path, stream_options={"include_usage": True}, **body)
    assert events.pop()["usage"] == whole["usage"]
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas[0] == {"role": "assistant", "content": ""}, deltas
    assert "".join(delta.get("content", "") for delta in deltas) == choice["message"]["content"], (deltas, whole)
    model = json.loads(server.get("/v1/models"))["data"][0]
    assert model["chat_template"] == "chatml" and model["object"] == "model" and whole["model"] == model["id"], model
    status, text = server.ask('{"messages": []}', path=path)
    assert status == 400 and json.loads(text)["error"]["message"] == "messages is not a list of messages", text
    print("a chat is the completion of its template")


def check_sampling(server):
    """Penalties and biases change what is chosen, and the scores stay those of the model."""
    body = {"prompt": "The plan", "max_tokens": 8, "temperature": 0, "logprobs": 1, "return_token_ids": True}
    plain = server.answer(**body)["choices"][0]
    biased = server.answer(**body, logit_bias={"65": 100})["choices"][0]
    assert biased["text"] == "A" * 8 and biased["token_ids"] == [65] * 8, biased
    first, chosen = plain["logprobs"]["top_logprobs"][0], biased["logprobs"]["top_logprobs"][0]
    assert all(abs(chosen[token] - value) < 1e-5 for token, value in first.items()), (first, chosen)
    for key in ("presence_penalty", "frequency_penalty"):
        both = server.answer(**body, logit_bias={"65": 100, "66": 100}, **{key: 2})["choices"][0]
        assert set(both["text"]) == {"A", "B"}, (key, both)
    for key, value in (("min_p", 1), ("repetition_penalty", 5)):
        same = server.answer(**{**body, "temperature": 1.5}, **{key: value})["choices"][0]
        assert key != "min_p" or same["token_ids"] == plain["token_ids"], (same, plain)
    for refused in ({"presence_penalty": 3}, {"min_p": 2}, {"repetition_penalty": 0}, {"logit_bias": {"999": 1}}):
        status, text = server.ask(json.dumps({"prompt": "a", **refused}))
        assert status == 400 and next(iter(refused)) in text, (refused, text)
    print("penalties and biases are of the choice, and scores of the model")


def check_json(server):
    """Answers are JSON objects, or beginnings of one at max_tokens."""
    body = {"response_format": {"type": "json_object"}, "temperature": 1.2, "n": 24, "seed": 5}
    whole = server.answer(prompt="The plan", max_tokens=40, **body)
    texts = [choice["text"] for choice in whole["choices"] if choice["finish_reason"] == "stop"]
    assert len(texts) > 2 and all(isinstance(json.loads(text), dict) for text in texts), whole
    cut = [choice["text"] for choice in whole["choices"] if choice["finish_reason"] == "length"]
    assert all(text.lstrip().startswith("{") or not text.strip() for text in cut), cut
    events = server.events(prompt="The plan", max_tokens=40, **body)
    first = "".join(event["choices"][0]["text"] for event in events if event["choices"][0]["index"] == 0)
    assert first == whole["choices"][0]["text"], (first, whole)
    chat = server.answer("/v1/chat/completions", messages=MESSAGES, max_tokens=16, logit_bias={str(ord("}")): 100}, **body)
    for choice in chat["choices"]:
        assert choice["message"]["content"].lstrip() == "{}" or choice["finish_reason"] == "length", choice
    print("an answer of json_object is a JSON object")


def check_pages(server):
    """Metrics, the page, and what browsers ask before they send a request of another page."""
    metrics = dict(line.rsplit(" ", 1) for line in server.get("/metrics").splitlines() if not line.startswith("#"))
    assert int(metrics['espalier_responses_total{path="/v1/completions",status="200"}']) > 5, metrics
    assert int(metrics['espalier_responses_total{path="other",status="404"}']) == 1, metrics
    assert int(metrics["espalier_generated_tokens_total"]) > 24 and metrics["espalier_texts_running"] == "0", metrics
    assert float(metrics["espalier_first_output_seconds_sum"]) <= float(metrics["espalier_request_seconds_sum"])
    page = server.get("/", "-i")
    assert "default-src 'none'" in page and "<title>Espalier chat</title>" in page, page[:500]
    ask = ["-i", "-X", "OPTIONS", "-H", "Access-Control-Request-Headers: x-own", "-H"]
    allowed = server.get("/v1/chat/completions", *ask, "Origin: https://page.test").lower()
    assert " 204 " in allowed and "access-control-allow-origin: https://page.test\n" in allowed, allowed
    assert "access-control-allow-headers: x-own\n" in allowed, allowed
    for page in "https://other.test", "null", "http://localhost:1":
        answer = server.get("/v1/models", *ask, f"Origin: {page}").lower()
        assert " 403 " in answer and "access-control" not in answer, answer
        assert server.ask('{"prompt": "a"}', "-H", f"Origin: {page}")[0] == 403, page
    assert server.ask('{"prompt": "a", "max_tokens": 1}', "-H", f"Origin: {server.url}")[0] == 200, "the server's own page"
    assert "access-control-allow-origin" in server.get("/v1/models", "-i", "-H", "Origin: https://page.test").lower()
    for host, status in ("evil.test", 403), ("127.0.0.1.evil.test", 403), ("localhost:1", 200), ("model.test", 200):
        assert server.ask('{"prompt": "a", "max_tokens": 1}', "-H", f"Host: {host}")[0] == status, host
    for kind in "text/plain", "application/x-www-form-urlencoded", "multipart/form-data":
        status, text = server.ask('{"prompt": "a"}', "-H", f"Content-Type: {kind}")
        assert status == 415 and json.loads(text)["error"]["type"] == "invalid_request_error", (kind, text)
    assert server.ask('{"prompt": "a"}', "-H", "Content-Encoding: gzip")[0] == 415
    print("metrics, the page, and requests of an allowed origin")


def check_unread_bodies(server):
    """A body that the server does not read is not read as the next request of the connection, whatever the answer."""
    inner = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    key = f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
    length, chunked = f"Content-Length: {len(inner)}\r\n", "Transfer-Encoding: chunked\r\n"
    heads = [("POST /v1/completions", length, 401), ("POST /v1/completions", length + chunked, 400),
             ("POST /nothing", key + length, None), ("GET /health", key + length, 200), ("GET /nothing", key + length, 404),
             ("OPTIONS /v1/completions", key + length, None), ("DELETE /v1/completions", key + length, None),
             ("POST /v1/completions", key + "Content-Length: 99999999999\r\n", 413)]
    for request, fields, status in heads:
        with socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])), timeout=20 * slowdown) as client:
            client.sendall(f"{request} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n".encode())
            said = b""
            try:
                if b"HTTP/1.1 100 " not in (said := client.recv(4096)):
                    client.sendall(inner)  # after the answer, as a proxy that passes on a body may do
                while piece := client.recv(4096):
                    said += piece
            except (BrokenPipeError, ConnectionResetError):  # the server has closed the connection
                pass
        assert said.count(b"HTTP/1.1 ") == 1, (request, fields, said)
        assert status is None or f" {status} ".encode() in said.split(b"\r\n")[0], (request, fields, said)
    print("an unread body is no request")


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
    server = Server("--chat-template", "chatml", token=TOKEN)
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=TOKEN)
    options = {"model": "any", "prompt": "The plan", "max_tokens": 24, "temperature": 0}
    whole = client.completions.create(**options)
    stream = client.completions.create(**options, stream=True)
    assert "".join(event.choices[0].text for event in stream) == whole.choices[0].text
    assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 24
    chat = {"model": "any", "messages": MESSAGES, "max_tokens": 24, "temperature": 0}
    whole = client.chat.completions.create(**chat, logprobs=True, top_logprobs=2)
    stream = list(client.chat.completions.create(**chat, stream=True, stream_options={"include_usage": True}))
    assert stream[-1].usage == whole.usage and not stream[-1].choices
    assert "".join(event.choices[0].delta.content or "" for event in stream[:-1]) == whole.choices[0].message.content
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 2
    model = client.models.list().data[0]
    assert whole.model == model.id and client.models.list().data[0].owned_by == "espalier"
    try:
        client.chat.completions.create(model="any", messages=[])
        raise AssertionError("no messages, and an answer")
    except openai.BadRequestError as error:
        assert error.body["message"] == "messages is not a list of messages", error.body
    print(f"openai {openai.__version__} hears the same, streamed or not")
    server.end()


def main():
    if "--openai" in sys.argv:
        return check_client()
    server = Server("--chat-template", "chatml", "--allow-origin", "https://page.test", "--allow-host", "model.test")
    check_answers(server)
    check_choices(server)
    check_scores(server)
    check_chat(server)
    check_sampling(server)
    check_json(server)
    check_pages(server)
    server.end()
    guarded = Server(token=TOKEN)
    body = json.dumps({"prompt": "a", "max_tokens": 1})
    assert guarded.ask(body, "-H", f"Authorization: Bearer {TOKEN}")[0] == 200
    assert guarded.ask(body, "-H", f"Authorization: Bearer {TOKEN}x")[0] == 401
    assert guarded.get("/").startswith("<!doctype html>") and "token is missing" in guarded.get("/v1/models")
    print(f"without the token: {guarded.ask(body)[0]}")
    status, text = guarded.ask(json.dumps({"messages": MESSAGES}), "-H", f"Authorization: Bearer {TOKEN}",
                               path="/v1/chat/completions")
    assert status == 400 and "--chat-template chatml|llama2|llama3|alpaca" in text, text
    check_unread_bodies(guarded)
    guarded.end()
    check_backlog()
    check_bound()


main()
