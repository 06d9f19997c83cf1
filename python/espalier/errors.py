"""Exceptions of the package."""
from __future__ import annotations

import dataclasses
from typing import Sequence


@dataclasses.dataclass(frozen=True)
class Finding:
    """An error or a warning with its location. ``line`` and ``column`` start at 1 and are 0 if unknown."""
    file: str
    line: int
    column: int
    severity: str
    message: str
    hint: str


class EspalierError(Exception):
    """Base class of all exceptions. ``file``, ``line``, ``column`` and ``hint`` describe the first error."""

    def __init__(self, message: str, file: str = "", line: int = 0, findings: Sequence[Finding] = ()) -> None:
        findings = tuple(findings)
        errors = [finding for finding in findings if finding.severity == "error"]
        first = errors[0] if errors else Finding(file, line, 0, "error", message, message.partition("; ")[2])
        self.message: str = first.message
        self.file: str = first.file
        self.line: int = first.line
        self.column: int = first.column
        self.hint: str = first.hint
        self.findings: tuple[Finding, ...] = findings or (first,)
        place = ":".join(str(part) for part in (self.file, self.line or "") if part)
        text = f"{place}: {self.message}" if place else self.message
        if len(errors) > 1:
            text += f" (and {len(errors) - 1} more, see .findings)"
        super().__init__(text)


class InputError(EspalierError):
    """A file or an argument is wrong."""


class DoesNotFitError(EspalierError):
    """No plan fits the memory of the cluster, or this machine has too little memory."""


class RunError(EspalierError):
    """A run failed after its start."""
