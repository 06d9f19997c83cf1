"""Finds which key of config.json is which size: tiny copies are traced with one key changed, and what changes is said."""
from __future__ import annotations

import dataclasses
import math
import sys
from typing import Any, Iterator

from transformers.activations import ACT2FN

from .faults import NotUnderstood
from .tiny import INERT, Impossible, Source, Traced

ROPE = "rope_parameters"
_ACTIVATIONS = ("silu", "gelu", "relu", "gelu_pytorch_tanh")


@dataclasses.dataclass
class Seen:
    """A traced copy: its config's values, by path, its features, and the key that was changed."""
    values: dict[str, Any]
    features: dict[str, Any]
    key: str = ""


@dataclasses.dataclass
class Rule:
    """What a feature follows from. `key`: it is the key's value. `text`: an expression of keys. Neither: it is constant.
    `words`: value of a key of words -> the feature's value."""
    key: str = ""
    text: str = ""
    words: dict[str, Any] = dataclasses.field(default_factory=dict)


def flat(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values of a config by path; maps of rotary positions by their keys."""
    made = dict(values)
    stack = [(ROPE, values.get(ROPE))]
    while stack:
        path, value = stack.pop()
        if isinstance(value, dict):
            stack += [(f"{path}.{key}", item) for key, item in value.items()]
        made[path] = value
    return made


class Keys:
    def __init__(self, source: Source, layers: int):
        self.source = source
        self.fixed: dict[str, Any] = {source.key("num_hidden_layers"): layers}
        self.base = self._see(self.fixed)
        self.seen = [self.base]
        self.refused: set[str] = set()  # flags whose other value no size says
        self.effects: dict[str, set[str]] = {}  # key -> features that it changes; {"structure"}: the trace fails
        for key in self._keys():
            self._change(key)
        try:
            self.defaults = flat(source.kind().to_dict())
        except Exception:  # a class of the folder may need arguments
            self.defaults = {}

    def _see(self, changes: dict[str, Any]) -> Seen:
        traced = Traced(self.source, changes)
        return Seen(self.source.raw | self.source.small | changes | flat(traced.config.to_dict()), traced.features())

    def _keys(self) -> list[str]:
        keys = [key for key in {**self.source.values, **self.source.raw} if key not in INERT]
        values = self.source.values.get(ROPE)
        if isinstance(values, dict):
            nested = [f"{ROPE}.{name}" for name, value in values.items() if isinstance(value, dict)] or [ROPE]
            known = flat(self.source.values)
            keys += [f"{outer}.{key}" for outer in nested for key in ("rope_theta", "partial_rotary_factor")
                     if f"{outer}.{key}" in known]
        return [key for key in keys if not isinstance(self.source.given(key), dict)]

    def value(self, key: str) -> Any:
        """Returns the value in the tiny copy."""
        return self.base.values.get(key, self.source.given(key))

    def _tries(self, key: str) -> Iterator[Any]:
        """Yields other values of a key."""
        value = self.value(key)
        if isinstance(value, bool):
            yield not value
        elif isinstance(value, int):
            yield from (item for item in (value * 2, value + 1, value // 2, value - 1, value + 2) if item > 0)
        elif isinstance(value, float):
            yield from (value * 1.5, value * 0.5, value * 2) if value else (0.25, 2.0)
        elif isinstance(value, str) and value in ACT2FN:
            yield from (name for name in _ACTIVATIONS if name != value)
        elif value is None:
            yield from (3, 16, 0.25, True)

    def _change(self, key: str) -> None:
        """Traces copies with other values, until one differs from the base."""
        told: set[str] | None = None
        vain = 0
        for value in self._tries(key):
            try:
                seen = self._see(self.fixed | {key: value})
            except Impossible:
                continue
            except NotUnderstood:
                told = {"structure"} if told is None else told
                continue
            seen.values[key], seen.key = value, key
            changed = {name for name in {*seen.features, *self.base.features}
                       if seen.features.get(name) != self.base.features.get(name)}
            before, after = (each.features["initializer_range"] for each in (self.base, seen))
            if math.isclose(before, after, rel_tol=0.2):  # a sample's deviation
                changed.discard("initializer_range")
                seen.features["initializer_range"] = before
            if "order" in changed and key != self.source.key("num_hidden_layers"):
                changed = {"order"}
                seen.features = {"order": seen.features["order"]}
            if changed:
                self.effects[key] = changed
                self.seen.append(seen)
                return
            vain, told = vain + 1, (told or set()) - {"structure"}
            if vain == 2:
                break
        if told is not None:
            self.effects[key] = told

    # Rules --------------------------------------------------------------------------------------------------------

    def of(self, feature: str) -> list[str]:
        """Returns the keys that change a feature."""
        return [key for key, effect in self.effects.items() if feature in effect]

    def derived(self, key: str, default: Any) -> str:
        """Returns the expression of other keys that a missing key stands for; empty if it is a constant."""
        if "." in key:
            return ""
        try:
            config = flat(self.source.config_with(self.fixed | {key: ...}).to_dict())
        except Exception:
            return ""
        value = config.get(key)
        if value is None or value == default or isinstance(value, (str, list, dict)) or default is None:
            return ""
        hidden, heads = (self.source.key(name) for name in ("hidden_size", "num_attention_heads"))
        made = {f"{hidden} / {heads}": config[hidden] / config[heads], heads: config[heads], hidden: config[hidden],
                f"4 * {hidden}": 4 * config[hidden]}
        return next((text for text, number in made.items() if number == value), "")

    def without(self, key: str, size: str) -> Any:
        """Returns what null means for a key, as an expression of other keys."""
        try:
            seen = self._see(self.fixed | {key: None})
        except Exception:
            return None
        names = [name for name in seen.features if name.split(".")[-1] == size and name in self.base.features]
        if not names:
            return None
        value = seen.features[names[0]]
        hidden, heads = (self.source.key(name) for name in ("hidden_size", "num_attention_heads"))
        config = seen.values
        made = {f"{hidden} / {heads}": config[hidden] / config[heads], heads: config[heads],
                f"4 * {hidden}": 4 * config[hidden]}
        return next((text for text, number in made.items() if number == value and not isinstance(value, bool)), value)

    def rule(self, feature: str) -> Rule | None:
        """Returns what a feature follows from; None if that is not understood."""
        keys = [key for key in self.of(feature) if key not in self.refused]
        flags = [key for key in keys if isinstance(self.value(key), bool)]
        for left_out in ([], *([flag] for flag in flags), flags):
            kept = [key for key in keys if key not in left_out]
            rule = self._rule(kept, left_out, feature)
            if rule:
                self.refused.update(left_out)
                return rule
        return None

    def _rule(self, keys: list[str], left_out: list[str], feature: str) -> Rule | None:
        """Returns a rule that holds in all copies but those in which a flag was changed that the file then refuses."""
        if not keys:
            return Rule()
        seen = [each for each in self.seen if each.key not in left_out and each.key not in self.refused]
        for text, compute in self._candidates(keys, feature):
            if all(self._holds(feature, each, compute) for each in seen):
                return Rule(key=text) if text in keys else Rule(text=text)
        words = [key for key in keys if isinstance(self.value(key), str)]
        if len(words) == 1:
            return Rule(key=words[0], words={seen.values[words[0]]: seen.features[feature] for seen in self.seen
                                             if feature in seen.features})
        return None

    @staticmethod
    def _holds(feature: str, seen: Seen, compute: Any) -> bool:
        if feature not in seen.features:
            return True
        value = seen.features[feature]
        try:
            made = compute(seen.values)
        except (TypeError, ZeroDivisionError, ValueError, KeyError):
            return False
        if made is None:
            return True  # what null means is found by itself
        if feature == "initializer_range":
            return isinstance(made, float) and math.isclose(made, value, rel_tol=0.2)
        if isinstance(value, bool) or not isinstance(made, (int, float)):
            return value == made
        return isinstance(value, (int, float)) and math.isclose(made, value, rel_tol=1e-5, abs_tol=1e-12)

    def _candidates(self, keys: list[str], feature: str) -> Iterator[tuple[str, Any]]:
        value = self.base.features.get(feature)
        keys = sorted(keys, key=lambda key: (self.base.values.get(key) != value, "." in key))
        for a in keys:
            yield a, lambda v, a=a: v[a]
        for a in keys:
            yield f"1 - {a}", lambda v, a=a: not v[a] if isinstance(v[a], bool) else math.nan
            yield f"sqrt({a})", lambda v, a=a: math.sqrt(v[a])
            yield f"1 / {a}", lambda v, a=a: 1 / v[a]
            yield f"1 / sqrt({a})", lambda v, a=a: 1 / math.sqrt(v[a])
            for b in keys:
                if a != b:
                    yield f"{a} / {b}", lambda v, a=a, b=b: v[a] / v[b]
                    yield f"{a} * {b}", lambda v, a=a, b=b: v[a] * v[b]
                    yield f"sqrt({a} / {b})", lambda v, a=a, b=b: math.sqrt(v[a] / v[b])
            known = self.base.values.get(a)
            if isinstance(value, (int, float)) and isinstance(known, (int, float)) and known and not \
                    isinstance(known, bool):
                yield f"{value / known:.10g} * {a}", lambda v, a=a: value / known * v[a]


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
