"""Tiny copies of a Hugging Face model: its config.json with small sizes, and random weights."""
from __future__ import annotations

import json
import math
import pathlib
import traceback
from typing import Any

import numpy as np
import torch
import transformers

from .blocks import Blocks, Described
from .match import Matcher
from .faults import NotUnderstood
from .record import Recorder, record

BATCH, SEQ = 2, 11
_SMALL = {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 64, "num_hidden_layers": 8}
# Keys of every config that no model reads, as compiler/import/huggingface/hf_json.cpp has them, and those of
# transformers' base class.
INERT = {"_name_or_path", "_attn_implementation_autoset", "architectures", "auto_map", "bos_token_id", "eos_token_id",
         "gradient_checkpointing", "id2label", "is_llama_config", "label2id", "max_length", "model_type", "num_labels",
         "output_attentions", "output_hidden_states", "output_past", "pad_token_id", "return_dict",
         "task_specific_params", "transformers.js_config", "transformers_version", "use_cache", "dtype", "torch_dtype",
         "chunk_size_feed_forward", "is_encoder_decoder", "problem_type", "quantization_config"}


class Source:
    """A Hugging Face folder. Makes copies of its model with other values of config.json."""

    def __init__(self, folder: pathlib.Path, trusts_code: bool):
        self.raw: dict[str, Any] = json.loads((folder / "config.json").read_text())
        if "auto_map" in self.raw and not trusts_code:
            raise NotUnderstood(f"{folder / 'config.json'}: auto_map names code of the folder; give --trust-remote-code "
                                "to run it")
        self.trusts_code = trusts_code
        self.config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=trusts_code)
        self.kind = type(self.config)
        self.names: dict[str, str] = getattr(self.config, "attribute_map", {}) or {}
        self.values = {key: value for key, value in self.config.to_dict().items() if key not in INERT}
        self.small = self._small()

    def key(self, name: str) -> str:
        """Returns the model's own name of a key such as hidden_size."""
        return self.names.get(name, name)

    def given(self, key: str, default: Any = None) -> Any:
        return self.raw[key] if key in self.raw else self.values.get(key, default)

    def _small(self) -> dict[str, Any]:
        """Returns values that make the model small, with its ratios as far as they matter."""
        value = lambda name: self.given(self.key(name))
        hidden, heads = value("hidden_size"), value("num_attention_heads")
        if not hidden or not heads:
            raise NotUnderstood("config.json: hidden_size and num_attention_heads are not given by these or other names")
        made: dict[str, Any] = {self.key("vocab_size"): 128, self.key("max_position_embeddings"): 64}
        layers = value("num_hidden_layers")
        made[self.key("num_hidden_layers")] = min(layers, 8)
        for key in self.raw:
            if isinstance(self.raw[key], list) and len(self.raw[key]) == layers:
                made[key] = self.raw[key][:min(layers, 8)]
        if "window" in "".join(self.values):
            made |= {key: 5 for key, size in self.values.items() if key.endswith(("sliding_window", "window_size"))
                     and isinstance(size, int) and not isinstance(size, bool) and size > 5}
        if hidden <= 64:
            return made
        made |= {self.key("hidden_size"): 64, self.key("num_attention_heads"): 4}
        for key, size in self.values.items():
            if isinstance(size, bool) or not isinstance(size, int) or key in made or key.endswith("token_id"):
                continue
            if key == "rotary_dim":
                made[key] = min(size, 8)
            elif key in ("num_key_value_heads", "num_kv_heads", "n_head_kv"):
                made[key] = 2 if size > 1 else 1
            elif key == "head_dim":
                made[key] = 16 if size * heads == hidden else 32
            elif "expert" in key and size > 8 and "size" not in key and "tok" not in key:
                made[key] = 8
            elif key in ("num_experts_per_tok", "moe_topk", "moe_k", "n_group", "topk_group"):
                made[key] = min(size, {"n_group": 4, "topk_group": 2}.get(key, 3))
            elif size > 64 and any(word in key for word in ("size", "dim", "rank", "inner", "width", "scalar")):
                made[key] = max(8, size * 64 // hidden // 8 * 8)
        return made

    def config_with(self, changes: dict[str, Any]) -> Any:
        """Makes a config of the folder's values, small sizes and changes. A change `a.b` is of a key in a map; the value
        `...` takes the key away."""
        values = json.loads(json.dumps(self.raw)) | self.small
        for path, value in changes.items():
            at, (*outer, key) = values, path.split(".")
            for name in outer:
                at = at.setdefault(name, dict(self.values.get(name) or {}))
                at.pop("type", None)
            if value is ...:
                at.pop(key, None)
            else:
                at[key] = value
        layers = values.get(self.key("num_hidden_layers"))
        for key, value in values.items():
            if isinstance(value, list) and isinstance(self.raw.get(key), list) and \
                    len(self.raw[key]) == self.given(self.key("num_hidden_layers")) and key not in changes:
                values[key] = (value * layers)[:layers]
        values["pad_token_id"] = None
        values = {key: value for key, value in values.items() if key not in ("quantization_config", "dtype",
                                                                             "torch_dtype", "transformers_version")}
        return self.kind.from_dict(values)

    def model(self, changes: dict[str, Any]) -> torch.nn.Module:
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(
            self.config_with(changes), attn_implementation="eager", trust_remote_code=self.trusts_code)
        if hasattr(model, "set_experts_implementation"):
            model.set_experts_implementation("eager")
        return model


def randomize(model: torch.nn.Module) -> None:
    """Gives each parameter, and each buffer that is saved, random values."""
    generator = torch.Generator().manual_seed(1)
    saved = model.state_dict().keys()
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if name in saved and value.is_floating_point():
            value.data = (torch.randn(value.shape, generator=generator, dtype=torch.float64) * 0.3).to(value.dtype)


class Impossible(NotUnderstood):
    """transformers does not make a model of these values."""


class Traced:
    """A tiny copy as ops and blocks."""

    def __init__(self, source: Source, changes: dict[str, Any]):
        try:
            self.model = source.model(changes)
        except Exception as fault:
            raise Impossible(f"no tiny copy of the model: {type(fault).__name__}: {fault}") from fault
        self.config = self.model.config
        widest = max((value for value in self.model.parameters() if value.ndim == 2), key=lambda value: value.numel())
        self.deviation = float(f"{float(widest.detach().double().std()):.2g}")
        randomize(self.model)
        self.model = self.model.double().train()
        tokens = torch.randint(0, 100, (BATCH, SEQ), generator=torch.Generator().manual_seed(2))
        try:
            recorder, logits = record(self.model, tokens)
        except Exception as fault:
            frame = traceback.extract_tb(fault.__traceback__)[-1]
            raise Impossible(f"{frame.filename}:{frame.lineno}: the tiny copy does not run: {fault}") from fault
        self.dropouts = dropouts_of(recorder)
        self.matcher = Matcher(recorder)
        self.blocks = Blocks(self.matcher, self.matcher.lift(logits).op)

    def features(self) -> dict[str, Any]:
        """Returns all that was found, flat: `head.logit_scale`, `kind0.num_heads`."""
        kinds, order = self.kinds()
        made = {"num_layers": self.blocks.layers, "order": tuple(order), "initializer_range": self.deviation,
                **self.dropouts}
        for prefix, described in [("embed", self.blocks.embed), ("head", self.blocks.head),
                                  *((f"kind{i}", kind) for i, kind in enumerate(kinds))]:
            made |= {f"{prefix}.{name}": value for name, value in described.features.items()}
        return made

    def kinds(self) -> tuple[list[Described], list[int]]:
        """Returns the different blocks, and the kind of each layer."""
        kinds: list[Described] = []
        order = []
        for block in self.blocks.blocks:
            same = [i for i, kind in enumerate(kinds) if kind.features == block.features
                    and kind.params.keys() == block.params.keys()]
            if not same:
                kinds.append(block)
            order.append(same[0] if same else len(kinds) - 1)
        return kinds, order


def dropouts_of(recorder: Recorder) -> dict[str, float]:
    """Returns the rates of dropout in training, by their place."""
    made: dict[str, float] = {}
    for node, rate in recorder.dropouts:
        while node.op in ("to", "contiguous", "clone") and node.inputs:
            node = node.inputs[0]
        layers = [leaf for item in recorder.nodes[:node.number + 1] for leaf in item.inputs
                  if any(part.isdigit() for part in leaf.name.split("."))]
        width = next(item.shape[-1] for item in recorder.nodes if item.op == "embedding")
        place = ("attention_dropout" if node.op in ("softmax", "getitem") else
                 "other_dropout" if node.shape[-1] != width else "hidden_dropout" if layers else "embedding_dropout")
        made[place] = rate if made.get(place, rate) == rate else math.nan
    return {place: made.get(place, 0.0) for place in
            ("attention_dropout", "hidden_dropout", "embedding_dropout", "other_dropout")}


def numbered_file(model: torch.nn.Module, matcher: Matcher, folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Saves the model with the number of each parameter element as its value. Returns the tensors of the file."""
    import safetensors.torch
    state = model.float().state_dict(keep_vars=True)
    for name, first in matcher.first.items():
        value = state[name]
        if first + value.numel() > 2**24:
            raise NotUnderstood(f"the tiny copy has more than 2^24 parameters ({name})")
        value.data = torch.arange(first, first + value.numel(), dtype=torch.float32).reshape(value.shape)
    model.save_pretrained(folder)
    return {name: value.double().numpy().astype(np.int64) for name, value in
            safetensors.torch.load_file(folder / "model.safetensors").items()}
