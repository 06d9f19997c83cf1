#!/usr/bin/env python3
"""Sends ambiguous requests to a server through nginx. Usage: serve_nginx.py PLAN CHECKPOINT FOLDER

A stranger without the token sends a request whose body, or the bytes behind it, is the beginning of another request. Then
a client with the token asks. The path /v1/models is asked for by the second requests alone. nginx logs those that it has
read itself, as requests of the stranger behind an empty body; the server must not have read more."""
import atexit
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

from patience import slowdown
from served import Served, exchange, get, status_of

TOKEN = "a-token-of-the-test"
KEY = f"Authorization: Bearer {TOKEN}\r\n"
# Whole, and open: the next request of the connection would be the value of a field.
INNER = ["GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX: "]
CONF = """
daemon off; master_process off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  log_format path $uri; access_log {folder}/access.log path; client_max_body_size 8m; ignore_invalid_headers off; underscores_in_headers on;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d;
  scgi_temp_path {folder}/e;
  upstream model {{ server 127.0.0.1:{port}; keepalive 1; }}
  server {{
    listen 127.0.0.1:{own};
    proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass_request_headers on;
    location / {{ proxy_pass http://model; proxy_request_buffering {buffering}; }}
  }}
}}
"""


def requests():
    """Yields the requests of a stranger."""
    for inner in INNER:
        length = f"Content-Length: {len(inner)}\r\n"
        json = "Content-Type: application/json\r\n"
        chunk = f"{len(inner):x}\r\n{inner}\r\n0\r\n\r\n"
        paths = ["POST /v1/completions", "POST /nothing", "GET /health", "GET /nothing", "GET /", "DELETE /v1/completions",
                 "OPTIONS /v1/completions", "HEAD /health", "PUT /health"]
        for line in paths:
            for fields in ("", json, json + "Origin: https://evil.test\r\n", "Content-Encoding: gzip\r\n"):
                yield line, fields + length, inner
                yield line, fields + "Transfer-Encoding: chunked\r\n", chunk
            yield line, json + "Expect: 100-continue\r\n" + length, inner
            yield line, json + length + f"Content-Length: {len(inner)}\r\n", inner
            yield line, json + "Content-Length: 0\r\n" + length, inner
            yield line, json + "Content-Length: 0\r\n", inner
            yield line, json + f"Content-Length: 0, {len(inner)}\r\n", inner
            yield line, json + "Content-Length: +0\r\n", inner
            yield line, json + length + "Transfer-Encoding: chunked\r\n", f"0\r\n\r\n{inner}"
            yield line, json + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", chunk
            for coding in ("Transfer-Encoding: chunked, identity", "Transfer-Encoding: identity", "Transfer-Encoding: xchunked",
                           "Transfer-Encoding : chunked", "Transfer-Encoding:\tchunked", "Transfer_Encoding: chunked",
                           "X: y\r\n Transfer-Encoding: chunked", "X: y\nTransfer-Encoding: chunked",
                           "Transfer-Encoding:\x0bchunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
                           "Connection: Content-Length", "Upgrade: h2c\r\nConnection: Upgrade"):
                yield line, json + coding + "\r\n" + length, f"0\r\n\r\n{inner}"
                yield line, json + coding + "\r\n", chunk
            for head in ("0;a=b", "0;\n", "00", "0 ", "-0", "0x0", "10000000000000000"):
                yield line, json + "Transfer-Encoding: chunked\r\n", f"{head}\r\n\r\n{inner}"
            yield line, json + "Transfer-Encoding: chunked\r\n", f"1\r\nxy\r\n0\r\n\r\n{inner}"
            yield line, json + "Transfer-Encoding: chunked\r\n", f"1\nx\n0\n\n{inner}"
            yield line, json + "Transfer-Encoding: chunked\r\n", f"0\r\nContent-Length: 50\r\n\r\n{inner}"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start_nginx(port, folder, buffering):
    own = free_port()
    folder.mkdir()
    (folder / "nginx.conf").write_text(CONF.format(folder=folder, port=port, own=own, buffering=buffering))
    program = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
    process = subprocess.Popen([program, "-p", str(folder), "-e", "error.log", "-c", "nginx.conf"])
    atexit.register(process.kill)
    for _ in range(200 * slowdown):
        try:
            socket.create_connection(("127.0.0.1", own)).close()
            return own, process
        except OSError:
            time.sleep(0.05)
    raise AssertionError("nginx does not start: " + (folder / "error.log").read_text())


def send(port, request):
    """Sends a request and closes the sending half, so that nginx does not wait for the rest of a body. Returns the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=20 * slowdown) as client:
        said = b""
        try:
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
            while piece := client.recv(65536):
                said += piece
        except OSError:
            pass
        return said


def main():
    plan, checkpoint, folder = sys.argv[1:4]
    server = Served(plan, checkpoint, "--allow-host", "model", token=TOKEN)
    sent = 0
    for buffering in "on", "off":
        port, nginx = start_nginx(server.port, pathlib.Path(folder, buffering).absolute(), buffering)
        for line, fields, body in requests():
            send(port, f"{line} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n{body}".encode())
            said = exchange(port, get("/health", KEY + "Connection: close\r\n"))
            assert status_of(said) == 200 and said.endswith(b'{"status":"ok"}'), (line, fields, body, said)
            sent += 1
        nginx.terminate()
        nginx.wait()
    counters = server.metrics(KEY + "Connection: close\r\n")
    read = sum(value for name, value in counters.items() if 'path="/v1/models"' in name)
    passed = sum(log.read_text().splitlines().count("/v1/models") for log in pathlib.Path(folder).glob("o*/access.log"))
    # nginx logs requests, too, whose client has gone before it has passed them on.
    assert 0 < read <= passed, (read, passed, counters)
    assert 'espalier_responses_total{path="/v1/models",status="200"}' not in counters, "the token of another client"
    assert counters['espalier_responses_total{path="/health",status="200"}'] >= sent, counters
    print(f"{sent} requests of a stranger through nginx, with buffered and with unbuffered bodies: none is read as two")
    print(f"one connection of nginx to the server had {check_keep_alive(server, pathlib.Path(folder, 'keep'))} requests")


def check_keep_alive(server, folder):
    """Returns how many requests of a client nginx sent by one connection, by the ports from which it has connected."""
    port, nginx = start_nginx(server.port, folder.absolute(), "on")
    inodes, count = set(), 20
    for _ in range(count):
        assert status_of(exchange(port, get("/health", KEY + "Connection: close\r\n"))) == 200
        with open("/proc/net/tcp") as file:
            rows = [line.split() for line in file][1:]
        inodes.update(row[1] for row in rows if row[2].endswith(f":{server.port:04X}") and row[3] == "01"
                      and row[9] in owned(nginx.pid))
    nginx.terminate()
    nginx.wait()
    assert len(inodes) == 1, inodes
    return count


def owned(pid):
    """Returns the inodes of the sockets of a process."""
    links = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd") if os.path.islink(entry.path)]
    return {link[8:-1] for link in links if link.startswith("socket:[")}


main()
