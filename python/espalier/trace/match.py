"""Rewrites a recorded graph as ops of Espalier.

Each matcher looks at a region: the calls between a value and the one value that it depends on. The region is run again
with chosen inputs, and its answers say which op it is and with which numbers. Views, transposes, slices and copies are
followed by index: the region is run on the numbers of its elements, so any order of writing them is understood.
"""
from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, Iterator

import numpy as np
import torch

from .faults import NotUnderstood
from .record import Node, Recorder, replay

MOVES = {"view", "reshape", "transpose", "t", "T", "mT", "permute", "getitem", "item", "chunk", "split",
         "split_with_sizes", "unbind", "select", "narrow", "squeeze", "unsqueeze", "flatten", "unflatten", "expand",
         "expand_as", "repeat", "repeat_interleave", "contiguous", "clone", "to", "detach", "movedim", "moveaxis",
         "index_select", "data", "cat", "stack", "tensor_split", "dropout", "broadcast_to", "roll", "flip", "hstack",
         "swapdims", "requires_grad", "concatenate", "ravel"}
EACH = {"to", "pow", "square", "rsqrt", "sqrt", "reciprocal", "add", "sub", "rsub", "mul", "div", "rdiv", "rpow", "neg",
        "abs", "tanh", "sigmoid", "exp", "log", "erf", "relu", "gelu", "silu", "relu6", "softplus", "logsigmoid",
        "clamp", "clamp_min", "clamp_max", "minimum", "maximum", "where", "square", "dropout", "contiguous", "clone",
        "detach", "hardtanh", "leaky_relu", "elu", "selu", "mish", "expm1", "log1p", "threshold", "masked_fill"}
ROWS = EACH | {"mean", "sum", "var", "std", "norm", "vector_norm", "layer_norm", "rms_norm", "normalize", "var_mean",
               "item"}


@dataclasses.dataclass(eq=False, repr=False)
class Op:
    """An op on [batch, seq, size]. `params` are arrays of the numbers of parameter elements, `attrs` its attributes."""
    kind: str
    inputs: list["Op"]
    size: int
    where: str
    attrs: dict[str, Any] = dataclasses.field(default_factory=dict)
    params: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        told = {key: value for key, value in self.attrs.items() if not isinstance(value, np.ndarray)}
        return f"{self.kind}[{self.size}] {told} {({key: value.shape for key, value in self.params.items()})}"

    def fault(self, text: str) -> NotUnderstood:
        return NotUnderstood(f"{self.where}: {text}")


@dataclasses.dataclass(eq=False, repr=False)
class Placed:
    """The elements of a recorded tensor as elements of an op's value: `index` has the shape of the tensor."""
    op: Op
    index: np.ndarray


def rows_like(value: torch.Tensor) -> torch.Tensor:
    return torch.arange(value.numel(), dtype=torch.float64).reshape(value.shape)


def as_index(value: torch.Tensor) -> np.ndarray:
    return value.detach().to(torch.float64).numpy().astype(np.int64)


def near(a: Any, b: Any, tolerance: float = 1e-9) -> bool:
    a, b = torch.as_tensor(a), torch.as_tensor(b)
    return bool(((a - b).abs() <= tolerance * (1 + b.abs())).all())


def regions(y: Node, ok: set[str]) -> Iterator[tuple[Node, set[Node], list[Node]]]:
    """Yields (entry, calls, parameters) of regions that end in y and have one entry, the nearest first."""
    frontier, inside, params = {y}, set(), []
    while frontier:
        last = max(frontier, key=lambda node: node.number)
        if last.op not in ok:
            return
        frontier.remove(last)
        inside.add(last)
        frontier.update(item for item in last.inputs if item.kind == "act")
        params += [leaf for item in last.inputs if item.kind == "param" for leaf in leaves_of(item)]
        if len(frontier) == 1 and isinstance(next(iter(frontier)).value, torch.Tensor):
            yield next(iter(frontier)), set(inside), list(dict.fromkeys(params))


def leaves_of(node: Node) -> list[Node]:
    """Returns the parameters from which a value follows."""
    if node.op == "leaf":
        return [node] if node.kind == "param" else []
    return [leaf for item in node.inputs if item.kind == "param" for leaf in leaves_of(item)]


