"""The C interface of Espalier, include/espalier.h, through ctypes: runs plans and reads checkpoints in this process."""
from __future__ import annotations

import ctypes
import os
import pathlib
import threading
from typing import Any, Callable, Optional, Sequence, Union

from .errors import DoesNotFitError, EspalierError, InputError, RunError

_INTERFACE = 2
_ERRORS: dict[int, type[EspalierError]] = {2: InputError, 3: DoesNotFitError}
_Path = Union[str, "os.PathLike[str]"]


class _Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("message", ctypes.c_char_p), ("file", ctypes.c_char_p),
                ("line", ctypes.c_int64)]


_Line = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p)


class _RunOptions(ctypes.Structure):
    _fields_ = [("plan", ctypes.c_char_p), ("data", ctypes.POINTER(ctypes.c_char_p)), ("data_count", ctypes.c_size_t),
                ("steps", ctypes.c_int64), ("metrics", ctypes.c_char_p), ("checkpoint", ctypes.c_char_p),
                ("load", ctypes.c_char_p), ("save_every", ctypes.c_int64), ("eval_every", ctypes.c_int64),
                ("resume", ctypes.c_int32), ("threads", ctypes.c_int32), ("on_metrics", _Line),
                ("context", ctypes.c_void_p), ("require_signed", ctypes.c_int32)]


class _Tensor(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_char_p), ("name", ctypes.c_char_p), ("type", ctypes.c_char_p),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("rank", ctypes.c_size_t), ("bytes", ctypes.c_uint64),
                ("file", ctypes.c_char_p), ("offset", ctypes.c_uint64)]


def _open() -> ctypes.CDLL:
    """Loads the library of this installation and declares its functions."""
    library = ctypes.CDLL(str(pathlib.Path(__file__).absolute().parent / "lib" / "libespalier.so"))
    if library.espalier_interface() != _INTERFACE:
        raise ImportError(f"libespalier.so has interface {library.espalier_interface()}, this package needs "
                          f"{_INTERFACE}; install both from one wheel")
    pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    for name, result, arguments in (
            ("version", text, []),
            ("last_error", ctypes.POINTER(_Error), []),
            ("run", ctypes.c_int, [ctypes.POINTER(_RunOptions)]),
            ("checkpoint_open", ctypes.c_int, [text, ctypes.POINTER(pointer)]),
            ("checkpoint_close", None, [pointer]),
            ("checkpoint_folder", text, [pointer]),
            ("checkpoint_step", ctypes.c_int64, [pointer]),
            ("checkpoint_model", text, [pointer]),
            ("checkpoint_tensors", size, [pointer]),
            ("checkpoint_tensor", ctypes.POINTER(_Tensor), [pointer, size]),
            ("checkpoint_read", ctypes.c_int, [pointer, size, pointer]),
            ("checkpoint_verify", ctypes.c_int, [pointer, _Line, pointer])):
        function = getattr(library, "espalier_" + name)
        function.restype, function.argtypes = result, arguments
    return library


_library = _open()


def _check(status: int) -> None:
    """Raises the exception of a call that failed in this thread."""
    if status != 0:
        raise _error()


def _error() -> EspalierError:
    error = _library.espalier_last_error().contents
    return _ERRORS.get(error.status, RunError)(error.message.decode(errors="replace"), os.fsdecode(error.file),
                                               error.line)


def version() -> str:
    """Returns the version of the library."""
    return str(_library.espalier_version().decode())


class _Run(threading.Thread):
    """A run in a thread of its own. The caller's thread hears its lines, so that exceptions of the caller's function and
    of signal handlers are raised where Python expects them. A line counts as heard only after the caller has marked it,
    whatever interrupts the caller in between."""

    def __init__(self, options: _RunOptions) -> None:
        super().__init__(name="espalier run", daemon=True)
        self.line, self.told, self.heard = "", 0, 0
        self.stops = self.has_ended = False
        self.arrived, self.answered = threading.Event(), threading.Event()
        self.error: Optional[EspalierError] = None
        self._options = options
        self._on_metrics = _Line(self._tell)  # lives as long as the run
        options.on_metrics = self._on_metrics

    def _tell(self, _: Any, line: bytes) -> int:
        self.line = line.decode()
        self.told += 1
        self.arrived.set()
        while self.heard < self.told:
            self.answered.wait()
            self.answered.clear()
        return int(self.stops)

    def run(self) -> None:
        if _library.espalier_run(ctypes.byref(self._options)) != 0:
            self.error = _error()
        self.has_ended = True
        self.arrived.set()


