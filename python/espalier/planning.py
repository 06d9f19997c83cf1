"""Plans of a run file: search, compilation and explanation."""
from __future__ import annotations

import dataclasses
import html
import json
import os
import tempfile
from typing import Any, Iterable, Mapping, Optional, Sequence, Union

from . import command
from .errors import InputError

PathLike = Union[str, "os.PathLike[str]"]
Pins = Union[str, Mapping[str, Any], None]


def _pin_words(pins: Union[str, Mapping[str, Any]]) -> str:
    """``{"tp": 8, "stage_layers": [19, 21]}`` as ``tp=8,stage_layers=[19,21]``."""
    if isinstance(pins, str):
        return pins

    def word(value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, (list, tuple)):
            return "[" + ",".join(word(item) for item in value) + "]"
        return str(value)
    return ",".join(f"{key}={word(value)}" for key, value in pins.items())


def _run_words(run: PathLike, cluster: Optional[str], sets: Iterable[str]) -> list[str]:
    words = [os.fspath(run)]
    if cluster:
        words += ["--cluster", cluster]
    for assignment in sets:
        words += ["--set", assignment]
    return words


@dataclasses.dataclass(frozen=True)
class WhyNot:
    """The answer to a wish: what forbids it, or what its best plan costs more."""
    violated: list[str]               #: reasons why no such plan can run; empty where one can
    plan: Optional[dict[str, Any]]
    predicted: Optional[dict[str, Any]]
    more_seconds: Optional[float]     #: seconds per step above the chosen plan
    items: dict[str, float]           #: parts of ``more_seconds`` by cause
    lower_bound_seconds: Optional[float]


class Plan:
    """A plan with its prediction, and the plans that come next. Numbers are those of ``espalier plan --json``."""

    def __init__(self, fields: dict[str, Any], words: list[str], asked: Sequence[str] = ()) -> None:
        """``words``: the run as the verbs take it. ``asked``: pins and what-ifs, which only ``plan`` takes."""
        self._fields = fields
        self._words = words
        self._asked = list(asked)

    def compile_words(self) -> list[str]:
        """The words with which ``espalier compile`` takes this plan. Raises InputError where it takes another."""
        if self._asked:
            raise InputError(f"a plan of plan(..., {self._asked[0].lstrip('-')}=...) is an answer, not a run; pin it in "
                             "the run file with sets=[\"planner.pin.tp=8\", ...]")
        return self._words

    @property
    def fields(self) -> dict[str, Any]:
        """The whole answer as ``espalier plan --json`` prints it."""
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
        """What limits the plan, in words."""
        return str(self._fields["binding"] or self.predicted["binds"])

    @property
    def alternatives(self) -> list["Plan"]:
        """The plans that come next, the fastest first."""
        common = {key: self._fields[key] for key in ("model", "global_batch", "search", "binding")}
        return [Plan({**common, **other, "alternatives": []}, self._words, ["pin"])
                for other in self._fields["alternatives"]]

    def timeline(self) -> list[dict[str, Any]]:
        """The simulated step of the best plan as events of Chrome's trace format: stage ``pid``, ``name``, and ``ts``
        and ``dur`` in microseconds."""
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "trace.json")
            command.ask(["plan", *self._words, *self._asked, "--trace", file])
            with open(file, encoding="utf-8") as stream:
                return [event for event in json.load(stream)["traceEvents"] if event["ph"] == "X"]

    def why_not(self, wish: Pins = None, **pins: Any) -> WhyNot:
        """Says what speaks against a wish: ``plan.why_not(tp=4, pp=12)`` or ``plan.why_not("tp=4,pp=12")``."""
        words = _pin_words(wish if wish is not None else pins)
        answer = command.ask(["plan", *self._words, *self._asked, "--why-not", words])
        return WhyNot(answer["violated"], answer.get("plan"), answer.get("predicted"), answer.get("more_seconds"),
                      answer.get("items", {}), answer.get("lower_bound_seconds"))

    def __getitem__(self, key: str) -> Any:
        return self.plan[key]

    def describe(self) -> str:
        """One line: "dp 2, tp 2, pp 2, micro-batch 4 x 4, 1f1b, zero 1"."""
        plan = self.plan
        degrees = [f"{axis} {plan[axis]}" for axis in ("dp", "tp", "pp", "cp", "ep")
                   if plan[axis] > 1 or axis in ("dp", "tp", "pp")]
        return ", ".join([*degrees, f"micro-batch {plan['micro_batch_size']} x {plan['micro_batches']}",
                          plan["schedule"], f"zero {plan['zero']}", f"recompute {plan['recompute']}"])

    def __repr__(self) -> str:
        return f"<Plan of {self._fields['model']['name']}: {self.describe()}; {self.step_seconds:.4g} s per step>"

    def _repr_html_(self) -> str:
        """The table of plans, the pipeline's timeline, and where the time of a step goes, for notebooks."""
        from .notebook import plan_html
        return plan_html(self)


