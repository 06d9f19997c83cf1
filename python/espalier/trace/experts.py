"""Recognises a mixture of experts by its values: the region between a token's vector and the experts' sum is compared
with mixtures made of the parameters that occur in it. The loop over experts need not be understood."""
from __future__ import annotations

import itertools
from typing import Any, Iterator

import numpy as np
import torch

from .functions import ACTIVATIONS
from .match import Matcher, Op, Placed, leaves_of, near
from .faults import NotUnderstood
from .record import Node, replay


def match_experts(matcher: Matcher, node: Node) -> Placed | None:
    for entry, choice, params in _regions(node):
        if entry.shape[-1] != node.shape[-1]:
            continue
        found = _mixture(matcher, node, entry, choice, params)
        if found:
            source, place = matcher.whole(matcher.lift(entry))
            op = Op("experts", [source], node.shape[-1], node.where, found["attrs"], found["params"])
            return Placed(op, place.reshape(node.shape))
    return None


def _regions(node: Node) -> Iterator[tuple[Node, Node, list[Node]]]:
    """Yields (entry, last topk, parameters) of regions of any calls with a topk."""
    frontier, choice, params = {node}, None, []
    while frontier:
        last = max(frontier, key=lambda item: item.number)
        frontier.remove(last)
        if last.op == "leaf":
            return
        if last.op == "topk" and choice is None:
            choice = last
        frontier.update(item for item in last.inputs if item.kind == "act")
        params += [leaf for item in last.inputs if item.kind == "param" for leaf in leaves_of(item)]
        entry = next(iter(frontier)) if len(frontier) == 1 else None
        if choice and entry and entry.number < choice.number and entry.value.is_floating_point():
            yield entry, choice, list(dict.fromkeys(params))


def _mixture(matcher: Matcher, node: Node, entry: Node, choice: Node, params: list[Node]) -> dict[str, Any] | None:
    """Returns attributes and parameters of the mixture that has the values of the region."""
    x = entry.value.reshape(-1, entry.shape[-1])
    y = node.value.reshape(-1, node.shape[-1])
    ids = choice.value[1].reshape(len(x), -1)
    router, others = _router(matcher, choice, params)
    count = router["weight"].shape[0]
    scores = x @ router["weight"].value.T + (router["bias"].value if "bias" in router else 0)
    for products in _products(matcher, others, count, x.shape[-1]):
        for name, limits, outputs in _outputs(products, x, ids, _constants(entry, node)):
            for score, normalized, weights in _weights(scores, ids):
                made = (weights[..., None] * outputs).sum(1)
                scale = float((made * y).sum() / (made * made).sum())
                if not near(made * scale, y, 1e-7):
                    continue
                attrs = {"experts": count, "chosen": ids.shape[1], "activation": name, "score": score,
                         "normalized": normalized, "limits": limits, "scale": float(f"{scale:.7g}"), "gated": "up" in products}
                attrs |= _choice(router, scores, ids, score, choice)
                found = {f"expert_{key}": value for key, (value, _) in products.items() if value is not None}
                found |= {f"router_{key}": matcher.ids(leaf) for key, leaf in router.items()}
                found["router_weight"] = found["router_weight"].T
                return {"attrs": attrs, "params": found}
    return None


def _router(matcher: Matcher, choice: Node, params: list[Node]) -> tuple[dict[str, Node], list[Node]]:
    """Returns the parameters by which experts are chosen, and the others."""
    before, stack = [], [choice]
    seen = set()
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            before += [leaf for item in node.inputs if item.kind == "param" for leaf in leaves_of(item)]
            stack += [item for item in node.inputs if item.kind == "act" and item.op != "leaf"]
    mine = [leaf for leaf in params if leaf in before]
    weight = next((leaf for leaf in mine if leaf.value.ndim == 2), None)
    if weight is None:
        raise choice.fault("a choice without a router's product is not understood")
    router = {"weight": weight}
    product = next(node for node in sorted(seen, key=lambda item: item.number) if any(
        item.kind == "param" and weight in leaves_of(item) for item in node.inputs))
    for leaf in mine:
        if leaf.value.ndim == 1:
            in_product = any(item.kind == "param" and leaf in leaves_of(item) for item in product.inputs)
            router["bias" if in_product else "choice_bias"] = leaf
    return router, [leaf for leaf in params if leaf not in mine]


def _products(matcher: Matcher, params: list[Node], count: int, hidden: int) -> Iterator[dict[str, Any]]:
    """Yields {gate, up, down and their biases: (ids, values)} with dims [expert, in, out] that the parameters may be."""
    stacks: list[tuple[np.ndarray, torch.Tensor]] = []
    if all(leaf.value.ndim == 3 or (leaf.value.ndim == 2 and leaf.shape[0] == count) for leaf in params):
        stacks = [(matcher.ids(leaf), leaf.value) for leaf in params]
    else:  # a parameter for each expert
        by_shape: dict[tuple[str, tuple[int, ...]], list[Node]] = {}
        for leaf in params:
            role = ".".join(part for part in leaf.name.split(".")[-3:] if not part.isdigit())
            by_shape.setdefault((role, leaf.shape), []).append(leaf)
        for leaves in by_shape.values():
            leaves.sort(key=lambda leaf: matcher.first[leaf.name])
            if len(leaves) == count:
                stacks.append((np.stack([matcher.ids(leaf) for leaf in leaves]),
                               torch.stack([leaf.value for leaf in leaves])))
    products = [(ids, value) for ids, value in stacks if ids.ndim == 3]
    biases = [(ids, value) for ids, value in stacks if ids.ndim == 2]
    for order in itertools.permutations(products):
        for transposed in itertools.product([True, False], repeat=len(order)):
            turned = [(ids.swapaxes(1, 2), value.transpose(1, 2)) if turn else (ids, value)
                      for (ids, value), turn in zip(order, transposed)]
            if len(turned) == 2:
                yield from _fused(turned, biases, hidden)
            if len(turned) == 3 and [item[0].shape[1] for item in turned[:2]] == [hidden] * 2 and \
                    turned[2][0].shape[2] == hidden:
                yield dict(zip(("gate_weight", "up_weight", "down_weight"), turned)) | {"up": (None, None)}