class Matcher:
    """Lifts nodes of one recording to ops. `batch` and `seq` are the shape of the tokens."""

    def __init__(self, recorder: Recorder):
        self.recorder = recorder
        self.batch, self.seq = recorder.tokens.shape
        self.first: dict[str, int] = {}  # of the elements of each parameter
        at = 0
        for name, node in recorder.parameters.items():
            self.first[name] = at
            at += node.value.numel()
        self.placed: dict[Node, Placed | NotUnderstood] = {}
        self.bases: dict[Node, Node] = {}
        self.selected: dict[tuple[Op, bytes], Op] = {}
        self.matchers: list[Callable[[Node], Placed | None]] = [
            self.embedding, self.linear, self.attention, self.norm, self.rope, self.unary, self.binary, self.experts]

    # Values -------------------------------------------------------------------------------------------------------

    def lift(self, node: Node) -> Placed:
        """Returns the op that a value comes from, and where its elements are. Raises NotUnderstood."""
        base = self.base_of(node)
        found = self.placed.get(base)
        if found is None:
            try:
                found = self.match(base)
            except NotUnderstood as fault:
                found = fault
            self.placed[base] = found
        if isinstance(found, NotUnderstood):
            raise found
        if base is node:
            return found
        moved = as_index(replay([node], {base: rows_like(base.value)})[0])
        return Placed(found.op, found.index.reshape(-1)[moved])

    def base_of(self, node: Node) -> Node:
        """Follows movements of data to the value that is moved."""
        if node not in self.bases:
            found = {self.base_of(item) for item in node.inputs if item.kind == "act"} if self.moves(node) else set()
            self.bases[node] = found.pop() if len(found) == 1 else node
        return self.bases[node]

    @staticmethod
    def moves(node: Node) -> bool:
        sources = [item for item in node.inputs if item.kind != "const"] if node.op in MOVES else []
        picks = node.op in ("getitem", "index_select") and len(sources) > 1  # chosen by values
        return bool(sources) and not picks and all(item.kind == "act" for item in sources)

    def match(self, node: Node) -> Placed:
        fault = None
        for matcher in self.matchers:
            try:
                found = matcher(node)
            except NotUnderstood as problem:
                fault = fault or problem
                continue
            except (RuntimeError, ValueError, IndexError, TypeError, AttributeError) as problem:
                fault = fault or node.fault(f"`{node.op}` is not understood ({problem})")
                continue
            if found is not None:
                return found
        raise fault or node.fault(f"`{node.op}` is not understood")

    def grid(self, size: int) -> np.ndarray:
        return np.arange(self.batch * self.seq * size).reshape(self.batch, self.seq, size)

    def ids(self, node: Node) -> np.ndarray:
        """Returns the numbers of the parameter elements that a value is, in its shape."""
        at, stack = [], [node]
        while stack:
            item = stack.pop()
            if item.op == "leaf":
                at.append(item)
            elif item.op in MOVES:
                stack += [each for each in item.inputs if each.kind == "param"]
            else:
                raise item.fault(f"`{item.op}` of parameters is not understood")
        numbers = {leaf: rows_like(leaf.value) + self.first[leaf.name] for leaf in at}
        return as_index(replay([node], numbers)[0])

    def rows(self, placed: Placed) -> tuple[np.ndarray, tuple[int, ...], np.ndarray]:
        """Splits the index into batch, position and column. Returns the columns [n] of the op that each token has, the
        tensor's shape without batch and sequence, and for each element its place in [batch, seq, n]."""
        index, size = placed.index, placed.op.size
        token = index // size
        order = np.argsort(token.reshape(-1), kind="stable")
        each = index.size // (self.batch * self.seq)
        columns = (index % size).reshape(-1)[order].reshape(-1, each)
        tokens = token.reshape(-1)[order].reshape(-1, each)
        whole = len(columns) == self.batch * self.seq and (tokens == np.arange(len(tokens))[:, None]).all()
        if not whole or (columns != columns[0]).any():
            raise placed.op.fault("tokens are mixed outside attention")
        place = np.empty(index.size, np.int64)
        place[order] = np.arange(index.size)
        varies = [bool((np.take(token, 0, axis)[None] != np.moveaxis(token, axis, 0)).any()) for axis in
                  range(index.ndim)]
        rest = tuple(length for length, is_token in zip(index.shape, varies) if not is_token)
        return columns[0], rest, place.reshape(index.shape)

    def whole(self, placed: Placed) -> tuple[Op, np.ndarray]:
        """Returns an op with exactly the columns of the tensor, in its order, and the place of each element."""
        columns, _, place = self.rows(placed)
        return self.select(placed.op, columns), place

    def select(self, op: Op, columns: np.ndarray) -> Op:
        """Returns the op with these columns only: products keep rows of weights, other ops hand the choice on."""
        if len(columns) == op.size and (columns == np.arange(op.size)).all():
            return op
        key = (op, columns.tobytes())
        if key not in self.selected:
            self.selected[key] = self._select(op, columns)
        return self.selected[key]

    def _select(self, op: Op, columns: np.ndarray) -> Op:
        picked = {name: ids[..., columns] if ids.shape[-1] == op.size else ids for name, ids in op.params.items()}
        if op.kind in ("linear", "embed"):
            return Op(op.kind, op.inputs, len(columns), op.where, op.attrs, picked)
        width = op.attrs.get("width", 1)
        blocks = columns.reshape(-1, width) if len(columns) % width == 0 else columns[:, None]
        if op.kind in ("add", "mul", "norm", "rope", "unary") and (blocks == blocks[:, :1] + np.arange(width)).all() and \
                (blocks[:, 0] % width == 0).all():
            return Op(op.kind, [self.select(item, columns) for item in op.inputs], len(columns), op.where, op.attrs,
                      picked)
        raise op.fault(f"a part of the values of this {op.kind} is used by itself")

    # Matchers -----------------------------------------------------------------------------------------------------

    def embedding(self, node: Node) -> Placed | None:
        if node.op != "embedding":
            return None
        ids, table = (node.args + tuple(node.kwargs.values()))[:2]
        if ids.kind != "act" or self.base_of(ids) is not self.recorder.tokens:
            raise node.fault("a table is read by other numbers than the tokens")
        op = Op("embed", [], node.shape[-1], node.where, {}, {"table": self.ids(table)})
        return Placed(op, self.grid(op.size).reshape(node.shape))

    def linear(self, node: Node) -> Placed | None:
        """A product with a weight: linear, matmul, mm, bmm without experts, addmm."""
        named = dict(zip(("bias", "x", "w") if node.op == "addmm" else ("x", "w", "bias"), node.args)) | node.kwargs
        x, weight, bias = (named.get(key) for key in ("x", "w", "bias"))
        x, weight = x or named.get("input"), weight or named.get("weight") or named.get("other")
        if node.op not in ("linear", "matmul", "mm", "addmm") or weight.kind != "param":
            return None
        ids = self.ids(weight)
        if node.op == "linear":
            ids = ids.T
        source, place = self.whole(self.lift(x))
        if ids.ndim != 2 or source.size != ids.shape[0]:
            raise node.fault("a product that is not one matrix on each token")
        op = Op("linear", [source], ids.shape[1], node.where, {}, {"weight": ids})
        if bias is not None:
            op.params["bias"] = self.ids(bias)
        token = place.reshape(-1, source.size)[:, 0] // source.size
        return Placed(op, (token[:, None] * op.size + np.arange(op.size)).reshape(node.shape))

    def binary(self, node: Node) -> Placed | None:
        """The sum or product of two values, or of a value and a parameter."""
        if node.op not in ("add", "mul", "sub"):
            return None
        sources = [item for item in node.inputs if item.kind != "const"]
        if len(sources) != 2 or node.kwargs.get("alpha", 1) != 1 or node.op == "sub":
            raise node.fault(f"`{node.op}` is not understood")
        acts = [item for item in sources if item.kind == "act"]
        if len(acts) == 1:
            return self.with_parameter(node, acts[0], next(item for item in sources if item.kind == "param"))
        placed = [self.lift(item) for item in acts]
        (a, at), (b, at_b) = (self.whole(item) for item in placed)
        if b.size > a.size:
            a, at, b, at_b = b, at_b, a, at
        if a.size == b.size and at.shape == at_b.shape and (at == at_b).all():
            return Placed(Op(node.op, [a, b], a.size, node.where), at)
        if b.size == 1 and (np.broadcast_to(at_b, at.shape) == at // a.size).all():
            return Placed(Op(node.op, [a, b], a.size, node.where), at)
        raise node.fault(f"`{node.op}` of values of different layouts")

    def with_parameter(self, node: Node, value: Node, parameter: Node) -> Placed:
        op, place = self.whole(self.lift(value))
        below = parameter
        while below.op in MOVES - {"getitem"} and below.inputs:
            below = below.inputs[0]
        if below.op in ("embedding", "getitem") and node.op == "add" and place.shape == node.shape:
            return self.positions(node, op, place, parameter)
        ids = np.broadcast_to(self.ids(parameter), node.shape)
        if place.shape != node.shape:
            raise node.fault(f"`{node.op}` of a parameter of another shape")
        of = np.empty((self.batch * self.seq, op.size), np.int64)
        of.reshape(-1)[place.reshape(-1)] = ids.reshape(-1)
        if (of != of[0]).any():
            raise node.fault(f"`{node.op}` of a parameter that differs between tokens")
        if node.op == "add" and op.kind == "linear" and "bias" not in op.params:
            op = Op("linear", op.inputs, op.size, op.where, op.attrs, op.params | {"bias": of[0]})
            return Placed(op, place)
        return Placed(Op(node.op, [op], op.size, node.where, {}, {"weight": of[0]}), place)

    def positions(self, node: Node, op: Op, place: np.ndarray, parameter: Node) -> Placed:
        """A table of positions: row t + offset is added to token t."""
        table = leaves_of(parameter)
        rows = as_index(replay([parameter], {table[0]: rows_like(table[0].value)})[0])
        rows = np.broadcast_to(rows, node.shape)[0]
        width = table[0].shape[-1]
        offset = int(rows[0, 0]) // width
        if len(table) != 1 or (rows != ((np.arange(self.seq) + offset) * width)[:, None] + np.arange(width)).any():
            raise node.fault("a parameter that differs between tokens and is no table of positions")
        ids = self.ids(table[0])
        return Placed(Op("positions", [op], op.size, node.where, {"offset": offset}, {"table": ids}), place)

    def norm(self, node: Node) -> Placed | None:
        from .functions import norm_of
        best = None
        for entry, inside, params in regions(node, ROWS):
            if entry.shape != node.shape or not any(item.op in ROWS - EACH for item in inside):
                continue
            found = norm_of(lambda x: replay([node], {entry: x})[0], entry.shape, params)
            if found and (best is None or (found.kind == "layer" and best[1].kind != "layer")):
                best = (entry, found)
        if best is None:
            return None
        entry, found = best
        source, place = self.whole(self.lift(entry))
        op = Op("norm", [source], source.size, node.where,
                {"kind": found.kind, "epsilon": found.epsilon, "offset": found.offset, "width": node.shape[-1]})
        self.check_last(node, place, node.shape[-1])
        for role, leaf in (("weight", found.weight), ("bias", found.bias)):
            if leaf is not None:
                op.params[role] = (rows_like(leaf.value).numpy().astype(np.int64) + self.first[leaf.name]).reshape(-1)
        return Placed(op, place)

    @staticmethod
    def check_last(node: Node, place: np.ndarray, width: int) -> None:
        if (place.reshape(-1, width) != place.reshape(-1, width)[:, :1] + np.arange(width)).any():
            raise node.fault("an op over a dimension that is not the last one of each token")

    def rope(self, node: Node) -> Placed | None:
        from .functions import rotation_of
        kinds = EACH | MOVES | {"view_as_complex", "view_as_real", "complex", "real", "imag"}
        for entry, inside, params in regions(node, kinds):
            if params or entry.shape != node.shape or not any(item.op in ("cat", "stack", "view_as_real", "setitem")
                                                              for item in inside):
                continue
            placed = self.lift(entry)
            op, place = self.whole(placed)
            token = place // op.size % self.seq
            found = rotation_of(lambda x: replay([node], {entry: x})[0], entry.shape, token)
            if found is None:
                continue
            width = node.shape[-1]
            self.check_last(node, place, width)
            return Placed(Op("rope", [op], op.size, node.where, found | {"width": width}), place)
        return None

    def unary(self, node: Node) -> Placed | None:
        from .functions import function_of
        if node.op not in EACH:
            return None
        found = None
        for entry, _, params in regions(node, EACH):
            if params or entry.shape != node.shape:
                continue
            attrs = function_of(lambda x: replay([node], {entry: x})[0], entry.shape)
            found = (entry, attrs) if attrs else found
        if found is None:
            return None
        entry, attrs = found
        if attrs["name"] == "scale" and attrs["value"] == 1:
            return self.lift(entry)
        op, place = self.whole(self.lift(entry))
        return Placed(Op("unary", [op], op.size, node.where, attrs), place)

    def attention(self, node: Node) -> Placed | None:
        from .attention import match_attention
        return match_attention(self, node)

    def experts(self, node: Node) -> Placed | None:
        from .experts import match_experts
        return match_experts(self, node)
