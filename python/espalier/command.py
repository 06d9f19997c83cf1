"""The ``espalier`` command of this installation."""
from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any, NoReturn, Sequence

from .errors import DoesNotFitError, EspalierError, Finding, InputError, RunError

PATH = pathlib.Path(__file__).absolute().parent / "bin" / "espalier"

_EXCEPTIONS: dict[int, type[EspalierError]] = {2: InputError, 3: DoesNotFitError}


def main() -> NoReturn:
    """Replaces this process by the command, with the same arguments."""
    os.execv(PATH, ["espalier", *sys.argv[1:]])


def call(words: Sequence[str]) -> str:
    """Runs the command and returns its standard output.

    Raises the exception for its exit code, with the errors that it printed as JSON.
    """
    done = subprocess.run([str(PATH), *words], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode == 0:
        return done.stdout.decode()
    raise error_of(done.returncode, done.stderr)


def error_of(code: int, errors: bytes) -> EspalierError:
    """Returns the exception for the exit code of a command and what it wrote to standard error."""
    findings, lines = _findings(errors.decode(errors="replace"))
    exception = _EXCEPTIONS.get(code, RunError)
    text = "\n".join(lines).removeprefix("espalier: error: ")
    if code < 0:
        text = f"the command ended by signal {-code}" + (": " + text if text else "")
    return exception(text or f"the command ended with {code}", findings=findings)


def ask(words: Sequence[str]) -> Any:
    """Runs a subcommand of the compiler with JSON output and returns the parsed output."""
    return json.loads(call([*words, "--json", "--error-format", "json"]))


def _findings(text: str) -> tuple[list[Finding], list[str]]:
    """Separates the lines with findings in JSON from all other lines."""
    findings, others = [], []
    for line in text.splitlines():
        try:
            findings.append(Finding(**json.loads(line)))
        except (ValueError, TypeError):
            others.append(line)
    return findings, others
