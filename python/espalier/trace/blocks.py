"""Cuts the ops of a model into embedding, blocks and head, and describes each block by options of the parts
`attention`, `mlp` and `experts` of configs/models/parts and by the parameters that they name."""
from __future__ import annotations

import dataclasses
import re
from typing import Any, Iterator

import numpy as np

from .match import Matcher, Op


@dataclasses.dataclass
class Described:
    """`features`: what the ops have, by names of sizes. `params`: parameter of the part -> numbers of its elements, with
    the dims of the part. `where`: lines of the source, by feature."""
    features: dict[str, Any] = dataclasses.field(default_factory=dict)
    params: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def say(self, op: Op, **features: Any) -> None:
        """Adds features. Two ops of a kind must agree, for a part has one size for both."""
        for name, value in features.items():
            known = self.features.setdefault(name, value)
            if known != value:
                raise op.fault(f"{name} is {value} here and {known} elsewhere, and the parts have one for both")


def ops_of(last: Op) -> list[Op]:
    """Returns the ops in an order in which inputs come first."""
    done: dict[Op, None] = {}
    stack = [last]
    while stack:
        op = stack[-1]
        missing = [item for item in op.inputs if item not in done]
        stack += missing
        if not missing:
            done[stack.pop()] = None
    return list(done)


def rotary(frequencies: np.ndarray) -> dict[str, Any]:
    """Returns the base of rotary angles, or 0 and the frequencies if they are scaled ones."""
    pairs = len(frequencies)
    if pairs == 1:  # the pair turns once per position whatever the base is
        return {}
    theta = float(f"{frequencies[1] ** -pairs:.5g}")
    plain = np.allclose(frequencies, theta ** (-np.arange(pairs) / pairs), rtol=1e-4)
    return {"theta": theta} if plain else {"theta": 0.0, "scaled": tuple(float(f"{item:.6g}") for item in frequencies)}


