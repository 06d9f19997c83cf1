"""The compiled module: runs plans and reads checkpoints in the Python process."""
from os import PathLike
from typing import Callable, Optional, Union

_Path = Union[str, PathLike[str]]

def run(plan: _Path, data: list[str], steps: Optional[int], metrics: str, checkpoint: str, load: str, save_every: int,
        eval_every: int, resume: bool, threads: int, callback: Optional[Callable[[str], object]]) -> list[str]:
    """Trains, and returns the steps and then the evaluations as JSON lines. ``callback`` gets the line of each step."""

class Checkpoint:
    """One checkpoint. Tensors are found by kind (value, master, moment1, moment2) and by the parameter's name."""

    def __init__(self, folder: _Path) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def step(self) -> int: ...
    @property
    def model(self) -> str: ...
    def names(self, kind: str) -> list[str]: ...
    def describe(self, kind: str, name: str) -> Optional[tuple[str, list[int]]]:
        """Returns the type, with safetensors' name, and the shape."""
    def where_whole(self, kind: str, name: str) -> Optional[tuple[str, int]]:
        """Returns the file and the byte offset of the whole tensor, or None if ranks stored shards."""
    def assemble(self, kind: str, name: str) -> bytearray:
        """Returns the bytes of a tensor. Joins its shards and compares them with their checksums."""
    def verify(self) -> list[str]:
        """Returns one message per error of the files."""
