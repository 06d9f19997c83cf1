"""Conversations with the model of a folder."""
from __future__ import annotations

import json
import os
import subprocess
import tempfile
from types import TracebackType
from typing import Optional, Sequence, Type

from . import command
from .generation import Completion
from .planning import PathLike


class Chat:
    """A conversation. It keeps the model in memory until :meth:`close`, and its turns; the oldest turns are left out when
    the context is full.

        with ep.chat("checkpoints", system="Be brief.") as chat:
            print(chat.say("Hello"))
            print(chat.say("And again"))
    """

    def __init__(self, words: Sequence[str]) -> None:
        """``words``: the command's arguments."""
        self.answers: list[Completion] = []  #: of all messages so far
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen([str(command.PATH), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=self._errors, text=True, encoding="utf-8")

    def say(self, message: str) -> str:
        """Returns the model's answer to a message. Raises an error of this package if the model cannot be opened, if the
        message does not fit its context, or if the command was killed; the chat is then closed."""
        if self._process.stdin is None or self._process.stdout is None or self._process.stdin.closed:
            raise ValueError("the chat is closed")
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line.endswith("\n"):  # the command has ended
            code = self.close()
            self._errors.seek(0)
            raise command.error_of(code, self._errors.read())
        self.answers.append(Completion(**json.loads(line)))
        return self.answers[-1].text

    def close(self) -> int:
        """Ends the conversation. Returns the exit code of the command."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass
        return self._process.wait()

    def __enter__(self) -> Chat:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()
        self._errors.close()

    def __repr__(self) -> str:
        return f"<Chat: {len(self.answers)} answers>"


def chat(model: PathLike, *, system: Optional[str] = None, max_tokens: Optional[int] = None, temperature: float = 0.7,
         top_p: float = 0.95, seed: int = 0, context: Optional[int] = None, tokenizer: Optional[str] = None,
         options: Sequence[str] = ()) -> Chat:
    """Opens a conversation with a checkpoint, the folder of a run, a folder of transformers, ``models--ORG--NAME`` of the
    hub's cache, or a .gguf file.

    ``system``: instructions before the conversation. ``max_tokens``: of an answer. ``temperature`` 0 selects the most
    likely token; ``top_p`` and ``seed`` then have no effect and are not used. ``context``: tokens of the conversation.
    ``tokenizer``: gpt2, hf, sentencepiece or bytes; the default is the folder's.
    ``options``: further options of ``espalier chat``, such as ``["--chat-template", "chatml"]``.
    """
    words = ["chat", os.fspath(model), "--json", "--error-format", "json", "--temperature",
             str(temperature)]
    if temperature > 0:
        words += ["--top-p", str(top_p), "--seed", str(seed)]
    if system:
        words += ["--system", system]
    if max_tokens is not None:
        words += ["--max-tokens", str(max_tokens)]
    if context is not None:
        words += ["--context", str(context)]
    if tokenizer is not None:
        words += ["--tokenizer", tokenizer]
    return Chat([*words, *options])
