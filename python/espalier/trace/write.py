"""Writes the model file: what differs from the parts of configs/models/parts."""
from __future__ import annotations

import copy
import math
import pathlib
import re
import tempfile
from typing import Any

import numpy as np
from .blocks import Described
from .document import difference, load, merged
from .keys import INERT, ROPE, Keys, Rule, flat
from .layout import Parameters, layouts
from .faults import NotUnderstood
from .tiny import Traced, numbered_file

_PER_KIND = ("sliding_window", "rotary", "theta", "rotary_pct", "rotary_width", "rope_interleave", "rotary_last",
             "rotary_factor", "moe")
_FIXED = {"normalization", "norm_offset", "moe", "shared", "swiglu", "rotary", "rotary_last", "qk_norm", "qk_norm_heads",
          "shared_bias", "shared_gated", "theta", "order"}
# Sizes of the parts that have the name of their feature, and features that have other names.
_EMBED = {"vocab_size": "vocab_size", "hidden_size": "hidden_size", "embedding_multiplier": "embedding_multiplier"}
_HEAD = {"final_logit_softcapping": "final_logit_softcapping", "logit_scale": "logit_scale", "head_bias": "head_bias",
         "tie_word_embeddings": "tie_word_embeddings", "norm_epsilon": "rms_norm_eps", "norm_bias": "has_norm_bias"}
_BLOCK = {name: name for name in (
    "use_parallel_residual", "residual_multiplier", "pre_norm", "post_norm", "shared_norm", "num_heads", "n_kv_heads",
    "head_dim", "attention_sinks", "attn_output_gate", "clip_qkv", "qk_layernorm", "qk_norm_last", "qk_norm_bias",
    "qk_norm_scale", "rope_interleave", "rotary_pct", "hidden_act", "intermediate_size", "mlp_bias", "expert_num",
    "num_experts_chosen", "norm_topk_prob", "router_score", "routed_scaling_factor", "n_group", "topk_group",
    "moe_intermediate_size", "balance_via_topk_bias", "expert_bias", "use_shared_expert_gating")} | {
    "mlp_gated": "gated_linear_unit"}


