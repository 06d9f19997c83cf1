"""Raises the priority of a run, so that tests can measure its end on a busy machine."""
import contextlib
import os


def run_first():
    """Raises the priority of this process and its children, if permitted (root), because timeouts assume an idle
    machine."""
    with contextlib.suppress(PermissionError):
        os.nice(-10 - os.nice(0))