def _fused(turned: list[tuple[np.ndarray, torch.Tensor]], biases: list[tuple[np.ndarray, torch.Tensor]], hidden: int
           ) -> Iterator[dict[str, Any]]:
    """Gate and up projection in one product: halves, or columns in turn. Or no gate."""
    (wide, _), (narrow, _) = turned
    if wide.shape[1] != hidden or narrow.shape[2] != hidden:
        return
    width = narrow.shape[1]
    first = {"down_weight": turned[1]}
    bias_of = {item[0].shape[1]: item for item in biases}
    if wide.shape[2] == width:
        yield first | {"gate_weight": turned[0]}
    if wide.shape[2] != 2 * width:
        return
    for halves in ((slice(0, width), slice(width, None)), (slice(width, None), slice(0, width)),
                   (slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2))):
        made = dict(first) | {"up": (None, None)}
        for key, part in zip(("gate", "up"), halves):
            made[f"{key}_weight"] = tuple(item[..., part] for item in turned[0])
            if biases:
                made[f"{key}_bias"] = tuple(item[..., part] for item in bias_of[2 * width])
        if biases:
            made["down_bias"] = bias_of[hidden]
        yield made


def _constants(entry: Node, node: Node) -> tuple[list[float], list[float]]:
    """Returns the limits of clamps and the factors that the region has."""
    limits, factors, stack, seen = {0.0}, {1.0}, [node], set()
    while stack:
        at = stack.pop()
        if at in seen or at is entry:
            continue
        seen.add(at)
        numbers = [item for item in (*at.args, *at.kwargs.values()) if isinstance(item, (int, float)) and item > 0]
        limits.update(numbers if at.op.startswith("clamp") else ())
        factors.update(numbers if at.op == "mul" else ())
        stack += [item for item in at.inputs if item.kind == "act"]
    return sorted(limits), sorted(factors)


def _outputs(products: dict[str, Any], x: torch.Tensor, ids: torch.Tensor, constants: tuple[list[float], list[float]]
             ) -> Iterator[tuple[str, tuple[float, float, float], torch.Tensor]]:
    """Yields (activation, (limit, alpha, offset), outputs [token, choice, hidden]) of the chosen experts."""

    def product(value: torch.Tensor, key: str) -> torch.Tensor:
        made = torch.einsum("tci,tcio->tco", value, products[f"{key}_weight"][1][ids])
        return made + products[f"{key}_bias"][1][ids] if f"{key}_bias" in products else made

    repeated = x[:, None].expand(-1, ids.shape[1], -1)
    gate = product(repeated, "gate")
    up = product(repeated, "up") if "up" in products else 1
    for name, activation in ACTIVATIONS.items():
        yield name, (0.0, 1.0, 0.0), product(activation(gate) * up, "down")
    if "up" in products and constants[0] != [0.0]:
        for limit, alpha, offset in itertools.product(*constants, (0.0, 1.0)):
            bounded = (gate.clamp(max=limit), up.clamp(-limit, limit)) if limit else (gate, up)
            active = bounded[0] * torch.sigmoid(alpha * bounded[0])
            yield "silu", (limit, alpha, offset), product(active * (bounded[1] + offset), "down")


def _weights(scores: torch.Tensor, ids: torch.Tensor) -> Iterator[tuple[str, bool, torch.Tensor]]:
    for score, values in (("softmax", scores.softmax(-1)), ("sigmoid", scores.sigmoid())):
        chosen = values.gather(1, ids)
        yield score, False, chosen
        yield score, True, chosen / chosen.sum(-1, keepdim=True)


def _choice(router: dict[str, Node], scores: torch.Tensor, ids: torch.Tensor, score: str, node: Node) -> dict[str, int]:
    """Returns the groups among which experts are chosen."""
    values = scores.softmax(-1) if score == "softmax" else scores.sigmoid()
    biased = values + router["choice_bias"].value if "choice_bias" in router else values
    count = scores.shape[1]
    for groups in (n for n in range(1, count + 1) if count % n == 0):
        for kept in range(1, groups + 1):
            members = biased.reshape(len(scores), groups, -1)
            best = members.topk(min(2, members.shape[-1]), -1)[0].sum(-1).topk(kept, -1)[1]
            out = torch.ones(len(scores), groups).scatter(1, best, 0)[..., None].expand_as(members).reshape_as(biased)
            chosen = biased.masked_fill(out.bool(), -1e9).topk(ids.shape[1], -1)[1]
            if (chosen.sort(-1)[0] == ids.sort(-1)[0]).all():
                return {"groups": groups, "kept_groups": kept}
    raise node.fault("experts are chosen in an unknown way")
