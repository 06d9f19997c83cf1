#!/usr/bin/env python3
"""Measures how fast `espalier serve` answers clients that come and go, beside the rate of a full batch.

Usage: eight_clients.py ESPALIER X.plan CHECKPOINT [--clients 8] [--prompt 4:32] [--answer 16:128] [--seconds 20]
                        [--rounds 3] [--threads N]

The plan is compiled with run_mode predict. In each round, one request decodes a full batch. Then each client sends a request with a random prompt, reads the stream of tokens to its end and sends the next one. The lengths of
prompts and answers are uniform in their ranges; tokens are sampled at temperature 1. The rate of the clients counts
each token when it arrives, so that answers at the ends of the interval count in part. Prints each round and the
median of the shares."""
import argparse
import random
import statistics
import threading
import time

from serving import Server, rate


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("espalier")
    parser.add_argument("plan")
    parser.add_argument("checkpoint")
    parser.add_argument("--clients", type=int, default=8)
    span = lambda text: tuple(int(part) for part in text.split(":"))
    parser.add_argument("--prompt", type=span, default=(4, 32), metavar="LEAST:MOST")
    parser.add_argument("--answer", type=span, default=(16, 128), metavar="LEAST:MOST")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    return parser.parse_args()


def serve_client(server, options, seed, end, arrivals):
    draw = random.Random(seed)
    while time.perf_counter() < end:
        prompt = [draw.randrange(1000) for _ in range(draw.randint(*options.prompt))]
        body = {"prompt": prompt, "max_tokens": draw.randint(*options.answer), "stream": True, "seed": draw.randrange(10**6),
                "return_token_ids": True}
        for line in server.complete(body):
            if line.startswith(b"data: {"):
                arrivals.extend([time.perf_counter()] * line.count(b"token_ids"))


def clients_rate(server, options, number):
    warm = options.seconds / 5
    begin = time.perf_counter() + warm
    end = begin + options.seconds
    arrivals = [[] for _ in range(options.clients)]
    threads = [threading.Thread(target=serve_client, args=(server, options, 1000 * number + i, end, arrivals[i]))
               for i in range(options.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(begin <= at < end for one in arrivals for at in one) / options.seconds


def main():
    options = parse()
    server = Server(options.espalier, options.plan, options.checkpoint, options.threads)
    try:
        shares = []
        for number in range(options.rounds):
            full, several = rate(server, options.clients), clients_rate(server, options, number)
            shares.append(several / full)
            print(f"full batch {full:.0f} tokens/s, {options.clients} clients {several:.0f} tokens/s: "
                  f"{100 * shares[-1]:.0f} %", flush=True)
        print(f"median {100 * statistics.median(shares):.0f} %")
    finally:
        server.end()


if __name__ == "__main__":
    main()
