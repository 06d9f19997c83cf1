"""Compares the loss of a held-out text with weights in 8 bits and as they are stored, by the log probabilities of an
echoed prompt. Usage: eight_bits.py PLAN CHECKPOINT TEXT"""
import json
import sys

from served import Served, post

plan, checkpoint, path = sys.argv[1:]
with open(path, encoding="ascii", errors="ignore") as file:
    text = file.read()
pieces = [text[first:first + 60] for first in range(len(text) - 20000, len(text) - 60, 400)]


def loss(*options):
    """Returns the mean loss of the tokens of all pieces."""
    server = Served(plan, checkpoint, *options)
    scores = []
    for piece in pieces:
        said = server.exchange(post(prompt=piece, max_tokens=1, temperature=0, echo=True, logprobs=1))
        choice = json.loads(said.split(b"\r\n\r\n", 1)[1])["choices"][0]
        scores += choice["logprobs"]["token_logprobs"][1:len(piece)]
    server.end()
    return -sum(scores) / len(scores)


stored, eight = loss(), loss("--weights", "q8_0")
print(f"loss of {len(pieces)} pieces: {stored:.5f} as stored, {eight:.5f} in 8 bits")
assert stored < 3.3, "the model has learned nothing"
assert eight != stored, "the weights are not in 8 bits"
assert abs(eight / stored - 1) < 0.005
