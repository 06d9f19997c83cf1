"""Checks the simulated shares of goodput.test. Usage: goodput.test.py OUTPUT

Failures come at rate 1 / M, and steps and saves alternate in periods of T + D seconds. A period counts if its write, W
seconds after its end, finishes before the next failure. The expected counted time between two failures is then
T exp(-W / M) / (exp((T + D) / M) - 1), and a recovery of R seconds without a failure takes M (exp(R / M) - 1).
"""
import math
import re
import sys

text = open(sys.argv[1]).read()
M = 54 * 24 * 3600 / 419
T, D, W, R = 600, 2, 60, 300
counted = T * math.exp(-W / M) / math.expm1((T + D) / M)
# After a recovery, the mean time to the next failure is M. Restarts of a recovery are failures, too.
cycle = M + M * math.expm1(R / M)
expected = 100 * counted / cycle
goodput = float(re.search(r"as given: .* goodput ([0-9.]+) %", text).group(1))
assert abs(goodput - expected) < 0.15, (goodput, expected)
shares = [float(share) for share in re.findall(r"^  [a-z ]+ ([0-9.]+) %", text, re.M)][:4]
assert abs(goodput + sum(shares) - 100) < 0.03, (goodput, shares)

# The best interval is near Daly's, and no worse than the given one.
best, daly = int(re.search(r"best: a save every (\d+)", text).group(1)), int(re.search(r"Daly (\d+)", text).group(1))
assert abs(daly - math.sqrt(2 * D * M) / 6) < 2, daly
assert 0.6 * daly <= best <= 1.7 * daly, (best, daly)
assert float(re.search(r"best: .* goodput ([0-9.]+) %", text).group(1)) >= goodput
