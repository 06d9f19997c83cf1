"""Compares the JSON of a sweep with that of one number of devices."""
import json
import sys

sweep, one = (json.load(open(name)) for name in sys.argv[1:])
assert sweep["schema"] == 1 and sweep["global_batch"] == one["global_batch"]
points = {point["devices"]: point for point in sweep["points"]}
assert list(points) == [16, 12, 32], list(points)
assert points[16]["plan"] == one["plan"], (points[16]["plan"], one["plan"])
assert points[16]["predicted"] == one["predicted"]
assert points[12]["plan"] is None and points[12]["reason"], points[12]
for devices in (16, 32):
    point = points[devices]
    hours = devices * 1e9 / point["predicted"]["tokens_per_second"] / 3600
    assert abs(point["device_hours_per_billion_tokens"] / hours - 1) < 1e-9
    assert abs(point["price_per_billion_tokens"] / (2 * hours) - 1) < 1e-9
