"""Checks the contract of `espalier plan --json`: its keys, and that its numbers are consistent."""
import json
import sys

answer = json.load(open(sys.argv[1]))
assert answer["model"]["parameters"] == 12853386240, answer["model"]
plan, predicted = answer["plan"], answer["predicted"]
for key in ("dp tp pp cp ep zero sequence_parallel vocab_parallel micro_batch_size micro_batches virtual_stages schedule "
            "recompute stages executable").split():
    assert key in plan, key
for key in "step_seconds tokens_per_second mfu memory_bytes memory_limit_bytes".split():
    assert key in predicted, key
for key in "space evaluated seconds lower_bound_seconds optimal".split():
    assert key in answer["search"], key
assert plan["executable"] and answer["search"]["optimal"]
assert plan["dp"] * plan["tp"] * plan["pp"] * plan["cp"] * plan["ep"] == 32
assert plan["dp"] * plan["micro_batch_size"] * plan["micro_batches"] == answer["global_batch"]
assert sum(stage["layers"] for stage in plan["stages"]) == 40
assert len(predicted["memory_bytes"]) == plan["pp"]
assert max(predicted["memory_bytes"]) <= predicted["memory_limit_bytes"]
assert abs(sum(predicted["seconds"].values()) - predicted["step_seconds"]) < 1e-6 * predicted["step_seconds"]
assert answer["alternatives"] and answer["rejected"] == []
assert answer["schema"] == 1 and answer["error"] == predicted["error"] == 0.3 and answer["comparison_error"] == 0.06
assert answer["family_error"] == 0.14 and answer["unmeasured_error"] == 0.3
assert answer["software"] == "espalier" and answer["machine"]["devices"] == 32 and answer["why"].startswith("the ")
low, high = answer["interval"]
assert abs(low * 1.3 - predicted["step_seconds"]) < 1e-6 and abs(high / 1.3 - predicted["step_seconds"]) < 1e-6
fastest = answer["search"]["fastest_seconds"]
assert predicted["step_seconds"] <= 1.03 * fastest
times = [other["predicted"]["step_seconds"] for other in answer["alternatives"]]
assert times == sorted(times) and times[0] >= fastest * (1 - 1e-9)
for other in answer["alternatives"]:  # the error of a comparison depends on the axes of both plans
    slower = other["predicted"]["step_seconds"] / predicted["step_seconds"]
    assert abs(other["difference"] - (slower - 1)) < 1e-9
    assert other["equal"] if 1 / 1.06 <= slower <= 1.06 else slower <= 1.3 or not other["equal"], (slower, other["equal"])
    assert other["equal"] or (other["probability_faster"] < 0.1) == (slower > 1)