@dataclasses.dataclass(frozen=True)
class CompiledPlan:
    """A .plan file that :func:`compile` wrote."""
    path: str
    summary: str  #: model, ranks and plan in words

    def __fspath__(self) -> str:
        return self.path


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Where the values of a run file came from and what they do."""
    keys: list[dict[str, Any]]
    derived: list[dict[str, Any]]   #: values that follow from the file: name, value, reason
    warnings: list[dict[str, Any]]

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{html.escape(item['name'])}</td><td>{html.escape(item['value'])}</td>"
                       f"<td>{html.escape(item['reason'])}</td></tr>" for item in self.derived)
        return f"<table><tr><th>value</th><th></th><th>reason</th></tr>{rows}</table>"


def plan(run: PathLike, *, pin: Pins = None, cluster: Optional[str] = None, sets: Iterable[str] = (),
         devices: Optional[int] = None, target: str = "cpu") -> Plan:
    """Searches the best plan of a run file. No device is needed.

    ``pin``: only plans like this, ``{"tp": 8}`` or ``"tp=8,pp=2"``. ``cluster``: a cluster's name, ``NAME:HOSTSxDEVICES``
    or file over the run file's. ``sets``: ``"section.key=value"`` over the file's values. ``devices``: what if the
    cluster had so many devices. ``target``: ``cpu`` or ``cuda``.

    Raises :class:`InputError` and, where nothing fits, :class:`DoesNotFitError`.
    """
    words = [*_run_words(run, cluster, sets), "--target", target]
    asked = []
    if pin is not None:
        asked += ["--pin", _pin_words(pin)]
    if devices is not None:
        asked += ["--devices", str(devices)]
    return Plan(command.ask(["plan", *words, *asked]), words, asked)


def compile(run: Union[PathLike, Plan], output: PathLike, *, cluster: Optional[str] = None, sets: Iterable[str] = (),
            target: str = "cpu") -> CompiledPlan:
    """Compiles a run file, or the run of a :class:`Plan`, into the .plan file ``output``.

    A Plan brings its own cluster, sets and target.
    """
    if isinstance(run, Plan):
        words = run.compile_words()
    else:
        words = [*_run_words(run, cluster, sets), "--target", target]
    text = command.call(["compile", *words, "-o", os.fspath(output), "--error-format", "json"])
    return CompiledPlan(os.fspath(output), text.strip())


def explain(run: PathLike, key: Optional[str] = None, *, cluster: Optional[str] = None,
            sets: Iterable[str] = ()) -> Explanation:
    """Says for each value of a run file, or for one key or section, where it came from and what it does."""
    answer = command.ask(["explain", *_run_words(run, cluster, sets), *([key] if key else [])])
    return Explanation(answer["keys"], answer["derived"], answer["warnings"])
