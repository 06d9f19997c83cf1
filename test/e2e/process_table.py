"""Running processes, from /proc. A zombie does not run."""
import pathlib


def state_and_parent(pid):
    """Returns the state letter and the parent of a process; None if it has ended."""
    try:
        state, parent = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return state, int(parent)


def runs(pid):
    """Returns whether the process runs."""
    found = state_and_parent(pid)
    return found is not None and found[0] != "Z"


def descendants(root):
    """Returns the running processes below a process."""
    parents = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        found = state_and_parent(folder.name)
        if found and found[0] != "Z":
            parents[int(folder.name)] = found[1]
    found, below = [], [root]
    while below:
        below = [pid for pid, parent in parents.items() if parent in below]
        found += below
    return found
