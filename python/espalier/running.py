"""Training runs and their metrics."""
from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
from typing import Any, Callable, Optional, Sequence, Union

from .errors import InputError
from .notebook import loss_html
from .planning import PathLike, Plan, Sets, compile
from .reporting import Step, reporter


@dataclasses.dataclass(frozen=True)
class Metrics:
    """The lines of a metrics file. Numbers that are not finite are None."""
    steps: list[Step]        #: per optimizer step: step, loss, grad_norm, lr, step_seconds, tokens_per_second, ...
    evaluations: list[Step]  #: evaluation_after_step, evaluation_loss, ...

    def column(self, key: str) -> list[Any]:
        """Returns one value of every step: ``metrics.column("loss")``."""
        return [step[key] for step in self.steps]

    def describe(self) -> str:
        """Returns one line: "steps 1 to 100, loss 5.51 to 2.05, 2 evaluations"."""
        if not self.steps:
            text = "no steps"
        else:
            first, last = self.steps[0], self.steps[-1]
            losses = [f"{step['loss']:.4g}" if step.get("loss") is not None else "not finite" for step in (first, last)]
            text = f"steps {first['step']} to {last['step']}, loss {' to '.join(losses)}"
        return text + (f", {len(self.evaluations)} evaluations" if self.evaluations else "")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.describe()}>"

    def _repr_html_(self) -> str:
        """Returns the losses of training and of evaluations as a picture for notebooks."""
        return loss_html([(step["step"], step.get("loss")) for step in self.steps],
                         [(line["evaluation_after_step"], line.get("evaluation_loss")) for line in self.evaluations],
                         self.describe())


@dataclasses.dataclass(frozen=True)
class RunResult(Metrics):
    """The metrics of a run, and the folder of its checkpoints if it wrote any."""
    checkpoint: Optional[str] = None

    def __repr__(self) -> str:
        return f"<RunResult: {self.describe()}{f'; checkpoint {self.checkpoint}' if self.checkpoint else ''}>"


def _sort(lines: Sequence[Step]) -> tuple[list[Step], list[Step]]:
    return [line for line in lines if "step" in line], [line for line in lines if "evaluation_after_step" in line]


def run(plan: Union[PathLike, Plan], *, data: Union[PathLike, Sequence[str], None] = None, steps: Optional[int] = None,
        callback: Optional[Callable[[Step], Any]] = None, metrics: Optional[PathLike] = None,
        checkpoint: Optional[PathLike] = None, save_every: int = 0, resume: bool = False,
        load: Optional[PathLike] = None, eval_every: int = 0, threads: int = 0,
        report_to: Optional[str] = None, require_signed: bool = False) -> RunResult:
    """Trains in this process with a .plan file, or with a :class:`Plan`, which is compiled first. Ranks are threads.

    ``data``: a text file, the PREFIX of PREFIX.bin and .idx, ``mock``, or a list ``[weight, path, ...]`` of a blend.
    The default is the plan's. ``steps``: total number of steps; the default is the plan's. ``callback`` is called after
    each step with a dict of the keys of a metrics line. If it raises an exception, or on Ctrl-C, the run ends after the
    following step, writes a checkpoint, and raises the exception here. ``threads``: threads per rank; the default is
    cores / ranks. ``report_to``: ``mlflow:URI`` (a server or a folder) or ``wandb``, which get the numbers of each step.
    ``require_signed``: refuse a plan that neither you nor a signer in ``~/.config/espalier/known_signers`` has compiled;
    without it, a note on standard error says so.
    """
    if data is None:
        words = []
    elif isinstance(data, (str, os.PathLike)):
        words = [os.fspath(data)]
    else:
        words = [str(word) for word in data]

    def path(value: Optional[PathLike]) -> str:
        return "" if value is None else os.fspath(value)
    if resume and checkpoint is None:
        raise InputError("resume needs a folder of checkpoints; give checkpoint=FOLDER")
    with contextlib.ExitStack() as stack:
        if isinstance(plan, Plan):
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            plan = compile(plan, os.path.join(folder, "run.plan"))
        report = None if report_to is None else stack.enter_context(reporter(report_to))
        heard = [hear for hear in (callback, report) if hear is not None]
        lines: list[Step] = []

        def tell(text: str) -> None:
            lines.append(json.loads(text))
            if "step" in lines[-1]:
                for hear in heard:
                    hear(lines[-1])
        from . import _native  # here, for espalier.trace does without the library
        _native.run(os.fspath(plan), words, steps, path(metrics), path(checkpoint), path(load), save_every, eval_every,
                    resume, threads, require_signed, tell)
    trained, evaluated = _sort(lines)
    return RunResult(trained, evaluated, None if checkpoint is None else os.fspath(checkpoint))


def train(run_file: PathLike, *, output: Optional[PathLike] = None, cluster: Optional[str] = None, sets: Sets = (),
          **options: Any) -> RunResult:
    """Compiles a run file and trains by its plan in this process, as ``espalier train`` does.

    ``output``: the .plan file to keep. ``cluster`` and ``sets`` are those of :func:`compile`; without a cluster, the run
    is for this machine. ``options``: those of :func:`run`, such as ``data``, ``steps`` and ``checkpoint``.
    """
    with tempfile.TemporaryDirectory() as folder:
        plan = output if output is not None else os.path.join(folder, "run.plan")
        return run(compile(run_file, plan, cluster=cluster, sets=sets, here=True), **options)


def read_metrics(file: PathLike) -> Metrics:
    """Reads the JSON lines that ``--metrics`` or ``run(metrics=...)`` wrote. Skips an incomplete last line."""
    name = os.fspath(file)
    lines: list[Step] = []
    try:
        with open(name, encoding="utf-8") as stream:
            for number, text in enumerate(stream, 1):
                if not text.endswith("\n"):
                    break
                try:
                    lines.append(json.loads(text))
                except ValueError as error:
                    raise InputError(f"no JSON: {error}; metrics files have one object per line", name, number) from None
    except OSError as error:
        raise InputError(error.strerror or str(error), name) from None
    return Metrics(*_sort(lines))
