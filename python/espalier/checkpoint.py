"""Checkpoints as NumPy arrays."""
from __future__ import annotations

import collections.abc
import os
from typing import Any, Iterator

import numpy

from .errors import InputError
from .planning import PathLike

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1", "U64": "<u8",
          "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1"}


def _type(name: str) -> "numpy.dtype[Any]":
    """Returns the NumPy type of a safetensors type. BF16 is ml_dtypes.bfloat16 if installed, else uint16."""
    if name == "BF16":
        try:
            import ml_dtypes  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            return numpy.dtype("<u2")
        bfloat16: "numpy.dtype[Any]" = numpy.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return numpy.dtype(_TYPES[name])


class Checkpoint(collections.abc.Mapping):  # type: ignore[type-arg]
    """A checkpoint as a mapping of parameter names to read-only NumPy arrays of the unsharded values.

    ``folder``: a checkpoint, or a folder of checkpoints, of which the newest is used. If one rank stored the whole
    tensor, the array is a view of the mapped file without a copy. If ranks stored shards, the shards are joined and
    compared with their checksums. BF16 is ``ml_dtypes.bfloat16`` if that package is installed, else uint16.
    """

    def __init__(self, folder: PathLike, kind: str = "value") -> None:
        """``kind``: value, or the optimizer state master, moment1, moment2 or momentum."""
        from . import _native  # here, for espalier.trace does without the library
        self._native = _native.Checkpoint(os.fspath(folder))
        self._tensors = self._native.tensors.get(kind, {})
        if not self._tensors:
            raise InputError(f"the checkpoint has no tensors of kind '{kind}'; there are value and, of runs that "
                             "train, master, moment1, moment2 or momentum", self._native.path)

    @property
    def path(self) -> str:
        """The folder of the checkpoint."""
        return self._native.path

    @property
    def step(self) -> int:
        """The number of optimizer steps before this checkpoint."""
        return self._native.step

    @property
    def model(self) -> str:
        """The model's name."""
        return self._native.model

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor without reading the tensor."""
        return self._tensors[name].shape

    def verify(self) -> None:
        """Compares every byte with its checksum. Raises InputError if a byte differs."""
        faults = self._native.verify()
        if faults:
            raise InputError("; ".join(faults), self.path)

    def __getitem__(self, name: str) -> "numpy.ndarray[Any, Any]":
        tensor = self._tensors[name]
        if tensor.place is not None and 0 not in tensor.shape:
            file, offset = tensor.place
            return numpy.memmap(file, _type(tensor.type), "r", offset, tensor.shape)
        array = numpy.frombuffer(self._native.read(tensor), _type(tensor.type)).reshape(tensor.shape)
        array.flags.writeable = False
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        return f"<Checkpoint {self.path}: {self.model} after {self.step} steps, {len(self)} tensors>"
