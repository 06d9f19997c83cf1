"""Generates text with a plan of run_mode predict."""
from __future__ import annotations

import dataclasses
import json
import os
from typing import Optional, Sequence, Union

from . import command
from .planning import PathLike


@dataclasses.dataclass(frozen=True)
class Completion:
    """The continuation of a prompt. ``text`` is empty without a tokenizer."""
    tokens: list[int]
    text: str
    finish_reason: str  #: stop or length
    prefill_tokens_per_second: float
    decode_tokens_per_second: float

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 60 else self.text[:59] + "…"
        return f"<Completion: {text!r}, {len(self.tokens)} tokens, {self.finish_reason}>"


def generate(plan: PathLike, prompts: Union[str, Sequence[Union[str, Sequence[int]]]], *,
             checkpoint: Optional[PathLike] = None, tokenizer: Optional[str] = None, max_tokens: int = 64,
             temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0, stop: Sequence[str] = (),
             options: Sequence[str] = ()) -> list[Completion]:
    """Continues prompts with the weights of ``checkpoint``. A prompt is a text or a list of token ids.

    ``checkpoint``: a checkpoint, the folder of a run, or a folder of transformers or Megatron. The default is the
    plan's. ``tokenizer``: gpt2, hf, sentencepiece, bytes or null; required for texts. ``temperature`` 0 selects the
    most likely token; ``top_k``, ``top_p`` and ``seed`` are then rejected because they have no effect.
    ``options``: further options of ``espalier generate``, such as ``["--vocab-file", "vocab.json"]``.
    """
    words = ["generate", os.fspath(plan), "--json", "--max-tokens", str(max_tokens),
             "--temperature", str(temperature), *options]
    if seed:
        words += ["--seed", str(seed)]
    if top_p != 1:
        words += ["--top-p", str(top_p)]
    if checkpoint is not None:
        words += ["--checkpoint", os.fspath(checkpoint)]
    if top_k:
        words += ["--top-k", str(top_k)]
    if tokenizer:
        words += ["--tokenizer", tokenizer]
    for text in stop:
        words += ["--stop", text]
    if isinstance(prompts, str):
        prompts = [prompts]
    texts = [prompt for prompt in prompts if isinstance(prompt, str)]
    ids = [prompt for prompt in prompts if not isinstance(prompt, str)]
    for text in texts:
        words.append("--prompt=" + text)
    for tokens in ids:
        words.append("--tokens=" + " ".join(str(token) for token in tokens))
    answers = [Completion(**answer) for answer in json.loads(command.call(words))]
    # The command completes texts before token ids.
    of_texts, of_ids = iter(answers[:len(texts)]), iter(answers[len(texts):])
    return [next(of_texts) if isinstance(prompt, str) else next(of_ids) for prompt in prompts]