class Writer:
    def __init__(self, keys: Keys, traced: Traced, parts: pathlib.Path):
        self.keys, self.source, self.traced = keys, keys.source, traced
        self.kinds, self.order = traced.kinds()
        self.whole = flat(traced.config.to_dict())
        self.features = traced.features()
        self._flags()
        self.bases = [f"parts/{name}.yaml" for name in self._bases()]
        self.base: dict[str, Any] = {}
        for name in self.bases:
            self.base = merged(self.base, load(parts.parent / name))
        self.wanted = copy.deepcopy(self.base)
        self.wanted["hf_config"] |= {"sizes": {}, "only": {}, "unsaid": {}}
        self.size_of: dict[str, str] = {}  # key -> size
        self.names = self._names()

    def _flags(self) -> None:
        """Takes over what there is only with another value of a flag, such as the kind of norms of q and k. A flag that
        changes what no size says has one supported value."""
        for seen in self.keys.seen:
            if not isinstance(self.keys.value(seen.key), bool):
                continue
            for name, value in seen.features.items():
                kind, _, feature = name.partition(".")
                if name not in self.features:
                    self.features[name] = value
                    if kind.startswith("kind"):
                        self.kinds[int(kind[4:])].features[feature] = value
                elif feature in _FIXED and value != self.features[name]:
                    self.keys.refused.add(seen.key)

    def _bases(self) -> list[str]:
        has = lambda name, value: any(kind.features.get(name) == value for kind in self.kinds)
        names = ["decoder", "attention", "mlp"] + ["experts"] * has("moe", True)
        names += ["plain_mlp"] * has("mlp_gated", False)
        return names + ["layer_norm"] * (self.features["head.normalization"] == "layer" and
                                         self.features["head.norm_bias"])

    def _names(self) -> list[str]:
        """Names the kinds of blocks; the first one is `block`."""
        names = ["block"]
        first = self.kinds[0].features
        for i, kind in enumerate(self.kinds[1:], 1):
            of = kind.features
            name = ("experts" if of["moe"] and not first["moe"] else "dense" if first["moe"] and not of["moe"] else
                    "plain" if first["rotary"] and not of["rotary"] else
                    "windowed" if of["sliding_window"] and not first["sliding_window"] else
                    "global" if first["sliding_window"] and not of["sliding_window"] else f"block{i}")
            names.append(name if name not in names else f"{name}{i}")
        return names

    # Sizes --------------------------------------------------------------------------------------------------------

    def describe(self) -> None:
        """Collects sizes, keys and blocks."""
        self._norms()
        self._flat("embed", _EMBED)
        self._flat("head", _HEAD)
        rule = self.keys.rule("initializer_range")
        self.features["initializer_range"] = self.keys.value(rule.key) if rule and rule.key else 0.02
        for feature in ("num_layers", "initializer_range", "attention_dropout", "hidden_dropout", "embedding_dropout"):
            self.set(feature, feature)
        if self.features["other_dropout"] or self.keys.rule("other_dropout").key:
            self._refuse_key(self.keys.rule("other_dropout"), 0)
        self._blocks()
        self._positions()
        self._pattern()
        self._rest()
        sizes = self.wanted["sizes"]
        for key in ("param_init_type", "compute_dtype"):
            sizes[key]["default"] = "bfloat16"
        self.wanted["weights"].pop("mcore", None)
        self.wanted.pop("modules", None)

    def document(self, name: str) -> dict[str, Any]:
        """Returns the model file, which has what differs from its bases."""
        architecture = (self.source.raw.get("architectures") or [type(self.traced.model).__name__])[0]
        self.wanted["hf_config"] |= {"model_type": self.source.raw["model_type"], "architecture": architecture}
        head = {"base_config": self.bases, "name": name, "arch": [architecture], "config": self.source.kind.__name__}
        return head | difference(self.base, self.wanted)

    def _flat(self, prefix: str, sizes: dict[str, str]) -> None:
        for feature, size in sizes.items():
            if f"{prefix}.{feature}" in self.features:
                self.set(f"{prefix}.{feature}", size)

    def default(self, key: str) -> Any:
        """Returns transformers' value of a missing key."""
        values = self.keys.defaults
        return values[key] if key in values else values.get(f"{ROPE}.{key}")

    def set(self, feature: str, size: str, value: Any = None) -> None:
        """Gives a size its key of config.json, or its only value."""
        rule = self.keys.rule(feature)
        value = self.features[feature] if value is None else value
        entry = self.wanted["sizes"].setdefault(size, {"type": _type(value), "meaning": f"{size} of the model"})
        if rule is None:
            raise NotUnderstood(f"config.json: {', '.join(self.keys.of(feature))}: how {feature} follows from them is not "
                                "understood")
        if size == "logit_scale" and rule.text.startswith("1 / ") and rule.text[4:] in self.keys.effects:
            key = rule.text[4:]  # the part has a size for the divisor
            return self._keyed(Rule(key=key), feature, "logits_scaling", self.wanted["sizes"]["logits_scaling"],
                               self.keys.value(key))
        if rule.key:
            self._keyed(rule, feature, size, entry, value)
        elif size == "head_dim" and rule.text and self._text(rule.text) == "hidden_size / num_heads":
            pass  # as the part has it
        elif rule.text:
            entry.pop("only", None)
            entry["constant"] = self._text(rule.text)
            entry.pop("default", None)
        elif "constant" in entry:
            entry["constant"] = value
        elif entry.get("default") != value or "only" not in entry:
            entry |= {"default": value, "only": value}

    def _keyed(self, rule: Rule, feature: str, size: str, entry: dict[str, Any], value: Any) -> None:
        key = rule.key
        own = key.removeprefix(ROPE + ".") if key.count(".") < 2 else key
        default = self.default(key)
        entry.pop("constant", None)
        entry.pop("only", None)
        known = self.wanted["hf_config"]["sizes"].get(own)
        if known:
            known["is"] = [*([known["is"]] if isinstance(known["is"], str) else known["is"]), size]
        hf = known or {"is": size}
        if isinstance(self.keys.value(key), str) and size == "hidden_act":
            choice = self._choice(entry, self.keys.value(key), value)
            hf["spelled"] = {"gelu_tanh": "gelu_pytorch_tanh"} | {choice: self.keys.value(key)}
            hf["spelled"] = {word: theirs for word, theirs in hf["spelled"].items() if word != theirs}
            entry["default"] = value
        else:
            entry["default"] = value if default is None or isinstance(default, str) else default
        derived = self.keys.derived(key, default)
        if derived:
            hf["unset"] = derived
            entry["default"] = self._text(derived)
        elif default is not None:
            hf["default"] = default
        elif not known:
            none = self.keys.without(key, size)
            hf["unset"] = none if none is not None else value
        if size == "head_dim":
            hf["dim"] = "head_dim"
            if derived:
                entry.pop("default")
        also = [key] * (own != key) + [other for other in self.keys.of(feature) if other in self.source.raw and other not in
                                       (key, own) and self.keys.base.values.get(other) == self.keys.value(key)]
        if also:
            hf["also"] = also[0] if len(also) == 1 else also
            self.size_of |= {other: size for other in also}
        entry.setdefault("meaning", f"{own} of config.json")
        self.wanted["hf_config"]["sizes"][own] = hf
        self.size_of[key] = size

    @staticmethod
    def _choice(entry: dict[str, Any], word: str, value: str) -> str:
        """Adds a word of config.json to the choices of an activation. Returns the choice that is written back."""
        choices = entry["choices"] = dict(entry.get("choices", {}))
        choices.setdefault(word, value)
        choices.setdefault(value, value)
        return value

    def _text(self, text: str) -> str:
        """Returns an expression of keys as one of sizes. Keys that are no size yet become one."""
        def size(found: re.Match[str]) -> str:
            key = found[0]
            if key in ("sqrt", "floor", "ceil", "min", "max") or key.replace(".", "").replace("e-", "").isdigit():
                return key
            if key not in self.size_of:
                own = key.removeprefix(ROPE + ".")
                value, default = self.keys.value(key), self.default(key)
                self.wanted["sizes"][own] = {"type": _type(value), "default": value if default is None else default,
                                             "meaning": f"{own} of config.json"}
                self.wanted["hf_config"]["sizes"][own] = {"is": own} | ({} if default is None else {"default": default})
                self.size_of[key] = own
            return self.size_of[key]
        return re.sub(r"[A-Za-z_][\w.]*", size, text)

    def _refuse_key(self, rule: Rule | None, value: Any) -> None:
        if rule and rule.key:
            self.wanted["hf_config"]["only"][rule.key] = value
            self.size_of[rule.key] = ""

    # Blocks -------------------------------------------------------------------------------------------------------

    def _norms(self) -> None:
        """Norms: one kind, epsilon and offset for the whole model."""
        head = self.traced.blocks.head.features
        for kind in self.kinds:
            of = kind.features
            for name in ("normalization", "norm_bias", "norm_epsilon", "norm_offset"):
                if of.get(name, head[name]) != head[name]:
                    raise NotUnderstood(f"{name} is {of[name]} in blocks and {head[name]} at the end")
            if of.get("qk_norm_epsilon", head["norm_epsilon"]) != head["norm_epsilon"]:
                raise NotUnderstood("norms of q and k have an epsilon of their own, which the parts have not")
            if of.get("qk_norm_offset", head["norm_offset"]) != head["norm_offset"]:
                raise NotUnderstood("norms of q and k count from another number than the others")
            if any(name.endswith("post_norm_bias") for name in kind.params):
                raise NotUnderstood("norms after attention and MLP have biases, which the parts have not")
        kind, plain = head["normalization"].split("_")[0], head["normalization"].endswith("plain")
        sizes = self.wanted["sizes"]
        word = {"rms": "RMSNorm", "layer": "LayerNorm"}[kind]
        op = ("plain_" if plain else "") + {"rms": "rms_norm", "layer": "layer_norm"}[kind]
        sizes["normalization"] |= {"default": word, "choices": {word: op}}
        gamma = head["norm_offset"]
        if gamma not in (0, 1):
            raise NotUnderstood(f"norms add {gamma} to their weights")
        sizes["layernorm_zero_centered_gamma"] |= {"default": bool(gamma), "only": bool(gamma)}
        if plain:
            for part, role in (("attention", "attn"), ("mlp", "mlp"), ("experts", "mlp")):
                for name in ("norm", "post_norm"):
                    self.wanted["parts"].get(part, {}).get("parameters", {}).pop(f"{role}_{name}_weight", None)
            self.wanted["segments"]["head"]["parameters"].pop("norm_weight")

    def _blocks(self) -> None:
        first = self.kinds[0].features
        for kind in self.kinds:
            shared = {name for name in kind.features if name in first} - set(_PER_KIND)
            for name in shared:
                if kind.features[name] != first[name]:
                    raise NotUnderstood(f"layers differ in {name}, for which the parts have one size")
        done: set[str] = set()
        for i, kind in enumerate(self.kinds):
            for feature, size in _BLOCK.items():
                name = f"kind{i}.{feature}"
                if name in self.features and size not in done and (feature not in _PER_KIND or kind.features["rotary"]):
                    done.add(size)
                    self.set(name, size)
            self._biases(f"kind{i}.") if i == 0 else None
            if kind.features["moe"] and "experts" not in done:
                done.add("experts")
                self._experts(f"kind{i}.", kind)
        self._scores("kind0.")
        if "qk_norm" in first:
            kind = first["qk_norm"].split("_")
            self.wanted["sizes"]["qk_norm"]["constant"] = ("plain_" if "plain" in kind else "") + f"{kind[0]}_norm"
            if first["qk_norm_heads"] and not first["qk_norm_scale"]:
                parameters = self.wanted["parts"]["attention"]["parameters"]
                for name, dims in (("q", ["kv_heads", "group", "head_dim"]), ("k", ["kv_heads", "head_dim"])):
                    parameters[f"attn_{name}_norm_weight"] |= {"dims": dims, "decay": False}
        if not any("intermediate_size" in kind.features for kind in self.kinds):
            self._unused_mlp()

    def _unused_mlp(self) -> None:
        """A model with experts in each layer has no width of a dense MLP."""
        self.wanted["sizes"]["intermediate_size"] |= {"default": "moe_intermediate_size", "action": "accepted"}

    def _biases(self, prefix: str) -> None:
        of_q, of_out = (self.keys.rule(prefix + name) for name in ("qkv_has_bias", "attention_out_bias"))
        same = of_q == of_out and self.features[prefix + "qkv_has_bias"] == self.features[prefix + "attention_out_bias"]
        sizes = self.wanted["sizes"]
        if same:
            self.set(prefix + "qkv_has_bias", "attention_bias")
            return
        self.set(prefix + "qkv_has_bias", "qkv_has_bias")
        sizes["attention_bias"] |= {"default": False, "only": False}
        self.set(prefix + "attention_out_bias", "attention_out_bias")

    def _scores(self, prefix: str) -> None:
        """The scale of attention's scores, their limit, and windows."""
        attributes: dict[str, Any] = dict(self.wanted["attributes"]["attention"])
        scale = prefix + "attention_scale"
        unusual = [seen.key for seen in self.keys.seen if not math.isclose(
            seen.features.get(scale, 1), seen.features.get(prefix + "head_dim", 1) ** -0.5, rel_tol=1e-5)]
        flags = {key for key in unusual if isinstance(self.keys.value(key), bool)}
        self.keys.refused |= flags if flags == set(unusual) else set()
        if flags != set(unusual):
            rule = self.keys.rule(scale)
            if rule is None:
                raise NotUnderstood("the scale of attention's scores follows from keys in an unknown way: " +
                                    ", ".join(self.keys.of(scale)))
            attributes["scale"] = self._text(rule.key or rule.text) if rule.key or rule.text else self.features[scale]
        cap = prefix + "attn_logit_softcapping"
        if self.features[cap] or self.keys.of(cap):
            self.wanted["sizes"]["attn_logit_softcapping"] = {
                "type": "number", "default": 0, "least": 0, "meaning": "limit of scores; 0 is none"}
            self.set(cap, "attn_logit_softcapping")
            attributes["soft_cap"] = "attn_logit_softcapping"
        self.wanted["attributes"]["attention"] = attributes
        windows = [i for i, kind in enumerate(self.kinds) if kind.features["sliding_window"]]
        self.set(f"kind{windows[0] if windows else 0}.sliding_window", "sliding_window")

    def _experts(self, prefix: str, kind: Described) -> None:
        sizes = self.wanted["sizes"]
        chosen, count = (self.keys.rule(prefix + name).key for name in ("num_experts_chosen", "expert_num"))
        self.wanted["hf_config"]["implied"] = {"capacity_factor": f"{count} / {chosen}"}
        sizes["aux_loss_factor"]["default"] = 0
        for size, value in zip(("swiglu_limit", "swiglu_alpha", "swiglu_offset"), kind.features["swiglu"]):
            sizes[size]["constant"] = value
        if kind.features["shared"]:
            if kind.features["shared_bias"] or not kind.features["shared_gated"]:
                raise NotUnderstood("shared experts with biases or without a gate, which the part `experts` has not")
            sizes["shared_expert_num"]["constant"] = 1
            rule = self.keys.rule(prefix + "shared_width")
            if rule is None:
                raise NotUnderstood("the width of shared experts follows from keys in an unknown way")
            self.wanted["dims"]["ffn_shared"] = self._text(rule.key or rule.text) or kind.features["shared_width"]

    def _positions(self) -> None:
        """Rotary positions."""
        rotary = [i for i, kind in enumerate(self.kinds) if kind.features["rotary"]]
        if "embed.position_rows" in self.features:
            self._table()
        sizes, hf = self.wanted["sizes"], self.wanted["hf_config"]["sizes"]
        if not rotary:
            self.wanted["attributes"]["rope"]["fraction"] = 0
            self.kept_rope = False
            return
        of = self.kinds[rotary[0]].features
        if of["rotary_last"]:
            raise NotUnderstood("the last columns of each head turn, which the part `attention` has not")
        theta = f"kind{rotary[0]}.theta"
        if self.features.get(theta) and any(self.features[f"kind{i}.theta"] != self.features[theta] for i in rotary):
            for i in rotary:
                self.set(f"kind{i}.theta", self._theta(i))
            self.kept_rope = False
            return
        if self.features.get(theta):
            self.set(theta, "theta")
        else:  # scaled frequencies, or a single pair: the key has its usual name, and the check compares
            hf["rope_theta"] = {"is": "theta", "default": self.default("rope_theta") or 10000.0,
                                "also": f"{ROPE}.rope_theta"}
        self.kept_rope = isinstance(self.source.values.get(ROPE), dict)
        if self.kept_rope:
            hf |= {key: value for key, value in self.base["hf_config"]["sizes"].items() if "." in key}

    def _theta(self, kind: int) -> str:
        """Returns the size that is the base of the rotary angles of a kind of layers."""
        thetas = [other.features.get("theta") for other in self.kinds]
        first = thetas.index(thetas[kind])
        return "theta" if first == 0 else f"theta_{self.names[first]}"

    def _table(self) -> None:
        """A table of positions, in ops of the model file's own."""
        if self.features["embed.position_offset"]:
            raise NotUnderstood("a table of positions whose first row is not the first token's")
        if self.features["embed.embedding_multiplier"] != 1:
            raise NotUnderstood("a table of positions beside a scaled embedding")
        segment = self.wanted["segments"]["embed"]
        segment["parameters"]["wpe"] = {"dims": ["positions", "hidden"], "init": {"normal": "initializer_range"}}
        segment["ops"] = [
            {"op": "embed", "in": ["wte", "tokens"], "out": "token"},
            {"op": "embed", "in": ["wpe", "positions"], "out": "position"},
            {"op": "add", "in": ["token", "position"], "out": "sum"},
            {"op": "dropout", "in": "sum", "out": "x", "rate": "embedding_dropout", "when": "embedding_dropout"}]
        self.wanted["dims"]["positions"] = "max_position_embeddings"
        self.wanted["sizes"]["seq_length"]["most"] = "max_position_embeddings"
        self.wanted["sizes"]["max_position_embeddings"] |= {"action": "used", "meaning": "rows of the position table"}

    def _pattern(self) -> None:
        segments, names = self.wanted["segments"], self.names
        windows = {kind.features["sliding_window"] for kind in self.kinds}
        for i, (name, kind) in enumerate(zip(names, self.kinds)):
            parts = ["attention", "experts" if kind.features["moe"] else "mlp"]
            attributes: dict[str, Any] = {}
            if len(windows) > 1:
                attributes["attention"] = {"window": "sliding_window" if kind.features["sliding_window"] else 0}
            if not kind.features["rotary"] and any(other.features["rotary"] for other in self.kinds):
                attributes["rope"] = {"fraction": 0}
            elif len({other.features.get("theta") for other in self.kinds if other.features["rotary"]}) > 1:
                attributes["rope"] = {"theta": self._theta(i)}
            is_like = i > 0 and kind.features["moe"] == self.kinds[0].features["moe"]
            segments[name] = {"like": "block"} if is_like else {"stream": {"in": "x", "out": "y"}, "parts": parts}
            if attributes:
                segments[name]["attributes"] = attributes
        if len(self.kinds) > 1:
            self.wanted["model"] = ["embed", *self._layers(), "head"]

    def _layers(self) -> list[Any]:
        order, names = self.order, self.names
        lists = {key: value for key, value in self.whole.items() if isinstance(value, list)
                 and len(value) == len(order)}
        for key, value in lists.items():
            kinds: dict[Any, int] = {}
            if all(kinds.setdefault(word, kind) == kind for word, kind in zip(value, order)) and len(kinds) > 1:
                own = key
                self.wanted["sizes"][own] = {"type": "list", "meaning": f"kind of each layer; {key} of config.json"}
                self.wanted["hf_config"]["sizes"][own] = {"is": own}
                self.size_of[key] = own
                by = {own: {word: names[kind] for word, kind in kinds.items()}}
                return [{"repeat": "num_layers", "of": self._period(), "by": by}]
        first = order.index(next(kind for kind in order if kind != order[0])) if len(set(order)) > 1 else 0
        if len(set(order[first:])) == 1:
            for key in self.keys.of("order"):
                if self.whole.get(key) == first and key != self.source.key("num_hidden_layers"):
                    size = self._text(key)
                    return [{names[order[0]]: size}, {names[order[-1]]: f"num_layers - {size}"}]
        return [{"repeat": "num_layers", "of": self._period()}]

    def _period(self) -> list[Any]:
        order = self.order
        length = next(n for n in range(1, len(order) + 1) if all(a == b for a, b in zip(order, order[n:])))
        made: list[Any] = []
        for kind in order[:length]:
            if made and self.names[kind] in made[-1]:
                made[-1][self.names[kind]] += 1
            else:
                made.append({self.names[kind]: 1})
        return [next(iter(item)) if list(item.values()) == [1] else item for item in made]

    # Other keys ---------------------------------------------------------------------------------------------------

    def _rest(self) -> None:
        """Keys that are no size: without effect, or with one supported value."""
        hf = self.wanted["hf_config"]
        key = self.source.key("max_position_embeddings")
        hf["sizes"][key] = {"is": ["max_position_embeddings", "seq_length"], "default": self.default(key)}
        ignored = []
        paths = {path for size, entry in hf["sizes"].items() for path in
                 [size, *([entry["also"]] if isinstance(entry.get("also"), str) else entry.get("also", []))]}
        heads = {path.split(".")[0] for path in paths}
        for name in {**self.source.values, **self.source.raw}:
            if name in INERT or name in paths or name in self.size_of or name in heads or name == key:
                continue
            effect, value = self.keys.effects.get(name), self.source.given(name)
            effect = None if isinstance(value, list) and value else effect
            if name in (ROPE, "rope_scaling") and not self.kept_rope:
                hf["only"][name] = {"is": None}
            elif value is None:
                hf["only"][name] = {"is": None}
            elif isinstance(value, bool) or effect or (effect is None and isinstance(value, (int, float))):
                hf["only"][name] = value  # a flag without effect may have one beside other values
            elif effect is None and isinstance(value, str):
                hf["only"][name] = value
            elif effect is None and isinstance(value, list) and value:
                hf["only"][name] = {"each": value[0]} if all(item == value[0] for item in value) else value
            else:
                ignored.append(name)
        nested = {path: value for path, value in flat(self.source.values).items() if path.count(".") > 1 or path.endswith(".partial_rotary_factor")}
        for path, value in nested.items():  # maps of rotary positions for each kind of layers
            if path not in paths:
                hf["only"][path] = {"is": None} if value is None else value
        hf["ignored"] = ignored

    def parameters(self, traced: Traced) -> dict[str, Parameters]:
        """Returns the parameters of each layer with the dims of the parts, for a trace of the same model."""
        kinds, order = traced.kinds()
        dims: dict[str, Any] = {}
        for part in (*self.wanted["parts"].values(), *self.wanted["segments"].values()):
            dims |= {name: entry["dims"] for name, entry in (part.get("parameters") or {}).items() if entry}
        made: dict[str, Parameters] = {"": {}}

        def put(layer: str, params: dict[str, np.ndarray]) -> None:
            for name, ids in params.items():
                if name not in dims or len(dims[name]) != ids.ndim:
                    raise NotUnderstood(f"the parts have no parameter {name} of {ids.ndim} dims")
                made.setdefault(layer, {})[name] = (dims[name], ids)

        blocks = traced.blocks
        put("", blocks.embed.params)
        put("", {name: ids for name, ids in blocks.head.params.items() if
                 name != "lm_head_weight" or not blocks.head.features["tie_word_embeddings"]})
        for i, block in enumerate(blocks.blocks):
            put(f"{blocks.prefix}{i}.", block.params)
        return made

    def weights(self) -> None:
        """Sets the names of tensors, also of those that there are only with another value of a flag."""
        names: dict[str, str] = {}
        flags = [key for key, size in self.size_of.items() if size and isinstance(self.keys.value(key), bool)]
        for changes in ({}, *({key: not self.keys.value(key)} for key in flags)):
            traced = Traced(self.source, changes) if changes else self.traced
            with tempfile.TemporaryDirectory() as folder:
                file = numbered_file(traced.model, traced.matcher, pathlib.Path(folder))
            found = layouts(file, self.parameters(traced), traced.blocks.prefix)
            names = found | names
        self.wanted["weights"] = {"hf": names}


def _type(value: Any) -> str:
    return {bool: "bool", float: "number", str: "string"}.get(type(value), "int")
