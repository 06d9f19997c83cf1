"""Checks a report of `espalier bench roofline --json`; with a second one, that of a device with slower memory."""
import json
import sys

reports = [json.load(open(name)) for name in sys.argv[1:]]
for report in reports:
    total = sum(row["launches"] * row["seconds"] for row in report["rows"])
    assert abs(total - report["step_seconds"]) < 1e-9 * total, (total, report["step_seconds"])
    assert report["estimated"] is True and report["transfers_counted"] is False
    for row in report["rows"]:
        assert row["launches"] > 0 and row["seconds"] > 0, row
        assert row["bytes"] <= row["accessed_bytes"] * 1.0001, row  # of each buffer at most all of it
    assert any(row["name"].startswith("product [") and row["flops"] > 0 for row in report["rows"])
    assert any(row["name"].startswith("attention_forward") and row["instructions"] > 0 for row in report["rows"])
if len(reports) == 2:
    fast, slow = reports
    assert slow["step_seconds"] > fast["step_seconds"]
    assert any(row["limit"] == "memory" for row in slow["rows"])
