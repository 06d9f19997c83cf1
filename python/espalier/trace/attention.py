"""Recognises causal attention: its mask, scale, limit and sinks follow from the probabilities of chosen scores."""
from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from .match import EACH, MOVES, Matcher, Op, Placed, near, regions
from .record import Node, replay

_SCORES = EACH | MOVES | {"max", "amax", "softmax", "log_softmax", "triu", "tril", "bool", "softmax"}


def match_attention(matcher: Matcher, node: Node) -> Placed | None:
    if node.op == "scaled_dot_product_attention":
        return _fused(matcher, node)
    if node.op not in ("matmul", "bmm") or len(node.inputs) != 2 or any(item.kind != "act" for item in node.inputs):
        return None
    probabilities, values = node.args
    scores = softmax = None
    sinks: list[Node] = []
    for entry, inside, params in regions(probabilities, _SCORES):
        soft = [item for item in inside if item.op == "softmax"]
        if soft and entry.op in ("matmul", "bmm", "baddbmm"):
            scores, softmax, sinks = entry, soft[0], params
            break
    if scores is None:
        return None
    if scores.op == "baddbmm" or len(scores.inputs) != 2:
        raise scores.fault(f"scores by `{scores.op}` are not understood")
    run = lambda given: replay([probabilities], {scores: given})[0]
    attrs = _form(softmax, run, scores.shape, matcher.seq)
    queries, keys = scores.args
    return _joined(matcher, node, (queries, keys, values), attrs, sinks, keys_swapped=True)


def _fused(matcher: Matcher, node: Node) -> Placed:
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    given = dict(zip(names, node.args)) | node.kwargs
    query, key, value = (given[name] for name in names[:3])
    batch = query.shape[:-2]
    group = query.shape[-3] // key.shape[-3] if given.get("enable_gqa") else 1
    default = 1 / math.sqrt(query.shape[-1])
    bias = torch.zeros(matcher.seq, matcher.seq, dtype=torch.float64)
    if given.get("is_causal"):
        bias = bias.masked_fill(torch.ones_like(bias).triu(1).bool(), -math.inf)
    mask = given.get("attn_mask")
    if mask is not None:
        mask = mask.value
        bias = bias + (torch.zeros_like(mask, dtype=torch.float64).masked_fill(~mask, -math.inf)
                       if mask.dtype == torch.bool else mask)
    scale = given.get("scale") or default
    attrs = _form(node, lambda scores: torch.softmax(scores * scale + bias, -1), (*batch, matcher.seq, matcher.seq),
                  matcher.seq)
    return _joined(matcher, node, (query, key, value), attrs, [], keys_swapped=False, group=group)


def _form(node: Node, probabilities: Any, shape: tuple[int, ...], seq: int) -> dict[str, Any]:
    """Returns window, scale and soft cap, from the probabilities as a function of the scores."""
    zero = torch.zeros(shape, dtype=torch.float64)
    even = probabilities(zero).reshape(-1, seq, seq)
    seen = even > 1e-12
    if (seen != seen[:1]).any():
        raise node.fault("heads or samples have different masks")
    mask = seen[0]
    window = int(mask[-1].sum())
    distance = torch.arange(seq)[:, None] - torch.arange(seq)
    if (mask != ((distance >= 0) & (distance < window))).any():
        causal = bool((mask == (distance >= 0)).all())
        raise node.fault("attention that is not causal within a window" if not causal else "an unknown mask")
    if not near(even, even[:, :, :1] * 0 + even.amax(-1, keepdim=True) * mask, 1e-9):
        raise node.fault("attention adds a bias of positions to scores (ALiBi), which no op of Espalier has")

    def score(value: float) -> float:
        given = zero.clone()
        given[..., 1, 1] = value
        row = probabilities(given).reshape(-1, seq, seq)[:, 1]
        ratios = torch.log(row[:, 1] / row[:, 0])
        if not near(ratios, ratios[:1]):
            raise node.fault("heads have different scales of scores")
        return float(ratios[0])

    scale = score(1e-4) / 1e-4
    cap = score(1e12) if abs(score(1e2) / (scale * 1e2) - 1) > 1e-6 else 0.0
    if math.isinf(cap):
        raise node.fault("scores are limited in an unknown way")
    for value in (-3.0, 0.5, 20.0):
        wanted = cap * math.tanh(scale * value / cap) if cap else scale * value
        if abs(score(value) - wanted) > 1e-5 * (1 + abs(wanted)):
            raise node.fault("scores are changed by an unknown function")
    return {"window": 0 if window == seq else window, "scale": float(f"{scale:.7g}"), "soft_cap": float(f"{cap:.7g}")}


