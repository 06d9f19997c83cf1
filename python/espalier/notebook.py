"""Formats a plan as HTML for notebooks."""
from __future__ import annotations

import html
import math
from typing import Any, Optional, Protocol, Sequence

_COLORS = ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#bbbbbb", "#994455", "#997700", "#004488")


class Plan(Protocol):
    """The part of a plan that the table shows."""
    @property
    def step_seconds(self) -> float: ...
    @property
    def predicted(self) -> dict[str, Any]: ...
    @property
    def binding(self) -> str: ...
    @property
    def alternatives(self) -> Sequence["Plan"]: ...
    def describe(self) -> str: ...
    def timeline(self) -> list[dict[str, Any]]: ...


def plan_html(plan: Plan) -> str:
    """Returns a table of the plan and its alternatives, the pipeline's timeline, and a bar with the parts of a step.

    The plan is called the best one only if no alternative is faster. A run file may pin a slower plan.
    """
    plans = [plan, *plan.alternatives]
    fastest = min(range(len(plans)), key=lambda i: plans[i].step_seconds)
    names = [str(i) for i in range(1, len(plans) + 1)]
    names[0] = "best" if fastest == 0 else "this plan"
    names[fastest] = names[fastest] if fastest == 0 else "fastest"
    rows = "".join(_row(name, other) for name, other in zip(names, plans))
    return (f'<table style="white-space:nowrap"><tr><th></th><th>plan</th><th>step (s)</th><th>tokens/s</th><th>MFU</th>'
            f"<th>memory (GB)</th></tr>{rows}</table><p>a step of {'the best' if fastest == 0 else 'this'} plan</p>"
            f"{_timeline(plan.timeline())}{_bar(plan.predicted)}<p>{html.escape(plan.binding)}</p>")


def _row(name: str, plan: Plan) -> str:
    predicted = plan.predicted
    memory = f"{max(predicted['memory_bytes']) / 2**30:.2f}/{predicted['memory_limit_bytes'] / 2**30:.2f}"
    cells = (name, plan.describe(), f"{predicted['step_seconds']:.4g}", f"{predicted['tokens_per_second']:,.0f}",
             f"{100 * predicted['mfu']:.1f} %", memory)
    return "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"


def _bar(predicted: dict[str, Any]) -> str:
    """Returns a bar of the time of one step. A tooltip and the legend give the share of each part."""
    parts = [(name.replace("_", " "), seconds) for name, seconds in predicted["seconds"].items() if seconds > 0]
    total = sum(seconds for _, seconds in parts) or 1.0
    bar, legend, at = "", "", 0.0
    for i, (name, seconds) in enumerate(parts):
        color, width = _COLORS[i % len(_COLORS)], 600 * seconds / total
        label = f"{name}: {seconds:.4g} s, {100 * seconds / total:.1f} %"
        bar += (f'<rect x="{at:.1f}" y="0" width="{width:.1f}" height="24" fill="{color}">'
                f"<title>{html.escape(label)}</title></rect>")
        legend += f'<span style="color:{color}">&#9632;</span> {html.escape(label)} &nbsp; '
        at += width
    return f'<svg width="600" height="24" role="img" aria-label="time of a step">{bar}</svg><p>{legend}</p>'


def _kind(name: str) -> tuple[str, str]:
    """Returns the kind of an event of the simulated step, and its color."""
    kinds = {"f": ("forward", "#4477aa"), "b": ("backward", "#ee6677"), "w": ("weight gradient", "#228833")}
    return kinds.get(name[:1].lower(), ("once per step", "#bbbbbb"))


def _timeline(events: list[dict[str, Any]]) -> str:
    """Returns a timeline with stages from top to bottom and time from left to right. Actions have tooltips."""
    end = max((event["ts"] + event["dur"] for event in events), default=0) or 1.0
    height = 22
    stages = sorted({event["pid"] for event in events})
    shapes = "".join(f'<text x="0" y="{height * row + 14}" font-size="11" fill="currentColor">stage {stage}</text>'
                     for row, stage in enumerate(stages))
    for event in events:
        kind, color = _kind(event["name"])
        left, width = 60 + 540 * event["ts"] / end, 540 * event["dur"] / end
        label = f"{kind} {event['name']}: {event['dur'] / 1e3:.4g} ms"
        top = height * stages.index(event["pid"])
        shapes += (f'<rect x="{left:.2f}" y="{top}" width="{width:.2f}" height="18" '
                   f'fill="{color}" stroke="white" stroke-width="0.5"><title>{html.escape(label)}</title></rect>')
    size = f'width="600" height="{height * len(stages)}"'
    return (f'<svg {size} role="img" aria-label="timeline of a step">{shapes}</svg>'
            f"<p>0 to {end / 1e3:.4g} ms; blue forward, red backward, green weight gradient, grey once per step</p>")


def loss_html(training: Sequence[tuple[int, Optional[float]]], evaluations: Sequence[tuple[int, Optional[float]]],
              caption: str) -> str:
    """Returns a picture of losses over steps: a line for training, and points for evaluations. Losses that are None or
    not finite are left out."""
    def finite(points: Sequence[tuple[int, Optional[float]]]) -> list[tuple[int, float]]:
        return [(step, loss) for step, loss in points if loss is not None and math.isfinite(loss)]
    lines = [("training", _COLORS[0], finite(training)), ("evaluation", _COLORS[4], finite(evaluations))]
    points = [point for _, _, line in lines for point in line]
    if not points:
        return f"<p>{html.escape(caption)}</p>"
    first, last = min(step for step, _ in points), max(step for step, _ in points)
    low, high = min(loss for _, loss in points), max(loss for _, loss in points)

    def place(step: int, loss: float) -> str:
        across = (step - first) / (last - first) if last > first else 0.5
        down = (high - loss) / (high - low) if high > low else 0.5
        return f"{50 + 540 * across:.1f},{10 + 160 * down:.1f}"
    shapes, legend = "", ""
    for name, color, line in lines:
        if line:
            shapes += f'<polyline fill="none" stroke="{color}" points="{" ".join(place(*point) for point in line)}"/>'
            legend += f'<span style="color:{color}">&#9632;</span> {name} {line[-1][1]:.4g} &nbsp; '
        for step, loss in line if name == "evaluation" or len(line) == 1 else ():
            x, y = place(step, loss).split(",")
            shapes += f'<circle cx="{x}" cy="{y}" r="3" fill="{color}"><title>{name}, step {step}: {loss:.4g}</title></circle>'
    texts = ((0, 15, f"{high:.4g}"), (0, 175, f"{low:.4g}"), (50, 190, f"step {first}"), (530, 190, f"step {last}"))
    shapes += "".join(f'<text x="{x}" y="{y}" font-size="11" fill="currentColor">{text}</text>' for x, y, text in texts)
    return (f'<svg viewBox="0 0 600 195" style="max-width:600px" role="img" aria-label="losses">{shapes}</svg>'
            f"<p>{legend}</p><p>{html.escape(caption)}</p>")