class Blocks:
    """The blocks of a model. `kinds` are the different ones, `order` the kind of each layer."""

    def __init__(self, matcher: Matcher, logits: Op):
        self.ops = ops_of(logits)
        self.users: dict[Op, list[Op]] = {op: [] for op in self.ops}
        for op in self.ops:
            for item in op.inputs:
                self.users[item].append(op)
        self.starts = sorted((first, name) for name, first in matcher.first.items())
        self.prefix = self._prefix([name for _, name in self.starts])
        layer_of = {op: self._layer(op) for op in self.ops}
        self.layers = 1 + max((layer for layer in layer_of.values() if layer is not None), default=-1)
        if self.layers < 1:
            raise logits.fault("no repeated block: no parameter has the number of a layer in its name")
        streams = [self._stream({op for op, layer in layer_of.items() if layer is not None and layer >= i})
                   for i in range(self.layers)]
        last = {op for op in self.ops if any(layer_of[item] == self.layers - 1 for item in self._below(op))}
        streams.append(self._stream({op for op in last if layer_of[op] is None and op.params}, is_head=True))
        self.embed, self.head = Described(), Described()
        self._embedding(streams[0])
        self._head(logits, streams[-1])
        self.blocks = [self._block(x, y) for x, y in zip(streams, streams[1:])]

    def _prefix(self, names: list[str]) -> str:
        """Returns what the names of most numbered parameters begin with, such as `model.layers.`."""
        counts: dict[str, int] = {}
        for name in names:
            if found := re.match(r"(.*?\.)\d+\.", name):
                counts[found[1]] = counts.get(found[1], 0) + 1
        return max(counts, key=lambda key: counts[key], default="?")

    def name_of(self, number: int) -> str:
        """Returns the parameter that an element belongs to."""
        return max((item for item in self.starts if item[0] <= number), key=lambda item: item[0])[1]

    def _layer(self, op: Op) -> int | None:
        for ids in op.params.values():
            found = re.match(re.escape(self.prefix) + r"(\d+)\.", self.name_of(int(ids.flat[0])))
            if found:
                return int(found[1])
        return None

    def _below(self, op: Op) -> Iterator[Op]:
        """The ops on which an op depends."""
        seen, stack = set(), list(op.inputs)
        while stack:
            item = stack.pop()
            if item not in seen:
                seen.add(item)
                yield item
                stack += item.inputs

    def _stream(self, inside: set[Op], is_head: bool = False) -> Op:
        """Returns the one value by which these ops and those after them depend on the ops before."""
        inside = set(inside)
        for op in self.ops:
            if any(item in inside for item in op.inputs):
                inside.add(op)
        while True:
            crossing = {item for op in inside for item in op.inputs if item not in inside}
            last = max(crossing, key=self.ops.index) if crossing else None
            plain_norm = is_head and len(crossing) == 1 and last.kind in ("norm", "unary") and not last.params
            if last is None or (len(crossing) == 1 and not plain_norm):
                break
            if last.params and len(crossing) > 1:
                raise last.fault("more than one value goes from block to block")
            inside.add(last)
        if last is None:
            raise self.ops[-1].fault("blocks do not follow each other")
        return last

    # Embedding and head -------------------------------------------------------------------------------------------

    def _embedding(self, x: Op) -> None:
        x = self._factor(x, self.embed, "embedding_multiplier")
        if x.kind == "positions":
            self.embed.params["wpe"] = x.params["table"]
            self.embed.say(x, position_rows=len(x.params["table"]), position_offset=x.attrs["offset"])
            x = self._factor(x.inputs[0], self.embed, "embedding_multiplier") if x.inputs[0].kind != "embed" else \
                x.inputs[0]
        if x.kind == "norm":
            raise x.fault("a norm of the embedding, which no part has")
        if x.kind != "embed":
            raise x.fault(f"{x.kind} of the embedding, which no part has")
        self.embed.params["wte"] = x.params["table"]
        self.embed.say(x, vocab_size=x.params["table"].shape[0], hidden_size=x.size)

    @staticmethod
    def _factor(op: Op, described: Described, name: str) -> Op:
        """Notes a factor and returns the value before it."""
        is_factor = op.kind == "unary" and op.attrs["name"] == "scale"
        described.say(op, **{name: op.attrs["value"] if is_factor else 1.0})
        return op.inputs[0] if is_factor else op

    def _head(self, logits: Op, x: Op) -> None:
        op = logits
        is_capped = op.kind == "unary" and op.attrs["name"] == "soft_cap"
        self.head.say(op, final_logit_softcapping=op.attrs["value"] if is_capped else 0.0)
        op = self._factor(op.inputs[0] if is_capped else op, self.head, "logit_scale")
        if op.kind != "linear":
            raise op.fault(f"{op.kind} makes the logits, not a product")
        self.head.params["lm_head_weight"] = op.params["weight"].T
        self.head.say(op, head_bias="bias" in op.params,
                      tie_word_embeddings=(op.params["weight"].T == self.embed.params["wte"]).all().item()
                      if op.params["weight"].T.shape == self.embed.params["wte"].shape else False)
        if "bias" in op.params:
            self.head.params["lm_head_bias"] = op.params["bias"]
        before = op.inputs[0]
        while before.kind == "unary" and before.attrs["name"] == "scale" and before is not x:  # a factor of the logits
            self.head.features["logit_scale"] = float(f"{self.head.features['logit_scale'] * before.attrs['value']:.7g}")
            before = before.inputs[0]
        self._norm(before, x, self.head, "norm")

    def _norm(self, op: Op, source: Op, described: Described, role: str) -> None:
        """Notes a norm of the residual stream's width."""
        if op.kind != "norm" or op.inputs[0] is not source:
            raise op.fault(f"{op.kind} where a norm of the residual stream was expected")
        if op.attrs["width"] != op.size:
            raise op.fault("a norm of a part of the residual stream")
        described.say(op, normalization=op.attrs["kind"] + ("" if "weight" in op.params else "_plain"),
                      norm_bias="bias" in op.params, norm_epsilon=op.attrs["epsilon"], norm_offset=op.attrs["offset"])
        for name in op.params:
            described.params[f"{role}_{name}"] = op.params[name]

    # Blocks -------------------------------------------------------------------------------------------------------

    def _terms(self, op: Op, x: Op) -> list[Op]:
        """Returns the summands of a value. A sum that others read, too, is one summand."""
        if op.kind != "add" or len(op.inputs) != 2 or op is x:
            return [op]
        return [term for item in op.inputs for term in
                (self._terms(item, x) if len(self.users[item]) == 1 else [item])]

    def _block(self, x: Op, y: Op) -> Described:
        made = Described()
        terms = self._terms(y, x)
        attends = lambda op: any(item.kind == "attention" for item in (op, *self._until(op, x)))
        if x in terms:
            attention = [term for term in terms if term is not x and attends(term)]
            rest = [term for term in terms if term is not x and not attends(term)]
            middle = x
        else:
            middle = next((term for term in terms if term.kind == "add" and len(self.users[term]) > 1), None)
            if middle is None:
                raise y.fault("the block's sum has no residual stream")
            inner = self._terms(middle, x)
            if x not in inner:
                raise middle.fault("attention is not added to the block's input")
            attention = [term for term in inner if term is not x]
            rest = [term for term in terms if term is not middle]
        if len(attention) != 1 or not rest:
            raise y.fault("a block that is not attention and an MLP")
        made.say(y, use_parallel_residual=middle is x)
        n1 = self._attention(attention[0], x, made)
        self._mlp(rest, middle, x, n1, made)
        return made

    def _until(self, op: Op, stop: Op) -> Iterator[Op]:
        stack, seen = [op], set()
        while stack:
            item = stack.pop()
            if item is not stop and item not in seen:
                seen.add(item)
                yield item
                stack += item.inputs

    def _branch(self, op: Op, made: Described, role: str) -> Op:
        """Notes a branch's factor and its norm, and returns the op before them."""
        op = self._factor(op, made, "residual_multiplier")
        made.say(op, post_norm=op.kind == "norm")
        if op.kind == "norm":
            self._norm(op, op.inputs[0], made, f"{role}_post_norm")
            op = op.inputs[0]
        return op

    def _attention(self, op: Op, x: Op, made: Described) -> Op:
        out = self._branch(op, made, "attn")
        if out.kind != "linear":
            raise out.fault(f"{out.kind} where the output projection of attention was expected")
        mixed = out.inputs[0]
        gate = None
        if mixed.kind == "mul" and len(mixed.inputs) == 2:
            gate = next((item for item in mixed.inputs if item.kind == "unary" and item.attrs["name"] == "sigmoid"), None)
            mixed = next((item for item in mixed.inputs if item is not gate), mixed)
        if mixed.kind != "attention":
            raise mixed.fault(f"{mixed.kind} where attention was expected")
        at = mixed.attrs
        if at["value_dim"] != at["head_dim"]:
            raise mixed.fault("values have another width than keys, which the part `attention` has not")
        kv, group, width = at["kv_heads"], at["heads"] // at["kv_heads"], at["head_dim"]
        made.say(mixed, num_heads=at["heads"], n_kv_heads=kv, head_dim=width, attention_scale=at["scale"],
                 sliding_window=at["window"], attn_logit_softcapping=at["soft_cap"],
                 attention_sinks="sinks" in mixed.params, attn_output_gate=gate is not None,
                 attention_out_bias="bias" in out.params)
        made.params["attn_o_weight"] = out.params["weight"].reshape(kv, group, width, -1)
        if "bias" in out.params:
            made.params["attn_o_bias"] = out.params["bias"]
        if "sinks" in mixed.params:
            made.params["attn_sinks"] = mixed.params["sinks"].reshape(kv, group)
        shapes = {"q": (kv, group, width), "k": (kv, width), "v": (kv, width)}
        sources = [self._projection(item, name, shapes[name], made) for item, name in zip(mixed.inputs, "qkv")]
        if gate is not None:
            linear = gate.inputs[0]
            if linear.kind != "linear" or linear.params.keys() != {"weight"}:
                raise gate.fault("a gate of attention that is not the sigmoid of a product")
            made.params["attn_gate_weight"] = linear.params["weight"].reshape(-1, *shapes["q"])
            sources.append(linear.inputs[0])
        if any(item is not sources[0] for item in sources):
            raise mixed.fault("queries, keys and values are made from different values")
        self._pre_norm(sources[0], x, made, "attn_norm", mixed)
        return sources[0]

    def _pre_norm(self, source: Op, x: Op, made: Described, role: str, op: Op) -> None:
        made.say(op, pre_norm=source is not x)
        if source is not x:
            self._norm(source, x, made, role)

    def _projection(self, op: Op, name: str, shape: tuple[int, ...], made: Described) -> Op:
        """Follows q, k or v back to its product."""
        steps: list[Op] = []
        while op.kind in ("rope", "norm", "mul", "unary") and len(op.inputs) == 1:
            steps.insert(0, op)
            op = op.inputs[0]
        if op.kind != "linear":
            raise op.fault(f"{op.kind} where the product of {name} was expected")
        made.params[f"attn_{name}_weight"] = op.params["weight"].reshape(-1, *shape)
        made.say(op, qkv_has_bias="bias" in op.params)
        if "bias" in op.params:
            made.params[f"attn_{name}_bias"] = op.params["bias"].reshape(shape)
        limit = 0.0
        if steps and steps[0].kind == "unary" and steps[0].attrs["name"] == "clamp":
            clamp = steps.pop(0)
            limit = clamp.attrs["most"]
            if clamp.attrs["least"] != -limit:
                raise clamp.fault("q, k and v have different limits above and below")
        made.say(op, clip_qkv=limit)
        if name == "v":
            if steps:
                raise steps[0].fault(f"{steps[0].kind} of the values of attention")
            return op.inputs[0]
        kinds = [step.kind for step in steps]
        norm = next((step for step in steps if step.kind == "norm"), None)
        rope = next((step for step in steps if step.kind == "rope"), None)
        scale = next((step for step in steps if step.kind == "mul"), None)
        if kinds not in ([], ["rope"], ["norm"], ["norm", "rope"], ["norm", "mul", "rope"], ["norm", "mul"],
                         ["rope", "norm"]):
            raise op.fault(f"{name} is made by {', '.join(kinds)}, which the part `attention` has not")
        made.say(op, qk_layernorm=norm is not None, qk_norm_last=kinds == ["rope", "norm"])
        if norm is not None:
            self._qk_norm(norm, scale, name, shape, made)
        made.say(op, rotary=rope is not None)
        if rope is not None:
            at = rope.attrs
            if at["turned"] > 2:
                made.say(rope, rope_interleave=at["interleaved"])
            made.say(rope, rotary_width=at["turned"], rotary_last=at["last"],
                     rotary_pct=at["turned"] / at["width"], **rotary(at["frequencies"]),
                     rotary_factor=float(f"{at['factor']:.6g}"))
        return op.inputs[0]

    @staticmethod
    def _qk_norm(norm: Op, scale: Op | None, name: str, shape: tuple[int, ...], made: Described) -> None:
        weight = norm.params.get("weight")
        if scale is not None and weight is None:
            weight, is_scale = scale.params["weight"], True
        else:
            is_scale = weight is not None and weight.size != norm.attrs["width"]
        width = norm.attrs["width"]
        made.say(norm, qk_norm=norm.attrs["kind"] + ("" if weight is not None and not is_scale else "_plain"),
                 qk_norm_bias="bias" in norm.params, qk_norm_scale=is_scale, qk_norm_epsilon=norm.attrs["epsilon"],
                 qk_norm_offset=norm.attrs["offset"], qk_norm_heads=width != shape[-1])
        if width not in (shape[-1], int(np.prod(shape))):
            raise norm.fault("a norm of neither a head nor all heads")
        key = "scale" if is_scale else "weight"
        for role, ids in (("norm_" + key, weight), ("norm_bias", norm.params.get("bias"))):
            if ids is not None:
                whole = is_scale or width != shape[-1]
                made.params[f"attn_{name}_{role}"] = ids.reshape(shape if whole else (width,))

    def _mlp(self, terms: list[Op], middle: Op, x: Op, n1: Op, made: Described) -> None:
        if len(terms) == 1:
            core = self._branch(terms[0], made, "mlp")
            terms = self._terms(core, middle)
        else:
            made.say(terms[0], residual_multiplier=1.0, post_norm=False)
        experts = [term for term in terms if term.kind == "experts"]
        shared = [term for term in terms if term.kind != "experts"]
        made.say(terms[0], moe=bool(experts))
        if len(experts) > 1 or len(shared) > 1:
            raise terms[0].fault("more than one MLP in a block")
        source = self._experts(experts[0], shared, made) if experts else self._plain(shared[0], "mlp", made)
        made.say(terms[0], shared_norm=source is n1 and middle is x and n1 is not x)
        if source is not n1 or n1 is x:
            self._pre_norm(source, middle, made, "mlp_norm", terms[0])

    def _plain(self, down: Op, role: str, made: Described) -> Op:
        """An MLP with or without a gate. Returns its input."""
        if down.kind != "linear":
            raise down.fault(f"{down.kind} where the last product of an MLP was expected")
        wide = down.inputs[0]
        gated = wide.kind == "mul" and len(wide.inputs) == 2
        active = next((item for item in (wide.inputs if gated else [wide]) if item.kind == "unary"), None)
        if active is None or active.inputs[0].kind != "linear":
            raise wide.fault("an MLP without an activation of a product")
        inner = active.inputs[0]
        up = next((item for item in wide.inputs if item is not active), None) if gated else inner
        products = {"gate": inner, "up": up, "down": down} if gated else {"up": up, "down": down}
        if up.kind != "linear" or up.inputs[0] is not inner.inputs[0]:
            raise wide.fault("the gate of an MLP is not beside its projection")
        made.say(active, hidden_act=active.attrs["name"])
        width = {"mlp": "intermediate_size", "shared": "shared_width"}[role]
        made.say(active, **{f"{role}_gated": gated, width: active.size})
        for name, op in products.items():
            made.params[f"{role}_{name}_weight"] = op.params["weight"]
            made.say(op, **{f"{role}_bias": "bias" in op.params})
            if "bias" in op.params:
                made.params[f"{role}_{name}_bias"] = op.params["bias"]
        return inner.inputs[0]

    def _experts(self, op: Op, shared: list[Op], made: Described) -> Op:
        at = op.attrs
        if not at["gated"]:
            raise op.fault("experts without a gate, which the part `experts` has not")
        if at["chosen"] < at["experts"]:  # else both forms are the same
            made.say(op, norm_topk_prob=at["normalized"])
        made.say(op, expert_num=at["experts"], num_experts_chosen=at["chosen"],
                 hidden_act=at["activation"], router_score=at["score"], routed_scaling_factor=at["scale"],
                 n_group=at["groups"], topk_group=at["kept_groups"],
                 moe_intermediate_size=op.params["expert_gate_weight"].shape[2],
                 balance_via_topk_bias="router_choice_bias" in op.params, expert_bias="router_bias" in op.params,
                 shared=bool(shared), swiglu=at["limits"])
        names = {"router_bias": "router_linear_bias", "router_choice_bias": "router_bias"}
        for name, ids in op.params.items():
            made.params[names.get(name, name)] = ids.reshape(-1) if "choice" in name else ids
        if not shared:
            return op.inputs[0]
        core = shared[0]
        score = None
        if core.kind == "mul" and len(core.inputs) == 2 and any(item.size == 1 for item in core.inputs):
            score = next(item for item in core.inputs if item.size == 1)
            core = next(item for item in core.inputs if item is not score)
            if score.kind != "unary" or score.attrs["name"] != "sigmoid" or score.inputs[0].kind != "linear":
                raise score.fault("a share of the shared experts that is not the sigmoid of a product")
            made.params["shared_score_weight"] = score.inputs[0].params["weight"].reshape(-1)
        made.say(op, use_shared_expert_gating=score is not None)
        source = self._plain(core, "shared", made)
        if source is not op.inputs[0]:
            raise op.fault("shared experts read another value than the experts")
        return source
