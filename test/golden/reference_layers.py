"""Layers of the oracle in float64. Each forward returns its value and a function that maps the value's gradient to the
gradients of the inputs. The formulas are written by hand; `reference.py --check` compares them with finite differences.
"""
import math

import numpy as np


def linear(x, weight, bias=None):
    """Contracts the last axes of x with the first axes of `weight`, which may have any number of further axes."""
    inner = math.prod(x.shape[2:])
    flat_x, flat_w = x.reshape(-1, inner), weight.reshape(inner, -1)
    out_shape = weight.shape[len(x.shape) - 2:]
    y = (flat_x @ flat_w).reshape(x.shape[:2] + out_shape)

    def backward(dy):
        flat_dy = dy.reshape(flat_x.shape[0], -1)
        dx, dw = (flat_dy @ flat_w.T).reshape(x.shape), (flat_x.T @ flat_dy).reshape(weight.shape)
        return (dx, dw) if bias is None else (dx, dw, flat_dy.sum(0).reshape(bias.shape))

    return (y if bias is None else y + bias), backward


def layer_norm(x, weight, bias, epsilon):
    centered = x - x.mean(-1, keepdims=True)
    scale = 1 / np.sqrt((centered**2).mean(-1, keepdims=True) + epsilon)
    normal = centered * scale

    def backward(dy):
        dn = dy * weight
        dx = scale * (dn - dn.mean(-1, keepdims=True) - normal * (dn * normal).mean(-1, keepdims=True))
        return dx, (dy * normal).sum((0, 1)), dy.sum((0, 1))

    return normal * weight + bias, backward


def rms_norm(x, weight, epsilon):
    scale = 1 / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)
    normal = x * scale

    def backward(dy):
        dn = dy * weight
        before = tuple(range(x.ndim - 1))
        return scale * (dn - normal * (dn * normal).mean(-1, keepdims=True)), (dy * normal).sum(before)

    return normal * weight, backward


def gelu_tanh(x):
    c = math.sqrt(2 / math.pi)
    t = np.tanh(c * (x + 0.044715 * x**3))
    slope = 0.5 * (1 + t) + 0.5 * x * (1 - t**2) * c * (1 + 3 * 0.044715 * x**2)
    return 0.5 * x * (1 + t), lambda dy: dy * slope


def silu(x):
    s = 1 / (1 + np.exp(-x))
    return x * s, lambda dy: dy * s * (1 + x * (1 - s))


def rope(x, theta):
    """Rotates x [batch, seq, .., head_dim] with halves paired. Position t is the index along seq."""
    half = x.shape[-1] // 2
    shape = (1, x.shape[1]) + (1,) * (x.ndim - 3) + (half,)
    angle = np.outer(np.arange(x.shape[1]), theta ** (-np.arange(half) / half)).reshape(shape)

    def rotate(v, sign):
        a, b, c, s = v[..., :half], v[..., half:], np.cos(angle), sign * np.sin(angle)
        return np.concatenate([a * c - b * s, b * c + a * s], -1)

    return rotate(x, 1), lambda dy: rotate(dy, -1)


def attention(q, k, v):
    """Computes causal attention of q [batch, seq, kv_heads, group, head_dim] and k, v [batch, seq, kv_heads,
    head_dim]."""
    scale, seq = 1 / math.sqrt(q.shape[-1]), q.shape[1]
    scores = scale * np.einsum("bthgd,bshd->bhgts", q, k)
    scores[..., np.triu(np.ones((seq, seq), bool), 1)] = -np.inf
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)

    def backward(dy):
        dp = np.einsum("bthgd,bshd->bhgts", dy, v)
        ds = scale * p * (dp - (dp * p).sum(-1, keepdims=True))
        return (np.einsum("bhgts,bshd->bthgd", ds, k), np.einsum("bhgts,bthgd->bshd", ds, q),
                np.einsum("bhgts,bthgd->bshd", p, dy))

    return np.einsum("bhgts,bshd->bthgd", p, v), backward


def cross_entropy(logits, labels, weights):
    """Returns the mean over the positions that count, and its gradient with respect to the logits."""
    shifted = logits - logits.max(-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    hot = np.eye(logits.shape[-1])[labels]
    share = (weights / weights.sum())[..., None]
    return -(share * hot * log_p).sum(), share * (np.exp(log_p) - hot)


def softmax(x):
    """Computes softmax over the last axis."""
    p = np.exp(x - x.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return p, lambda dy: p * (dy - (dy * p).sum(-1, keepdims=True))


def mixture(x, router, gate_weight, up_weight, down_weight, choices, capacity, factor, tokens):
    """Sends each token of x [batch, seq, hidden] to its `choices` best experts that have a free slot, weighted by a
    softmax over its choices. Weights of experts are [experts, ...]. Also computes the load-balancing loss of Switch
    Transformer, from the shares of each sample's choices, with tokens weighted by `tokens` [batch, seq]. Backward takes
    the gradient of the value."""
    experts, (batch, seq, _) = router.shape[1], x.shape
    scores, back_scores = linear(x, router)
    p, back_p = softmax(scores)
    chosen = np.argsort(-scores, axis=-1, kind="stable")[..., :choices]
    weights, back_weights = softmax(np.take_along_axis(scores, chosen, -1))
    y, calls = np.zeros_like(x), []
    for b in range(batch):
        taken = [0] * experts
        for k in range(choices):
            for t in range(seq):
                e = chosen[b, t, k]
                taken[e] += 1
                if taken[e] > capacity:
                    continue
                row = x[b, t]
                gate, up = row @ gate_weight[e], row @ up_weight[e]
                active, back_active = silu(gate)
                out = (active * up) @ down_weight[e]
                y[b, t] += weights[b, t, k] * out
                calls.append((b, t, k, e, row, up, active, back_active, out))
    share = np.eye(experts)[chosen].sum((1, 2)) / (seq * choices)  # [batch, experts]
    slope = factor * experts * tokens[..., None] * share[:, None]
    loss = (slope * p).sum()

    def backward(dy):
        dx, dweights = np.zeros_like(x), np.zeros_like(weights)
        dgate, dup, ddown = np.zeros_like(gate_weight), np.zeros_like(up_weight), np.zeros_like(down_weight)
        for b, t, k, e, row, up, active, back_active, out in calls:
            dout = weights[b, t, k] * dy[b, t]
            dweights[b, t, k] = dy[b, t] @ out
            ddown[e] += np.outer(active * up, dout)
            dwide = down_weight[e] @ dout
            dg, du = back_active(dwide * up), dwide * active
            dgate[e] += np.outer(row, dg)
            dup[e] += np.outer(row, du)
            dx[b, t] += gate_weight[e] @ dg + up_weight[e] @ du
        dscores = back_p(slope)
        np.put_along_axis(dscores, chosen, np.take_along_axis(dscores, chosen, -1) + back_weights(dweights), -1)
        dmore, drouter = back_scores(dscores)
        return dx + dmore, drouter, dgate, dup, ddown

    return y, loss, backward
