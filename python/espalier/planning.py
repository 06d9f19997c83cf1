"""Searches, compiles and explains plans of a run file."""
from __future__ import annotations

import dataclasses
import html
import json
import os
import tempfile
from typing import Any, Iterable, Mapping, Optional, Sequence, Union

from . import command
from .errors import InputError
from .notebook import plan_html

PathLike = Union[str, "os.PathLike[str]"]
Pins = Union[str, Mapping[str, Any], None]
Sets = Union[Mapping[str, Any], Iterable[str]]  #: ``{"section.key": value}`` or ``["section.key=value"]``


def _assignments(values: Mapping[str, Any]) -> list[str]:
    """Formats values: ``{"tp": 8, "stage_layers": [19, 21]}`` becomes ``["tp=8", "stage_layers=[19,21]"]``."""
    def word(value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, (list, tuple)):
            return "[" + ",".join(word(item) for item in value) + "]"
        return "null" if value is None else str(value)
    return [f"{key}={word(value)}" for key, value in values.items()]


def _pin_words(pins: Union[str, Mapping[str, Any]]) -> str:
    return pins if isinstance(pins, str) else ",".join(_assignments(pins))


def _run_words(run: PathLike, cluster: Optional[str], sets: Sets) -> list[str]:
    words = [os.fspath(run)]
    if cluster:
        words += ["--cluster", cluster]
    if isinstance(sets, str):
        raise TypeError(f"sets is a dict or a list, such as {{'section.key': value}}; got the text {sets!r}")
    for assignment in _assignments(sets) if isinstance(sets, Mapping) else sets:
        words += ["--set", assignment]
    return words


@dataclasses.dataclass(frozen=True)
class WhyNot:
    """The answer for a requested plan: why no such plan can run, or the extra cost of the best such plan."""
    violated: list[str]               #: reasons why no such plan can run; empty if one can
    plan: Optional[dict[str, Any]]
    predicted: Optional[dict[str, Any]]
    more_seconds: Optional[float]     #: seconds per step above the chosen plan
    items: dict[str, float]           #: parts of ``more_seconds`` by cause
    lower_bound_seconds: Optional[float]

    def __repr__(self) -> str:
        if self.violated:
            return f"<WhyNot: impossible: {'; '.join(self.violated)}>"
        return f"<WhyNot: possible, {self.more_seconds:+.4g} s per step>"


class Plan:
    """A plan with its prediction and its alternatives. Numbers are those of ``espalier plan --json``."""

    def __init__(self, fields: dict[str, Any], words: list[str], asked: Sequence[str] = ()) -> None:
        """``words``: the arguments that describe the run. ``asked``: pins and what-if options of ``plan``."""
        self._fields = fields
        self._words = words
        self._asked = list(asked)

    def compile_words(self) -> list[str]:
        """Returns the arguments of ``espalier compile`` for this plan. Raises InputError for a pinned or what-if plan."""
        if self._asked:
            raise InputError(f"a plan of plan(..., {self._asked[0].lstrip('-')}=...) is an answer, not a run; pin it in "
                             "the run file with sets=[\"planner.pin.tp=8\", ...]")
        return self._words

    @property
    def fields(self) -> dict[str, Any]:
        """The complete output of ``espalier plan --json``."""
        return self._fields

    @property
    def plan(self) -> dict[str, Any]:
        """The degrees of parallelism, the schedule, and the layers of each stage."""
        plan: dict[str, Any] = self._fields["plan"]
        return plan

    @property
    def predicted(self) -> dict[str, Any]:
        """Seconds per step with their parts, tokens per second, MFU and memory of each stage."""
        predicted: dict[str, Any] = self._fields["predicted"]
        return predicted

    @property
    def step_seconds(self) -> float:
        """Predicted seconds per optimizer step."""
        return float(self.predicted["step_seconds"])

    @property
    def binding(self) -> str:
        """A description of what limits the plan."""
        return str(self._fields["binding"] or self.predicted["binds"])

    @property
    def alternatives(self) -> list["Plan"]:
        """The next best plans, the fastest first."""
        common = {key: self._fields[key] for key in ("model", "global_batch", "search", "binding")}
        return [Plan({**common, **other, "alternatives": []}, self._words, ["pin"])
                for other in self._fields["alternatives"]]

    def timeline(self) -> list[dict[str, Any]]:
        """Returns the simulated step of the best plan as events in Chrome's trace format: stage ``pid``, ``name``, and
        ``ts`` and ``dur`` in microseconds."""
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "trace.json")
            command.ask(["plan", *self._words, *self._asked, "--trace", file])
            with open(file, encoding="utf-8") as stream:
                return [event for event in json.load(stream)["traceEvents"] if event["ph"] == "X"]

    def why_not(self, wish: Pins = None, **pins: Any) -> WhyNot:
        """Explains why a plan was not chosen: ``plan.why_not(tp=4, pp=12)`` or ``plan.why_not("tp=4,pp=12")``."""
        words = _pin_words(wish if wish is not None else pins)
        answer = command.ask(["plan", *self._words, *self._asked, "--why-not", words])
        return WhyNot(answer["violated"], answer.get("plan"), answer.get("predicted"), answer.get("more_seconds"),
                      answer.get("items", {}), answer.get("lower_bound_seconds"))

    def __getitem__(self, key: str) -> Any:
        return self.plan[key]

    def describe(self) -> str:
        """Returns one line: "dp 2, tp 2, pp 2, micro-batch 4 x 4, 1f1b, zero 1"."""
        plan = self.plan
        degrees = [f"{axis} {plan[axis]}" for axis in ("dp", "tp", "pp", "cp", "ep")
                   if plan[axis] > 1 or axis in ("dp", "tp", "pp")]
        return ", ".join([*degrees, f"micro-batch {plan['micro_batch_size']} x {plan['micro_batches']}",
                          plan["schedule"], f"zero {plan['zero']}", f"recompute {plan['recompute']}"])

    def __repr__(self) -> str:
        return f"<Plan of {self._fields['model']['name']}: {self.describe()}; {self.step_seconds:.4g} s per step>"

    def _repr_html_(self) -> str:
        """Returns the table of plans, the pipeline's timeline, and the parts of a step for notebooks."""
        return plan_html(self)


