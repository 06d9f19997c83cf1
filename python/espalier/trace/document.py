"""Reads parts of model files, and writes a model file as what differs from its parts."""
from __future__ import annotations

import pathlib
from typing import Any

import yaml


def load(file: pathlib.Path) -> dict[str, Any]:
    """Reads a part with its bases, as the compiler merges them."""
    own = yaml.safe_load(file.read_text())
    bases = own.pop("base_config", [])
    made: dict[str, Any] = {}
    for base in [bases] if isinstance(bases, str) else bases:
        made = merged(made, load(file.parent / base))
    return merged(made, own)


def merged(base: Any, own: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(own, dict):
        return own
    return {key: merged(base.get(key), own[key]) if key in own else base[key] for key in {**base, **own}}


def difference(base: Any, wanted: Any) -> Any:
    """Returns what to write over the base so that it becomes the wanted value; null takes an entry away."""
    made = {key: None for key in base if key not in wanted}
    for key, value in wanted.items():
        if key not in base:
            made[key] = value
        elif value != base[key]:
            is_map = isinstance(value, dict) and isinstance(base[key], dict)
            made[key] = difference(base[key], value) if is_map else value
    return made


def text_of(document: dict[str, Any], comment: str) -> str:
    """Returns the file as YAML in the form of the shipped model files."""
    flow = lambda value: yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False).replace(
        "\n...", "").strip()
    lines = [f"# {line}" for line in comment.splitlines()]

    def put(value: dict[str, Any], indent: int, deep: int) -> None:
        for key, item in value.items():
            name = flow(key)
            if isinstance(item, dict) and item and deep > 0:
                lines.append(f"{' ' * indent}{name}:")
                put(item, indent + 2, deep - 1)
            else:
                lines.append(f"{' ' * indent}{name}: {flow(item)}")

    for key, item in document.items():
        deep = {"weights": 2, "hf_config": 2, "parts": 3, "segments": 1, "sizes": 1, "dims": 1, "attributes": 1}.get(key, 0)
        lines += [""] * isinstance(item, dict)
        put({key: item}, 0, deep)
    return "\n".join(lines) + "\n"
