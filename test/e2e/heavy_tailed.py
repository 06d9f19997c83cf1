#!/usr/bin/env python3
"""Prints 600 documents of the words of a text, a JSON object per line. The logarithm of their lengths is normal."""
import json
import random
import sys

words = open(sys.argv[1], encoding="utf-8").read().split()
numbers = random.Random(3)
for _ in range(600):
    length = min(60, max(1, int(numbers.lognormvariate(2.0, 0.8))))
    first = numbers.randrange(len(words) - 60)
    print(json.dumps({"text": " ".join(words[first:first + length])}))
