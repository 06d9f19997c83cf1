"""How tests measure the end of a run while the machine builds something else."""
import contextlib
import os


def run_first():
    """This process and what it starts go before others of the machine, where the system allows that (root): the seconds
    within which a run has to end are those of a machine that has nothing else to do."""
    with contextlib.suppress(PermissionError):
        os.nice(-10 - os.nice(0))