def _joined(matcher: Matcher, node: Node, sources: tuple[Node, Node, Node], attrs: dict[str, Any], sinks: list[Node],
            keys_swapped: bool, group: int = 1) -> Placed:
    """Makes the op: heads in the order of the key heads that they share."""
    query, key, value = sources
    batch = np.broadcast_shapes(query.shape[:-2], tuple(
        length * (group if at == len(key.shape) - 3 else 1) for at, length in enumerate(key.shape[:-2])))
    heads = []  # for q, k and v: the op, its columns [heads, width], and the place of each row in [batch, seq, heads]
    for at, source in enumerate(sources):
        placed = matcher.lift(source)
        index = placed.index.swapaxes(-1, -2) if at == 1 and keys_swapped else placed.index
        if at and group > 1:
            index = np.repeat(index, group, axis=-3)
        index = np.broadcast_to(index, (*batch, *index.shape[-2:]))
        columns, _, place = matcher.rows(Placed(placed.op, index))
        width = index.shape[-1]
        heads.append((placed.op, columns.reshape(-1, width), place[..., 0] // width))
    count = len(heads[0][1])
    if any(len(columns) != count or (rows != heads[0][2]).any() for _, columns, rows in heads):
        raise node.fault("queries, keys and values have different layouts")
    (q, q_columns, rows), (k, k_columns, _), (v, v_columns, _) = heads
    firsts = list(dict.fromkeys(map(tuple, k_columns)))  # in the order of their heads
    shared = np.array([firsts.index(tuple(columns)) for columns in k_columns])
    order = np.argsort(shared, kind="stable")
    v_firsts = [v_columns[shared.tolist().index(i)] for i in range(len(firsts))]
    per_key = count // len(firsts)
    if (shared[order] != np.repeat(np.arange(len(firsts)), per_key)).any() or any(
            (v_columns[i] != v_firsts[shared[i]]).any() for i in range(count)):
        raise node.fault("queries share keys and values in an unknown way")
    ops = [matcher.select(q, q_columns[order].reshape(-1)), matcher.select(k, np.array(firsts).reshape(-1)),
           matcher.select(v, np.array(v_firsts).reshape(-1))]
    ops, scale = _without_scales(ops, attrs["scale"])
    _same_order(ops, node)
    width = v_columns.shape[1]
    op = Op("attention", ops, count * width, node.where, attrs | {
        "scale": scale, "heads": count, "kv_heads": len(firsts), "head_dim": q_columns.shape[1], "value_dim": width})
    if sinks:
        op.params["sinks"] = matcher.ids(sinks[0]).reshape(-1)[order]
    rank = np.argsort(order)
    token, head = rows // count, rows % count
    index = ((token * count + rank[head]) * width)[..., None] + np.arange(width)
    return Placed(op, index.reshape(node.shape))


def _without_scales(ops: list[Op], scale: float) -> tuple[list[Op], float]:
    """Moves factors of queries and keys, also before a rotation, into the scale of the scores."""
    made = []
    for op in ops[:2]:
        chain = [op]
        while chain[-1].kind == "rope":
            chain.append(chain[-1].inputs[0])
        if chain[-1].kind == "unary" and chain[-1].attrs["name"] == "scale":
            scale *= chain[-1].attrs["value"]
            op = chain[-1].inputs[0]
            for rope in reversed(chain[:-1]):
                op = Op("rope", [op], op.size, rope.where, rope.attrs)
        made.append(op)
    return made + ops[2:], float(f"{scale:.7g}")


def _same_order(ops: list[Op], node: Node) -> None:
    """Scores do not change if queries and keys have their columns in another order, but it must be the same one."""
    orders = [op.attrs["order"] if op.kind == "rope" else np.arange(op.size) for op in ops[:2]]
    if any(op.kind == "rope" for op in ops[:2]) and (orders[0].shape != orders[1].shape or (orders[0] != orders[1]).any()):
        raise node.fault("queries and keys have different rotary positions")
