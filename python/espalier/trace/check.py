"""Checks a model file: a tiny copy of the model must have the same loss and gradients in Espalier as in transformers,
and its weights must come back bit for bit."""
from __future__ import annotations

import filecmp
import json
import pathlib
import subprocess
import tempfile
from typing import Any

import numpy as np
import safetensors.numpy
import torch

from .faults import NotUnderstood
from .record import Exact
from .tiny import randomize
from .write import Writer

_TOLERANCE = 1e-4  # of the norm of each gradient, and of the loss; Espalier computes in float32
_TEXTS = ("the quick brown fox jumps over the lazy dog, and then it sleeps.",
          "Sphinx of black quartz, judge my vow! 0123456789 (a) <b> {c} ~d|")


def check(espalier: pathlib.Path, writer: Writer, name: str, text: str) -> str:
    """Raises NotUnderstood with what differs. Returns what was compared."""
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        (folder / "models").mkdir()
        (folder / "models" / f"{name}.yaml").write_text(text)
        model = writer.source.model({})
        randomize(model)
        model.float().save_pretrained(folder / "tiny")

        def run(*words: str) -> str:
            done = subprocess.run([str(espalier), *words], cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                faults = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
                raise NotUnderstood(f"the check failed: espalier {' '.join(words[:3])}: " + "; ".join(faults[:5]))
            return done.stdout

        run("import-hf", "tiny", "-o", "run.yaml")
        run("convert", "tiny", "ours", "--to", "espalier", "--model", "run.yaml")
        run("convert", "ours", "back", "--to", "hf", "--model", "run.yaml", "--reference", "tiny")
        if not filecmp.cmp(folder / "tiny/model.safetensors", folder / "back/model.safetensors", shallow=False):
            raise NotUnderstood("the check failed: converted weights do not come back as they were")
        run("compile", "run.yaml", "-o", "one.plan", "--cluster", "cpu_local:1x1", "--set", "parallel.parallel_mode=1",
            "--set", "runner_wrapper.use_clip_grad=False", "--set", f"model.model_config.seq_length={len(_TEXTS[0])}",
            *(word for size in writer.size_of.values() if size.endswith("_dropout")
              for word in ("--set", f"model.model_config.{size}=0")))
        for i, sample in enumerate(_TEXTS):
            (folder / f"{i}.txt").write_text(sample * 200)  # every sample is this text and its first letter
            run("run", "one.plan", "--data", f"{i}.txt", "--steps", "1", "--load", "ours", "--dump-gradients",
                f"{i}.safetensors", "--metrics", f"{i}.jsonl")
            ours = json.loads((folder / f"{i}.jsonl").read_text().splitlines()[0])["loss"]
            _compare(writer, sample, ours, safetensors.numpy.load_file(folder / f"{i}.safetensors"))
    return "loss and gradients"


def _compare(writer: Writer, sample: str, loss: float, gradients: dict[str, np.ndarray]) -> None:
    """Compares a step with transformers."""
    traced = writer.traced
    theirs, by_number = _theirs(writer, sample)
    if abs(loss - theirs) > _TOLERANCE * abs(theirs):
        raise NotUnderstood(f"the check failed: the loss is {loss:.7g}, in transformers {theirs:.7g}")
    made = {name.split("/", 1)[1]: values for name, values in gradients.items()}
    total = np.linalg.norm(by_number)
    for layer, parameters in writer.parameters(traced).items():
        number = layer[len(traced.blocks.prefix):-1] if layer else ""
        for name, (_, ids) in parameters.items():
            own = [key for key in made if key.split(".")[-1] == name and (not layer or key.split(".")[-2] == number)]
            wanted = by_number[ids.reshape(-1)]
            if not own and not wanted.any():
                continue  # a router's bias is frozen
            if len(own) != 1:
                raise NotUnderstood(f"the check failed: no gradient of {layer}{name}, there are {sorted(made)}")
            values = made.pop(own[0])
            difference, norm = np.linalg.norm(values - wanted), np.linalg.norm(wanted)
            if difference > _TOLERANCE * norm + 1e-7 * total:  # a bias of keys has no gradient but rounding
                raise NotUnderstood(f"the check failed: the gradient of {layer}{name} differs by "
                                    f"{difference / max(norm, 1e-30):.1e} of its norm from transformers'")
    if made:
        raise NotUnderstood(f"the check failed: parameters without a counterpart: {', '.join(made)}")


def _theirs(writer: Writer, sample: str) -> tuple[float, np.ndarray]:
    """Returns transformers' loss in float64, and the gradient of each parameter element by its number."""
    traced = writer.traced
    model = writer.source.model({})
    randomize(model)
    model = model.double().eval()
    tokens = torch.tensor([list(sample.encode())])
    with Exact():
        logits = model(input_ids=tokens, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits[0], tokens[0].roll(-1))
    loss.backward()
    values = dict(model.named_parameters())
    total = sum(node.value.numel() for node in traced.matcher.recorder.parameters.values())
    by_number = np.zeros(total)
    for name, first in traced.matcher.first.items():
        gradient = values[name].grad if name in values else None
        if gradient is not None:
            by_number[first:first + gradient.numel()] = gradient.reshape(-1).numpy()
    return float(loss.detach()), by_number