def run(plan: str, data: Sequence[str], steps: Optional[int], metrics: str, checkpoint: str, load: str,
        save_every: int, eval_every: int, resume: bool, threads: int, require_signed: bool,
        callback: Callable[[str], object]) -> None:
    """Trains. ``callback`` gets the metrics of each step as a JSON line, and at the end those of the evaluations. If it
    raises an exception, or a signal's handler does, the run ends after the next step, and the exception is raised."""
    if steps is not None and steps < 1:
        raise InputError(f"steps must be at least 1, got {steps}; leave steps out for the plan's")
    words = (ctypes.c_char_p * len(data))(*[os.fsencode(word) for word in data])
    started = _Run(_RunOptions(os.fsencode(plan), words, len(data), steps or 0, os.fsencode(metrics),
                               os.fsencode(checkpoint), os.fsencode(load), save_every, eval_every, int(resume), threads,
                               require_signed=int(require_signed)))
    started.start()
    raised: Optional[BaseException] = None
    while not started.has_ended:
        try:
            started.answered.set()
            started.arrived.wait()
            started.arrived.clear()
            if started.told > started.heard and raised is None:
                callback(started.line)
            started.heard = started.told
        except BaseException as error:  # pylint: disable=broad-exception-caught
            started.stops, raised = True, raised or error
            started.heard = started.told
    started.join()
    if raised is not None:
        raise raised
    if started.error is not None:
        raise started.error


class Tensor:
    """A tensor of a checkpoint: its type with safetensors' name, its shape, and the file and byte offset of its
    row-major values, or None if ranks stored shards."""

    def __init__(self, index: int, described: _Tensor) -> None:
        self.index, self.bytes = index, int(described.bytes)
        self.type: str = described.type.decode()
        self.shape: tuple[int, ...] = tuple(described.shape[:described.rank])
        self.place: Optional[tuple[str, int]] = (os.fsdecode(described.file), described.offset) if described.file else None


class Checkpoint:
    """One checkpoint. ``tensors``: by kind (value, master, moment1, moment2, momentum) and the parameter's name."""

    def __init__(self, folder: _Path) -> None:
        self._handle = ctypes.c_void_p()
        _check(_library.espalier_checkpoint_open(os.fsencode(folder), ctypes.byref(self._handle)))
        self.path: str = os.fsdecode(_library.espalier_checkpoint_folder(self._handle))
        self.step: int = _library.espalier_checkpoint_step(self._handle)
        self.model: str = _library.espalier_checkpoint_model(self._handle).decode()
        self.tensors: dict[str, dict[str, Tensor]] = {}
        for index in range(_library.espalier_checkpoint_tensors(self._handle)):
            described = _library.espalier_checkpoint_tensor(self._handle, index).contents
            self.tensors.setdefault(described.kind.decode(), {})[described.name.decode()] = Tensor(index, described)

    def __del__(self) -> None:
        _library.espalier_checkpoint_close(self._handle)

    def read(self, tensor: Tensor) -> bytearray:
        """Returns the bytes of a tensor. Joins its shards and compares them with their checksums."""
        joined = bytearray(tensor.bytes)
        view = (ctypes.c_char * tensor.bytes).from_buffer(joined) if joined else None
        _check(_library.espalier_checkpoint_read(self._handle, tensor.index, view))
        return joined

    def verify(self) -> list[str]:
        """Returns one message per error of the files."""
        faults: list[str] = []

        def add(_: Any, fault: bytes) -> int:
            faults.append(fault.decode(errors="replace"))
            return 0
        _check(_library.espalier_checkpoint_verify(self._handle, _Line(add), None))
        return faults
