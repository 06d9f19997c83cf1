"""Compares measured traces with the simulated one of a plan. Usage: same_tracks.py SIMULATED MEASURED...

Both have the same stages. The track of micro-batches has each backward of the simulated step once, per chunk and in the
same order. The same holds for each forward, except where the head does both at once. Every event has an end and begins
after the previous event of its track.
"""
import collections
import json
import sys


def read(path):
    with open(path) as file:
        return json.load(file)["traceEvents"]


def actions(events):
    """Returns {stage: [F0.0, B0.0, ...]} ordered by start time."""
    found = collections.defaultdict(list)
    for event in sorted((e for e in events if e["ph"] == "X" and e["tid"] == 0), key=lambda e: e["ts"]):
        of = event["args"]
        if "action" in of:
            name = f"{of['action']}{of['micro_batch']}.{of['chunk']}"
            said = {"F": "forward", "B": "backward", "W": "weight gradient"}[of["action"]]
            assert event["name"].startswith(f"{said} mb {of['micro_batch']}"), event
            if found[event["pid"]][-1:] != [name]:  # the all-reduces split a chunk's last backward
                found[event["pid"]].append(name)
    return found


def check(path, simulated):
    events = read(path)
    measured = actions(events)
    assert sorted(measured) == sorted(simulated), (path, sorted(measured), sorted(simulated))
    for stage, names in simulated.items():
        assert len(set(measured[stage])) == len(measured[stage]), f"{path}: stage {stage} runs one twice: {measured[stage]}"
        missing = set(names) - set(measured[stage])
        assert not [name for name in missing if name[0] == "B"], f"{path}: stage {stage} has not {sorted(missing)}"
        assert not set(measured[stage]) - set(names), f"{path}: stage {stage} has more than {names}"
        wanted = [name for name in names if name not in missing]
        assert measured[stage] == wanted, f"{path}: stage {stage} has {measured[stage]} for {wanted}"
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    for event in events:
        if event["ph"] == "X":
            if "transfer" in event["args"]:
                assert event["args"]["bytes"] > 0, f"{path}: {event}"
            assert event["dur"] >= 0 and event["ts"] >= 0, f"{path}: {event}"
            assert (event["pid"], event["tid"]) in tracks, f"{path}: {event} lies on no track"
    assert any(tracks[e["pid"], e["tid"]] not in ("micro-batches", "once per step", "waits")
               for e in events if e["ph"] == "X"), f"{path}: no transfer"
    return measured


def main():
    simulated = actions(read(sys.argv[1]))
    for path in sys.argv[2:]:
        measured = check(path, simulated)
    for stage in sorted(measured):
        counts = collections.Counter(name[0] for name in measured[stage])
        print(f"stage {stage}: " + ", ".join(f"{counts[kind]} {kind}" for kind in "FBW" if counts[kind]))


main()
