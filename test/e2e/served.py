"""`espalier serve` for tests, and connections that send bytes as they are given."""
import atexit
import json
import os
import signal
import socket
import subprocess
import threading

from patience import slowdown


class Served:
    """A server of a plan with the byte tokenizer, until end()."""

    def __init__(self, plan, checkpoint, *options, token=None):
        environment = {**os.environ, **({"ESPALIER_TOKEN": token} if token else {})}
        self.process = subprocess.Popen(["espalier", "serve", plan, "--checkpoint", checkpoint, "--tokenizer", "bytes",
                                         *options], stdout=subprocess.PIPE, text=True, env=environment)
        atexit.register(self.process.kill)  # if a check fails
        line = self.process.stdout.readline()
        assert line.startswith("listening on http://127.0.0.1:"), line
        self.url = line.split()[-1]
        self.port = int(self.url.rsplit(":", 1)[1])

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=60 * slowdown)

    def exchange(self, request):
        """Sends a request and returns all that the server says until it closes the connection."""
        return exchange(self.port, request)

    def metrics(self, fields="Connection: close\r\n"):
        text = self.exchange(get("/metrics", fields)).decode().split("\r\n\r\n", 1)[1]
        return {name: float(value) for name, value in
                (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))}

    def memory(self, kind):
        """Returns the bytes of VmRSS, the memory now, or of VmHWM, the most so far."""
        with open(f"/proc/{self.process.pid}/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(kind))

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60 * slowdown)


def exchange(port, request):
    with socket.create_connection(("127.0.0.1", port), timeout=180 * slowdown) as client:
        said = b""
        try:
            client.sendall(request)
            while piece := client.recv(65536):
                said += piece
        except (BrokenPipeError, ConnectionResetError):  # closed by the server
            pass
        return said


def get(path, fields="Connection: close\r\n"):
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n".encode()


def post(path="/v1/completions", fields="Connection: close\r\n", **body):
    text = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{fields}"
            f"Content-Length: {len(text)}\r\n\r\n").encode() + text


def status_of(said):
    return int(said.split(b" ", 2)[1]) if said.startswith(b"HTTP/1.1 ") else None


def together(work, count):
    """Runs work(i) for all i at once. Returns the results."""
    results = [None] * count

    def one(i):
        results[i] = work(i)
    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
