"""Finds how the tensors of a weight file are made of parameters. Both are arrays of the numbers of their elements, so an
order of axes is right if the numbers are the same."""
from __future__ import annotations

import itertools
import re

import numpy as np

from .faults import NotUnderstood

Parameters = dict[str, tuple[list[str], np.ndarray]]  # name -> dims and numbers of elements


def layouts(file: dict[str, np.ndarray], layers: dict[str, Parameters], prefix: str) -> dict[str, str]:
    """Returns `weights: hf:`. `layers` has the parameters of each layer by `prefix.N.`, and of the rest by the empty
    string. A name of the parameters is `kind.name` where kinds of layers differ."""
    owner: dict[int, tuple[str, str]] = {}
    for layer, parameters in layers.items():
        for name, (_, ids) in parameters.items():
            owner |= {int(number): (layer, name) for number in ids.flat}
    made: dict[str, str] = {}
    for tensor, ids in file.items():
        owners = list(dict.fromkeys(owner.get(int(number)) for number in ids.flat))
        if None in owners:
            raise NotUnderstood(f"the tensor {tensor} of the weight file has no part in the logits, or only partly")
        (layer,) = {each[0] for each in owners}
        parameters = [(name, *layers[layer][name]) for _, name in owners]
        template = re.sub(r"\.\d+\.", ".{i}.", tensor, count=1) if layer else tensor
        text, is_expert = _layout(ids, parameters, tensor)
        if is_expert:
            template = re.sub(r"\.\d+(\.|$)", r".{expert}\1", template, count=1)
        if made.setdefault(template, text) != text:
            raise NotUnderstood(f"{template} has the layout `{text}` and elsewhere `{made[template]}`")
    return made


def _layout(ids: np.ndarray, parameters: list[tuple[str, list[str], np.ndarray]], tensor: str) -> tuple[str, bool]:
    names = " ".join(name for name, _, _ in parameters)
    for is_expert in (False, True):
        own = parameters
        if is_expert:
            if any(dims[0] != "expert" for _, dims, _ in parameters):
                continue
            at = [np.isin(values.reshape(len(values), -1), ids).any(1).nonzero()[0] for _, _, values in parameters]
            if any(len(each) != 1 for each in at):
                continue
            own = [(name, dims[1:], values[each[0]]) for (name, dims, values), each in zip(parameters, at)]
        text = _one(ids, *own[0][1:]) if len(own) == 1 else _joined(ids, own)
        if text is not None:
            return names + (f" = {text}" if text else ""), is_expert
    raise NotUnderstood(f"the layout of {tensor} from {names} is not understood")


def _one(ids: np.ndarray, dims: list[str], values: np.ndarray) -> str | None:
    """Returns the axes of a tensor that is one parameter; the empty string if they are those of the parameter."""
    if values.size != ids.size:
        return None
    if values.shape == ids.shape and (values == ids).all():
        return ""
    breaks = lambda order: sum(b != a + 1 for a, b in zip(order, order[1:]))  # dims of one element fit anywhere
    for order in sorted(itertools.permutations(range(len(dims))), key=breaks):
        if (values.transpose(order).reshape(ids.shape) == ids).all():
            axes = _axes(ids.shape, [(dims[i], values.shape[i]) for i in order])
            if axes is not None:
                return " ".join(axes)
    return None


def _axes(shape: tuple[int, ...], dims: list[tuple[str, int]]) -> list[str] | None:
    """Splits dims in their order into axes of these sizes."""
    axes, rest = [], list(dims)
    for i, size in enumerate(shape):
        names, product = [], 1
        while rest and (product < size or i == len(shape) - 1):
            names.append(rest[0][0])
            product *= rest.pop(0)[1]
        if product != size:
            return None
        axes.append("1" if not names else names[0] if len(names) == 1 else f"({' '.join(names)})")
    return None if rest else axes


def _joined(ids: np.ndarray, parameters: list[tuple[str, list[str], np.ndarray]]) -> str | None:
    """Returns the axes of a tensor in which parameters follow each other along one axis."""
    first = parameters[0][1]
    common = [name for name in first if all(name in dims for _, dims, _ in parameters)]
    for outer in ([], ["expert"]) if "expert" in common else ([],):
        inner = ["hidden"] if ids.ndim - len(outer) == 2 else []
        own_common = [name for name in common if name not in outer + inner]
        for shared in [own_common[:n] for n in range(len(own_common) + 1)]:
            parts, names = [], []
            for _, dims, values in parameters:
                own = [name for name in dims if name not in outer + inner + shared]
                if any(name not in dims for name in inner):
                    return None
                names += [name for name in own if name not in names]
                turned = values.transpose([dims.index(name) for name in outer + shared + own + inner])
                sizes = [values.shape[dims.index(name)] for name in outer + shared]
                last = values.shape[dims.index(inner[0])] if inner else 1
                parts.append(turned.reshape(*sizes, -1, last))
            joined = np.concatenate(parts, axis=len(outer + shared))
            outside = joined.shape[:len(outer)]
            joined = joined.reshape(*outside, -1, *([joined.shape[-1]] if inner else []))
            axis = f"({' '.join([*shared, '|', *_ordered(names, parameters)])})"
            if joined.shape == ids.shape and (joined == ids).all():
                return " ".join([*outer, axis, *inner])
            if inner and joined.swapaxes(-1, -2).shape == ids.shape and (joined.swapaxes(-1, -2) == ids).all():
                return " ".join([*outer, *inner, axis])
    return None


def _ordered(names: list[str], parameters: list[tuple[str, list[str], np.ndarray]]) -> list[str]:
    """Returns the names in the order of the parameter that has most of them."""
    longest = max((dims for _, dims, _ in parameters), key=len)
    return sorted(names, key=lambda name: longest.index(name) if name in longest else len(longest))