@dataclasses.dataclass(frozen=True)
class CompiledPlan:
    """A .plan file that :func:`compile` wrote."""
    path: str
    summary: str  #: model, ranks and plan in words

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<CompiledPlan {' '.join(self.summary.split())}>"


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The origin and the effect of the values of a run file."""
    keys: list[dict[str, Any]]
    derived: list[dict[str, Any]]   #: values that follow from the file: name, value, reason
    warnings: list[dict[str, Any]]

    def __repr__(self) -> str:
        return (f"<Explanation: {len(self.keys)} keys, {len(self.derived)} derived values, "
                f"{len(self.warnings)} warnings>")

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{html.escape(item['name'])}</td><td>{html.escape(item['value'])}</td>"
                       f"<td>{html.escape(item['reason'])}</td></tr>" for item in self.derived)
        return f"<table><tr><th>value</th><th></th><th>reason</th></tr>{rows}</table>"


def plan(run: PathLike, *, pin: Pins = None, cluster: Optional[str] = None, sets: Sets = (),
         devices: Optional[int] = None, target: str = "cpu", system: Optional[str] = None,
         report: Optional[PathLike] = None) -> Plan:
    """Searches the best plan of a run file. Needs no device.

    ``pin``: restricts the search, for example ``{"tp": 8}`` or ``"tp=8,pp=2"``. ``cluster``: a cluster's name,
    ``NAME:HOSTSxDEVICES`` or a file; overrides the run file's cluster. ``sets``: ``{"section.key": value}`` or
    ``["section.key=value"]``; overrides values of the run file. ``devices``: plans for another number of devices.
    ``target``: ``cpu`` or ``cuda``. ``system``: the software that will run the plan, such as ``megatron_core``.
    ``report``: a file for a report as HTML.

    Raises :class:`InputError`, and :class:`DoesNotFitError` if no plan fits.
    """
    words = [*_run_words(run, cluster, sets), "--target", target]
    asked = []
    if pin is not None:
        asked += ["--pin", _pin_words(pin)]
    if devices is not None:
        asked += ["--devices", str(devices)]
    if system is not None:
        asked += ["--system", system]
    reported = [] if report is None else ["--report", os.fspath(report)]
    return Plan(command.ask(["plan", *words, *asked, *reported]), words, asked)


def compile(run: Union[PathLike, Plan], output: PathLike, *, cluster: Optional[str] = None, sets: Sets = (),
            target: str = "cpu", here: bool = False) -> CompiledPlan:
    """Compiles a run file, or the run of a :class:`Plan`, to the .plan file ``output``.

    A Plan includes its cluster, sets and target. ``here``: a run file without a cluster is for this machine.
    """
    if isinstance(run, Plan):
        words = run.compile_words()
    else:
        words = [*_run_words(run, cluster, sets), "--target", target]
    if here:
        words = [*words, "--here"]
    text = command.call(["compile", *words, "-o", os.fspath(output), "--error-format", "json"])
    return CompiledPlan(os.fspath(output), text.strip())


def explain(run: PathLike, key: Optional[str] = None, *, cluster: Optional[str] = None,
            sets: Sets = ()) -> Explanation:
    """Explains the origin and the effect of all values of a run file, or of one key or section."""
    answer = command.ask(["explain", *_run_words(run, cluster, sets), *([key] if key else [])])
    return Explanation(answer["keys"], answer["derived"], answer["warnings"])
