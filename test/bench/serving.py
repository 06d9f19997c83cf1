"""A server of a plan for generation, and the rate at which a server decodes."""
import json
import re
import subprocess
import sys
import threading
import time
import urllib.request

FEW, MANY = 10, 110  # tokens of the two answers that a rate compares


class Server:
    """`espalier serve` of a plan, until end()."""

    def __init__(self, espalier, plan, checkpoint, threads=None):
        command = [espalier, "serve", plan, "--checkpoint", checkpoint]
        command += ["--threads", str(threads)] if threads else []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = []
        for line in self.process.stdout:
            said.append(line)
            if found := re.search(r"http://\S+", line):
                self.url = found[0]
                break
        else:
            sys.exit(f"{' '.join(command)} did not start:\n{''.join(said)}")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def complete(self, body):
        """Posts a request to /v1/completions. Returns the response, whose lines are those of a stream."""
        return post(self.url + "/v1/completions", body)

    def seconds(self, texts, tokens):
        """Returns the seconds of one request with `texts` prompts of one token and `tokens` tokens of each answer."""
        begin = time.perf_counter()
        answer = json.load(self.complete({"prompt": [[7]] * texts, "max_tokens": tokens}))
        assert answer["usage"]["completion_tokens"] == texts * tokens, answer["usage"]
        return time.perf_counter() - begin

    def end(self):
        self.process.terminate()
        self.process.wait()


def post(url, body):
    return urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(),
                                                         {"Content-Type": "application/json"}))


def rate(server, texts):
    """Returns the tokens per second of decoding `texts` texts at once. Prompts do not count."""
    return texts * (MANY - FEW) / (server.seconds(texts, MANY) - server.seconds(texts, FEW))
