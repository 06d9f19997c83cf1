"""Records the calls of torch in one run of a model, as a graph that can be run again with other values.

A mode of torch's function overrides sees each call as the model writes it, on real tensors. torch.export and
torch.fx follow data-dependent Python, such as the loop over the experts that were chosen, only with rewrites by hand;
a recording follows every model that runs. All arithmetic is in float64, so that a hypothesis about a region of the
graph either holds to many digits or not at all.
"""
from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any, Callable, Iterator

import torch
from torch.overrides import TorchFunctionMode

from .faults import NotUnderstood

_SPELLINGS = {
    "multiply": "mul", "rmul": "mul", "imul": "mul", "radd": "add", "iadd": "add", "subtract": "sub", "isub": "sub",
    "truediv": "div", "divide": "div", "itruediv": "div", "true_divide": "div", "rtruediv": "rdiv", "pow": "pow",
    "negative": "neg", "double": "to", "float": "to", "type_as": "to", "type": "to", "concat": "cat", "permute": "permute",
    "matmul": "matmul", "rmatmul": "matmul", "clip": "clamp", "view_as": "view", "reshape_as": "reshape",
    "contiguous": "contiguous", "swapaxes": "transpose", "getitem": "getitem",
}
_TORCH = os.path.dirname(torch.__file__)
_HERE = os.path.dirname(__file__)


@dataclasses.dataclass(eq=False, repr=False)
class Node:
    """A call of torch, or a leaf: a parameter (`name`), the tokens, or a tensor that was there before."""
    number: int
    op: str
    call: Callable[..., Any] | None
    args: Any
    kwargs: Any
    value: Any
    kind: str  # "act": depends on the tokens; "param": on parameters alone; "const": on neither
    where: str
    name: str = ""

    @property
    def inputs(self) -> list[Node]:
        return [item for item in _leaves((self.args, self.kwargs)) if isinstance(item, Node)]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    def fault(self, text: str) -> NotUnderstood:
        return NotUnderstood(f"{self.where}: {text}")


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        yield from _leaves(list(value.values()))
    elif isinstance(value, slice):
        yield from _leaves((value.start, value.stop, value.step))
    else:
        yield value


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Returns nested tuples, lists, dicts and slices with each leaf changed."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return tuple(mapped(item, change) for item in value)
    if isinstance(value, (tuple, list)):
        return type(value)([mapped(item, change) for item in value]) if type(value) in (tuple, list) else \
            tuple(mapped(item, change) for item in value)
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(mapped(item, change) for item in (value.start, value.stop, value.step)))
    return change(value)


