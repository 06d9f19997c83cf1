#!/usr/bin/env python3
"""Burdens a server with many, slow, silent and hostile clients. Usage: serve_strangers.py PLAN CHECKPOINT"""
import os
import resource
import sys
import threading
import time

from patience import slowdown
from served import Served, get, post, status_of, together

IDLE, SLOW, CLIENTS = 1000, 200, 8
STATED = 256 << 20  # docs/generate.md: what all connections take at most, without a sanitizer


def open_files(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def wait_for(condition, what):
    end = time.monotonic() + 60 * slowdown
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def check_many(server):
    """Clients have their answers while others hold connections and send a byte now and then."""
    idle = [server.connect() for _ in range(IDLE)]
    slow = [server.connect() for _ in range(SLOW)]
    over = threading.Event()

    def drip():
        request = get("/health")
        for at in range(len(request)):
            for client in slow:
                try:
                    client.send(request[at:at + 1])
                except OSError:  # too slow, closed by the server
                    pass
            if over.wait(0.2):
                return
    dripping = threading.Thread(target=drip)
    dripping.start()
    answers = together(lambda i: [server.exchange(post(prompt="a", max_tokens=20, temperature=0)) for _ in range(10)],
                       CLIENTS)
    held = open_files(server.process)
    over.set()
    dripping.join()
    assert all(status_of(said) == 200 for one in answers for said in one), answers
    assert IDLE < held < 2048 + 256, held
    for client in idle + slow:
        client.close()
    print(f"{IDLE} idle and {SLOW} slow connections: {CLIENTS} clients have all their answers, {held} connections")


def check_health(server):
    """Pages are answered before the texts that were asked for earlier."""
    done = []
    work = threading.Thread(target=lambda: together(
        lambda i: done.append(status_of(server.exchange(post(prompt=["a"] * 8, n=8, max_tokens=20)))), 32))
    work.start()
    wait_for(lambda: server.metrics()["espalier_texts_waiting"] > 500, "no text waits")
    assert status_of(server.exchange(get("/health"))) == 200
    metrics = server.metrics()
    assert metrics["espalier_texts_waiting"] > 0 and len(done) < 32, metrics
    work.join()
    assert done == [200] * 32, done
    print("health and metrics are answered while the model works")


def check_gone(server):
    before = server.metrics()
    clients = [server.connect() for _ in range(40)]
    for i, client in enumerate(clients):
        client.sendall(post(prompt=["a"] * 8, n=16, max_tokens=60, stream=i % 2 == 0))
    wait_for(lambda: server.metrics()["espalier_texts_waiting"] > 3000, "no text waits")
    for client in clients:
        client.close()
    wait_for(lambda: server.metrics()["espalier_texts_waiting"] + server.metrics()["espalier_texts_running"] == 0,
             "texts wait for clients that have gone")
    made = server.metrics()["espalier_generated_tokens_total"] - before["espalier_generated_tokens_total"]
    assert made < 40 * 8 * 16 * 60 / 2, made
    print(f"the texts of {len(clients)} clients that have gone are dropped")


def check_batch(server):
    """A short text takes the place of long texts that nobody waits for, and waits for those that somebody does."""
    long, short = post(prompt=["a"] * 4, max_tokens=1000), post(prompt="a", max_tokens=1)

    def seconds(is_gone):
        client = server.connect()
        client.sendall(long)
        wait_for(lambda: server.metrics()["espalier_texts_running"] == 4, "the batch is not full")
        begin = time.monotonic()
        if is_gone:
            client.close()
        assert status_of(server.exchange(short)) == 200
        taken = time.monotonic() - begin
        client.close()
        wait_for(lambda: server.metrics()["espalier_texts_running"] == 0, "a text runs")
        return taken
    held, free = (min(seconds(is_gone) for _ in range(5)) for is_gone in (False, True))
    assert free < held / 2, (free, held)
    print("the batch is free when its client has gone")


def check_waiting(plan, checkpoint):
    server = Served(plan, checkpoint, "--waiting", "4")
    said = together(lambda i: server.exchange(post(prompt=["a"] * 8, n=16, max_tokens=60)), 24)
    statuses = {status_of(one) for one in said}
    assert statuses == {200, 503}, said
    assert all(b"\r\nRetry-After: 1\r\n" in one for one in said if status_of(one) == 503), said
    server.end()
    print("beyond --waiting: 503 with Retry-After")


def check_memory(plan, checkpoint):
    """Heads and bodies that do not end, from as many clients as the server takes."""
    server = Served(plan, checkpoint)
    status_of(server.exchange(post(prompt="a", max_tokens=2)))
    before = server.memory("VmRSS")
    body = post(prompt="a" * ((1 << 20) - 100))
    clients = [server.connect() for _ in range(2000)]
    for client in clients:
        client.setblocking(False)
    held = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 15000
    for client in clients[80:]:
        client.send(held)
    sent = [0] * 80
    end = time.monotonic() + 5 * slowdown
    while time.monotonic() < end and sum(sent) < 80 * (len(body) - 1):
        for i in range(80):
            try:
                sent[i] += clients[i].send(body[sent[i]:-1][:65536])
            except OSError:  # not read at present, or refused
                pass
    wait_for(lambda: server.metrics().get('espalier_responses_total{path="/v1/completions",status="503"}', 0) > 0,
             "all bodies are taken")
    grown = server.memory("VmHWM") - before
    assert 64 << 20 < grown < STATED * slowdown, f"{grown >> 20} MiB"
    assert status_of(server.exchange(get("/health"))) == 200
    for client in clients:
        client.close()
    for fields in ("Content-Encoding: gzip\r\n", "Range: bytes=0-,0-,0-,0-\r\n"):
        said = server.exchange(post(fields=fields + "Connection: close\r\n", prompt="a", max_tokens=1))
        assert status_of(said) == (415 if "gzip" in fields else 200) and len(said) < 2000, said
    print("2000 long heads and 80 long bodies: within the stated memory")
    return server


def main():
    plan, checkpoint = sys.argv[1:3]
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, files[1]), files[1]))
    server = Served(plan, checkpoint, "--waiting", "8192")
    check_many(server)
    check_health(server)
    check_gone(server)
    check_batch(server)
    server.end()
    check_waiting(plan, checkpoint)
    print(f"ended with {check_memory(plan, checkpoint).end()}")


main()
