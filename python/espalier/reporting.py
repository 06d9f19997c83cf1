"""Sends the metrics of a run to MLflow or Weights & Biases. Their packages are imported when they are named."""
from __future__ import annotations

import contextlib
import importlib
import math
from typing import Any, Callable, Iterator

from .errors import InputError

Step = dict[str, Any]


def _package(name: str, target: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(f"report_to={target!r} needs the Python package {name}; pip install {name}") from error


def _numbers(line: Step) -> dict[str, float]:
    """Returns the finite numbers of a line. Both services refuse or hide others."""
    return {key: float(value) for key, value in line.items()
            if key != "step" and isinstance(value, (int, float)) and math.isfinite(value)}


@contextlib.contextmanager
def reporter(target: str) -> Iterator[Callable[[Step], None]]:
    """Opens a run at ``mlflow:URI`` or ``wandb``, and yields the callback that logs a step.

    The run is marked as failed if the body raises.
    """
    service, _, place = target.partition(":")
    if service == "mlflow" and place:
        mlflow = _package("mlflow", target)
        mlflow.set_tracking_uri(place)
        with mlflow.start_run():  # an exception ends the run with the status FAILED
            yield lambda line: mlflow.log_metrics(_numbers(line), step=line["step"])
    elif target == "wandb":
        with _package("wandb", target).init() as session:
            yield lambda line: session.log(_numbers(line), step=line["step"])
    else:
        raise InputError(f"report_to must be 'mlflow:URI' or 'wandb', got {target!r}")
