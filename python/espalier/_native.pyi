"""The compiled module: runs and checkpoints in the process of Python."""
from os import PathLike
from typing import Callable, Optional, Union

_Path = Union[str, PathLike[str]]

def run(plan: _Path, data: list[str], steps: Optional[int], metrics: str, checkpoint: str, load: str, save_every: int,
        eval_every: int, resume: bool, threads: int, callback: Optional[Callable[[str], object]]) -> list[str]:
    """Trains and returns the steps, then the evaluations, as JSON lines. ``callback`` is called with each step's."""

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
        """The type, as safetensors names it, and the shape."""
    def where_whole(self, kind: str, name: str) -> Optional[tuple[str, int]]:
        """The file and the byte where the whole tensor lies; None where ranks stored parts of it."""
    def assemble(self, kind: str, name: str) -> bytearray:
        """The bytes of a tensor, put together from its parts and compared with their checksums."""
    def verify(self) -> list[str]:
        """What is wrong with the files, a sentence each."""