def _where() -> str:
    frame = sys._getframe(2)
    while frame and (frame.f_code.co_filename.startswith((_TORCH, _HERE)) or "<" in frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "?"


def exact(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Returns arguments that ask for float64 where they asked for other floating types."""
    types = (torch.float32, torch.float16, torch.bfloat16)
    return mapped((args, kwargs or {}), lambda item: torch.float64 if item in types else item)


def exact_call(func: Callable[..., Any]) -> Callable[..., Any]:
    return torch.Tensor.double if func.__name__ in ("float", "half", "bfloat16") else func


class Exact(TorchFunctionMode):
    """While active, a model in float64 computes all in float64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        args, kwargs = exact(args, kwargs)
        return exact_call(func)(*args, **kwargs)


class Recorder(TorchFunctionMode):
    """While active, records calls. `nodes` is in the order of the calls."""

    def __init__(self, model: torch.nn.Module, tokens: torch.Tensor):
        super().__init__()
        self.nodes: list[Node] = []
        self._of: dict[int, tuple[Any, Node]] = {}  # keeps the tensors, so that ids stay theirs
        self.parameters = {name: self._leaf(value, "param", name) for name, value in model.named_parameters()}
        for name, value in model.named_buffers():
            kind = "param" if name in model.state_dict() else "const"
            node = self._leaf(value, kind, name)
            if kind == "param":
                self.parameters[name] = node
        self.tokens = self._leaf(tokens, "act", "tokens")
        self.dropouts: list[tuple[Node, float]] = []  # (input, rate) of those that are not 0

    def _without_dropout(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Notes a dropout's rate, and returns arguments that keep every value."""
        given = dict(zip(("input", "p", "training"), args)) | kwargs
        rate = given.get("p", 0.5)
        if given.get("training", True) and rate:
            self.dropouts.append((self.node_of(given["input"]), rate))
        return (given["input"],), {"p": 0.0, "training": False}

    def _leaf(self, value: torch.Tensor, kind: str, name: str) -> Node:
        node = Node(len(self.nodes), "leaf", None, (), {}, value.detach().clone(), kind, "?", name)
        self.nodes.append(node)
        self._of[id(value)] = (value, node)
        return node

    def node_of(self, value: torch.Tensor) -> Node:
        found = self._of.get(id(value))
        return found[1] if found else self._leaf(value, "const", "")

    def __torch_function__(self, func, types, args=(), kwargs=None):
        args, kwargs = exact(args, kwargs)
        func = exact_call(func)
        name = func.__self__.__name__ if func.__name__ == "__get__" else func.__name__
        if name.startswith("dropout") and name != "dropout_":
            args, kwargs = self._without_dropout(args, kwargs)
        refer = lambda item: self.node_of(item) if isinstance(item, torch.Tensor) else item
        refs = mapped((args, kwargs), refer)  # before the call, which may change tensors in place
        out = func(*args, **kwargs)
        result = args[0] if name == "__setitem__" else out
        if not any(isinstance(item, torch.Tensor) for item in _leaves(result)):
            return out
        plain = name.strip("_")
        kinds = {item.kind for item in _leaves(refs) if isinstance(item, Node)}
        kind = next((kind for kind in ("act", "param") if kind in kinds), "const")
        copied = mapped(result, lambda item: item.detach().clone() if isinstance(item, torch.Tensor) else item)
        node = Node(len(self.nodes), _SPELLINGS.get(plain, plain), func, *refs, copied, kind, _where())
        self.nodes.append(node)
        if isinstance(result, torch.Tensor):
            self._of[id(result)] = (result, node)
        else:
            for i, item in enumerate(result):
                part = Node(len(self.nodes), "item", lambda whole, at: whole[at], (node, i), {}, copied[i], kind,
                            node.where)
                self.nodes.append(part)
                self._of[id(item)] = (item, part)
        return out


def record(model: torch.nn.Module, tokens: torch.Tensor) -> tuple[Recorder, Node]:
    """Runs the model on the tokens. Returns the recorder and the node of the logits."""
    with torch.no_grad(), Recorder(model, tokens) as recorder:
        logits = model(input_ids=tokens, use_cache=False).logits
    return recorder, recorder.node_of(logits)


def replay(targets: list[Node], given: dict[Node, torch.Tensor]) -> list[Any]:
    """Computes the targets with other values of some nodes. What does not depend on them keeps its recorded value."""
    values: dict[Node, Any] = dict(given)
    first = min(node.number for node in given)

    def value_of(node: Node) -> Any:
        if node in values:
            return values[node]
        changed = node.number > first and any(value_of(item) is not item.value for item in node.inputs)
        if not changed:
            values[node] = node.value
            return node.value
        args, kwargs = mapped((node.args, node.kwargs), lambda x: value_of(x) if isinstance(x, Node) else x)
        if node.op == "setitem":
            values[node] = args[0].clone()
            values[node][args[1]] = args[2]
            return values[node]
        if node.op != "item" and node.args and isinstance(node.args[0], Node):
            args = (args[0].clone(), *args[1:])  # the call may be in place
        values[node] = node.call(*args, **kwargs)
        return values[node]

    sys.setrecursionlimit(max(20000, sys.getrecursionlimit()))
    with torch.no_grad():
        return [value_of(target) for target in targets]
