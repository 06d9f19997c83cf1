"""Reads the data of a report and checks its numbers. Usage: report_data.py REPORT.html TYPE..."""
import json
import re
import sys

text = open(sys.argv[1], encoding="utf-8").read()
sections = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])["sections"]
types = {section["type"] for section in sections}
assert not set(sys.argv[2:]) - types, (set(sys.argv[2:]) - types, types)
for section in sections:
    kind = section["type"]
    if kind == "timeline":
        assert section["events"], section["title"]
        assert all(0 <= row < len(section["rows"]) and start >= 0 and seconds >= 0
                   for row, _, _, start, seconds in section["events"])
        assert {"forward", "backward"} <= {event[1] for event in section["events"]}
    elif kind == "stacked":
        assert all(len(part["values"]) == len(section["rows"]) for part in section["parts"])
        assert max(sum(part["values"][i] for part in section["parts"]) for i in range(len(section["rows"]))) > 0
    elif kind == "waterfall":
        assert all(len(series["values"]) == len(section["items"]) for series in section["series"])
    elif kind == "scatter":
        assert len(section["points"]) > 1 and section["points"][0]["mark"] in ("answer", "yours")
        fastest = min(point["y"] for point in section["points"])
        assert sum(point["mark"] == "answer" for point in section["points"]) <= 1, section
        assert all(point["y"] <= 1.03 * fastest for point in section["points"] if point["mark"] == "answer"), section
        assert all(point["y"] > 0 and 0 < point["error"] < 1 for point in section["points"])
    elif kind == "lines":
        assert all(series["points"] for series in section["series"]), section["title"]
    elif kind == "table":
        assert all(len(row) == len(section["columns"]) for row in section["rows"]), section["title"]
