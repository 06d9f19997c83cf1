"""Checkpoints of other systems, and flags of Megatron-LM."""
from __future__ import annotations

import dataclasses
import os
import shlex
import tempfile
from typing import Any, Iterable, Mapping, Optional, Union

from . import command
from .planning import PathLike


@dataclasses.dataclass(frozen=True)
class Converted:
    """A checkpoint that :func:`convert` wrote."""
    path: str
    fields: dict[str, Any]  #: the output of ``espalier convert --json``

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<Converted: {self.path}>"


def convert(source: PathLike, target: PathLike, to: str, *, model: Optional[PathLike] = None,
            options: Iterable[str] = ()) -> Converted:
    """Converts a checkpoint, or weights of transformers, Megatron, torch (DCP), peft or llama.cpp.

    ``to``: espalier, hf, megatron, dcp, peft or gguf. ``model``: the run file of the model; needed where ``source`` does
    not keep one. ``options``: further options of ``espalier convert``, such as ``["--dtype", "q8_0"]``.
    """
    words = [os.fspath(source), os.fspath(target), "--to", to]
    if model is not None:
        words += ["--model", os.fspath(model)]
    return Converted(os.fspath(target), command.ask(["convert", *words, *options]))


@dataclasses.dataclass(frozen=True)
class ImportedArgs:
    """A run file from the flags of Megatron-LM."""
    yaml: str               #: the run file
    fields: dict[str, Any]  #: the output of ``espalier import-args --json``: the effect of each flag

    def __repr__(self) -> str:
        return f"<ImportedArgs: {len(self.yaml.splitlines())} lines>"


def import_args(flags: Union[PathLike, list[str]], output: Optional[PathLike] = None, *, cluster: Optional[str] = None,
                base: Optional[PathLike] = None, ignore_flags: Iterable[str] = (),
                environment: Optional[Mapping[str, str]] = None) -> ImportedArgs:
    """Translates the flags of a launch script to a run file. Nothing in the script is executed.

    ``flags``: a shell script or a file of flags, or the flags as a list. ``output``: the run file to write.
    ``base``: a run file that holds what the flags do not say. ``environment``: variables of the script.

    Raises :class:`InputError` for a flag that cannot be honoured; ``ignore_flags`` names flags to pass over.
    """
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(flags, list):
            file = os.path.join(folder, "flags")
            with open(file, "w", encoding="utf-8") as stream:
                stream.write(" ".join(shlex.quote(flag) for flag in flags) + "\n")
        else:
            file = os.fspath(flags)
        words = ["import-args", file]
        if output is not None:
            words += ["-o", os.fspath(output)]
        if cluster is not None:
            words += ["--cluster", cluster]
        if base is not None:
            words += ["--base", os.fspath(base)]
        ignored = ",".join(ignore_flags)
        if ignored:
            words += ["--ignore-flags", ignored]
        for name, value in (environment or {}).items():
            words += ["--env", f"{name}={value}"]
        fields = command.ask(words)
    return ImportedArgs(fields["run_file"], fields)
