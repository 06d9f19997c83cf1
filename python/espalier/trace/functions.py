"""Recognises functions by their values: norms, rotary positions, and functions of single numbers.

`f` runs a region of the model on a tensor of the shape of its input. All numbers are float64.
"""
from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable

import numpy as np
import torch

from .match import near
from .record import Node

Function = Callable[[torch.Tensor], torch.Tensor]
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "fast_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": torch.relu,
    "relu2": lambda x: torch.relu(x) ** 2,
    "sigmoid": torch.sigmoid,
}


def random_like(shape: tuple[int, ...], seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@dataclasses.dataclass
class Norm:
    kind: str  # "rms" or "layer"
    epsilon: float
    offset: float
    weight: Node | None
    bias: Node | None


def norm_of(f: Function, shape: tuple[int, ...], params: list[Node]) -> Norm | None:
    """Recognises a norm over the last dimension: f(x) = n(x) (weight + offset) + bias."""
    x = random_like(shape)
    bias = f(torch.zeros(shape, dtype=torch.float64))
    for kind in ("rms", "layer"):
        centred = x if kind == "rms" else x - x.mean(-1, keepdim=True)
        unit = centred / centred.pow(2).mean(-1, keepdim=True).sqrt()
        factor = (f(1e8 * x) - bias) / unit  # epsilon has no effect
        first = factor.reshape(-1, *_rest(factor))[:1]
        if not near(factor, first.expand_as(factor.reshape(-1, *_rest(factor))).reshape(shape), 1e-6):
            continue
        found = _with_parameters(kind, factor, bias, params)
        if not found:
            continue
        small = 1e-3
        ratio = ((f(small * unit) - bias) / (unit * factor)).flatten()  # small / sqrt(small^2 + epsilon)
        at = int(unit.abs().flatten().argmax())
        found.epsilon = float(f"{small**2 / float(ratio[at])**2 - small**2:.6g}")
        expected = centred / (centred.pow(2).mean(-1, keepdim=True) + found.epsilon).sqrt() * factor + bias
        if found.epsilon >= 0 and near(f(x), expected, 1e-7):
            return found
    return None


def _rest(value: torch.Tensor) -> tuple[int, ...]:
    """Returns the last dimensions that a factor may have: the last one, and those before it if they are needed."""
    for count in range(1, value.ndim):
        rest = tuple(value.shape[-count:])
        flat = value.reshape(-1, *rest)
        if near(flat, flat[:1].expand_as(flat), 1e-6):
            return rest
    return tuple(value.shape[1:])


def _with_parameters(kind: str, factor: torch.Tensor, bias: torch.Tensor, params: list[Node]) -> Norm | None:
    found = Norm(kind, 0, 0, None, None)
    rest = _rest(factor)
    one = factor.reshape(-1, *rest)[0].flatten()
    for leaf in params:
        if leaf.value.numel() == one.numel():
            offset = float((one - leaf.value.flatten()).mean())
            if near(one, leaf.value.flatten() + offset, 1e-6):
                found.weight, found.offset = leaf, round(offset, 5) + 0.0  # -0.0 is 0
    flat = bias.reshape(-1, *rest)[0].flatten()
    for leaf in params:
        if leaf.value.numel() == flat.numel() and leaf is not found.weight and near(flat, leaf.value.flatten(), 1e-9):
            found.bias = leaf
    plain = found.weight is not None or near(one, torch.ones_like(one), 1e-6)
    return found if plain and (found.bias is not None or near(flat, torch.zeros_like(flat))) else None


def rotation_of(f: Function, shape: tuple[int, ...], position: np.ndarray) -> dict[str, Any] | None:
    """Recognises rotary positions. `position` is that of each element of the input. Returns the pairs' frequencies
    (turn per position), whether pairs are neighbours, which columns turn, the factor, and the order of the output."""
    width = shape[-1]
    x = random_like(shape)
    y = f(x)
    if y.shape != x.shape or not near(f(2 * x), 2 * y, 1e-8) or near(y, x, 1e-12):
        return None
    at = {t: np.argwhere(position.reshape(-1, width)[:, 0] == t)[0, 0] for t in (0, 1, 2)}
    turned = {t: np.empty((width, width)) for t in at}  # turned[t][j]: the output for column j
    for j in range(width):
        basis = torch.zeros(shape, dtype=torch.float64)
        basis[..., j] = 1
        out = f(basis).reshape(-1, width).numpy()
        for t, row in at.items():
            turned[t][j] = out[row]
    order = np.abs(turned[0]).argmax(1)  # column j goes to order[j]
    if sorted(order) != list(range(width)) or (np.abs(turned[0]) > 1e-9).sum() != width:
        return None
    turned = {t: matrix[:, order] for t, matrix in turned.items()}
    moves = [j for j in range(width) if np.abs(turned[1][j] - np.eye(width)[j] * turned[0][j, j]).max() > 1e-12
             or turned[0][j, j] != 1]
    partner = {j: int(np.abs(turned[1][j] * (1 - np.eye(width)[j])).argmax()) for j in moves}
    if not moves or any(partner[partner[j]] != j for j in moves if partner[j] in partner):
        return None
    first = sorted(j for j in moves if turned[1][j, partner[j]] > 0)
    frequencies = np.array([math.atan2(turned[1][j, partner[j]], turned[1][j, j]) for j in first])
    factor = float(turned[0][moves[0], moves[0]])
    for j, frequency in zip(first, frequencies):
        wanted = factor * math.cos(2 * frequency), factor * math.sin(2 * frequency)
        if np.abs(np.array([turned[2][j, j], turned[2][j, partner[j]]]) - wanted).max() > 1e-6:
            return None
    neighbours = all(partner[j] == j + 1 for j in first)
    half = len(moves) // 2
    if len(first) * 2 != len(moves) or not (neighbours or all(partner[j] == j + half for j in first)):
        return None
    if moves not in (list(range(2 * half)), list(range(width - 2 * half, width))):
        return None
    return {"frequencies": frequencies, "interleaved": neighbours and half > 0 and partner[first[0]] == first[0] + 1 and
            (half > 1 or width == 2), "turned": len(moves), "last": moves[0] > 0, "factor": factor, "order": order}


def function_of(f: Function, shape: tuple[int, ...]) -> dict[str, Any] | None:
    """Recognises a function of single numbers: a factor, a sum, an activation, a limit."""
    count = int(np.prod(shape))
    numbers = torch.cat([torch.linspace(-6, 6, 25, dtype=torch.float64), torch.tensor([1e-6, 1e4, -1e4])])
    numbers = numbers[:count]

    def on(values: torch.Tensor) -> torch.Tensor | None:
        filled = values.repeat(-(-count // len(values)))[:count].reshape(shape)
        out = f(filled)
        if out.shape != filled.shape or not near(out.flatten()[:len(values)],
                                                 f(filled.flatten().roll(1).reshape(shape)).flatten().roll(-1)
                                                 [:len(values)]):
            return None
        return out.flatten()[:len(values)]

    y = on(numbers)
    if y is None or not y.isfinite().all():
        return None
    one = float(on(torch.ones(1, dtype=torch.float64))[0])
    if near(y, one * numbers):
        return {"name": "scale", "value": one}
    if near(y - numbers, (y - numbers)[:1]):
        return {"name": "shift", "value": float((y - numbers)[0])}
    for name, activation in ACTIVATIONS.items():
        if near(y, activation(numbers), 1e-7):
            return {"name": name}
    if count < len(numbers):
        return None
    cap = float(y[-2])
    if cap > 0 and near(y, cap * torch.tanh(numbers / cap)):
        return {"name": "soft_cap", "value": cap}
    if near(y, numbers.clamp(float(y[-1]), cap)):
        return {"name": "clamp", "least": float(y[-1]), "most": cap}
    return None
