"""Tests search, compilation and explanation."""
import pytest

import espalier as ep


def test_plan_has_the_fields_of_the_json(run_file):
    plan = ep.plan(run_file)
    assert (plan["dp"], plan["tp"], plan["pp"]) == (2, 2, 2)
    assert plan.step_seconds == plan.predicted["step_seconds"] > 0
    assert plan.alternatives and all(other.step_seconds > 0 for other in plan.alternatives)
    assert "gpt2" in repr(plan) and "dp 2, tp 2, pp 2" in repr(plan)


def test_pins_restrict_the_search(run_file):
    pinned = ep.plan(run_file, pin={"tp": 4, "pp": 1})
    assert pinned["tp"] == 4 and all(other["tp"] == 4 for other in pinned.alternatives)
    assert ep.plan(run_file, pin="tp=4,pp=1").plan == pinned.plan


def test_another_cluster(run_file):
    assert ep.plan(run_file, cluster="cpu_local:1x4", pin={"tp": 4}).fields["what_if"]["devices_after"] == 4


def test_why_not(run_file):
    plan = ep.plan(run_file)
    possible = plan.why_not(tp=2, pp=1)
    assert not possible.violated and possible.plan["tp"] == 2 and possible.items
    with pytest.raises(ep.InputError, match="tp"):
        plan.why_not(tp=3)


def test_html_has_each_plan_and_each_part_of_the_step(run_file):
    plan = ep.plan(run_file)
    page = plan._repr_html_()
    assert page.count("<tr>") >= 2 + len(plan.alternatives)
    assert "bubble" in page and "<svg" in page
    assert "stage 1" in page and "forward" in page.lower()  # the timeline of the simulated step


def test_html_calls_only_the_fastest_plan_best(run_file):
    pinned = ep.plan(run_file)  # the run file pins a plan that is slower than others
    assert min(other.step_seconds for other in pinned.alternatives) < pinned.step_seconds
    page = ep.plan_html(pinned)
    assert "<td>best</td>" not in page and "<td>this plan</td>" in page and page.count("<td>fastest</td>") == 1
    assert "a step of this plan" in page
    free = ep.plan(run_file, sets=["parallel.parallel_mode=2"])
    is_best = all(other.step_seconds >= free.step_seconds for other in free.alternatives)
    assert ("<td>best</td>" in ep.plan_html(free)) == is_best


def test_repr_is_one_line(run_file, split_plan_file):
    plan = ep.plan(run_file)
    for result in (plan, plan.why_not(tp=2, pp=1), ep.explain(run_file), split_plan_file,
                   ep.RunResult([{"step": i, "loss": 1.0 / i} for i in range(1, 1000)], [], "ckpt"),
                   ep.Metrics([], []), ep.Metrics([{"step": 1, "loss": None}], [{"evaluation_after_step": 1}]),
                   ep.Completion([1, 2], "two\nlines " * 40, "stop", 1.0, 1.0)):
        assert "\n" not in repr(result) and len(repr(result)) < 250, repr(result)
    assert repr(ep.RunResult([{"step": 1, "loss": 5.5}, {"step": 2, "loss": 2.25}], [], "ckpt")) == \
        "<RunResult: steps 1 to 2, loss 5.5 to 2.25; checkpoint ckpt>"


def test_error_has_file_line_and_hint(run_file, tmp_path):
    broken = tmp_path / "broken.yaml"
    broken.write_text(run_file.read_text().replace("hidden_size: 64", "hiden_size: 64"))
    with pytest.raises(ep.InputError) as raised:
        ep.plan(broken)
    line = 1 + broken.read_text().splitlines().index("    hiden_size: 64")
    at_line = [finding for finding in raised.value.findings if finding.line == line]
    assert at_line and at_line[0].file == str(broken) and "hidden_size" in at_line[0].hint
    assert raised.value.file and raised.value.line > 0 and str(raised.value.line) in str(raised.value)


def test_missing_file_is_an_input_error(tmp_path):
    with pytest.raises(ep.InputError, match="nowhere.yaml"):
        ep.plan(tmp_path / "nowhere.yaml")


def test_what_does_not_fit(run_file):
    with pytest.raises(ep.DoesNotFitError):
        ep.plan(run_file, sets=["context.max_device_memory=1MB"])


def test_compile_writes_a_plan(split_plan_file):
    assert "8 ranks" in split_plan_file.summary
    with open(split_plan_file, "rb") as stream:
        assert len(stream.read()) > 1000


def test_compile_of_a_plan_object_takes_its_run(run_file, tmp_path):
    compiled = ep.compile(ep.plan(run_file), tmp_path / "of.plan")
    again = ep.compile(run_file, tmp_path / "again.plan")
    assert (tmp_path / "of.plan").read_bytes() == (tmp_path / "again.plan").read_bytes()
    assert compiled.path != again.path
    with pytest.raises(ep.InputError, match="pin"):
        ep.compile(ep.plan(run_file, pin={"tp": 4, "pp": 1}), tmp_path / "pinned.plan")


def test_explain(run_file):
    explanation = ep.explain(run_file)
    assert any(key["key"] == "parallel_config.model_parallel" for key in explanation.keys)
    assert any(value["name"] == "parameters" for value in explanation.derived)
    one = ep.explain(run_file, "parallel_config.model_parallel")
    assert [key["key"] for key in one.keys] == ["parallel_config.model_parallel"]
