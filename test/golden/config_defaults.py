#!/usr/bin/env python3
"""Compares the defaults of `hf_config: sizes:` of each shipped model file with those of the installed transformers: a
config.json without the key means the same here and there. Usage: config_defaults.py [CONFIGS/models]."""
import math
import pathlib
import sys

import transformers
import yaml


def merged(base, over, parent=""):
    """Merges model files as compiler/import/yaml/base_config.cpp does."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    result = dict(base)
    for key, value in over.items():
        if key in base and value is None and key != "is" and parent != "parameters":
            del result[key]
        else:
            result[key] = merged(base.get(key), value, key)
    return result


def loaded(file):
    own = yaml.safe_load(file.read_text())
    bases = own.get("base_config", [])
    below = None
    for name in [bases] if isinstance(bases, str) else bases:
        base = loaded(file.parent / name)
        below = base if below is None else merged(below, base)
    return own if below is None else merged(below, own)


def number_of(text, config):
    """The value of a default or of an expression over keys; None if it is a name."""
    if text is None or isinstance(text, (bool, int, float)):
        return text
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return eval(text, {"sqrt": math.sqrt}, {key: value for key, value in config.items() if value is not None})
    except (NameError, SyntaxError):
        return text


def agree(ours, theirs):
    are_real = isinstance(ours, float) and isinstance(theirs, float)
    return math.isclose(ours, theirs) if are_real else ours == theirs


def defaults_of(config):
    """The keys of a default config.json; rope_theta lies where older files have it."""
    values = config.to_dict()
    rope = values.get("rope_parameters") or {}
    for part in (rope.get("full_attention", {}), rope):
        for key in ("rope_theta", "partial_rotary_factor"):
            if key in part and values.get(key) is None:
                values[key] = part[key]
    if values.get("rope_theta") is None and hasattr(config, "default_theta"):
        values["rope_theta"] = config.default_theta
    return values


def faults_of(model):
    rules, sizes = model["hf_config"], model["sizes"]
    types = rules["model_type"]
    theirs = defaults_of(transformers.AutoConfig.for_model(types if isinstance(types, str) else types[0]))
    for key, size in rules["sizes"].items():
        names = [name for name in [key, *([size["also"]] if isinstance(size.get("also"), str) else size.get("also", []))]
                 if name in theirs]
        if "." in key or "is" not in size or not names or isinstance(theirs[names[0]], list):
            continue
        theirs_value = theirs[names[0]]
        ours = size.get("default") if theirs_value is not None else size.get("unset", size.get("default"))
        if theirs_value is None and ours is None:
            continue
        if ours is None:
            ours = size.get("unset")
        if ours is None and not isinstance(sizes.get(size["is"], {}).get("default"), str):
            yield f"{key}: transformers has {theirs_value}, no default here"
        elif ours is not None and theirs_value is not None and not agree(number_of(ours, theirs), number_of(theirs_value, theirs)):
            yield f"{key}: transformers has {theirs_value}, default here {ours}"
    for key, form in rules.get("only", {}).items():
        value = theirs.get(key)
        wanted = form.get("is") if isinstance(form, dict) else form
        if key not in theirs or isinstance(wanted, list) or (isinstance(form, dict) and {"cycle", "each", "least"} & form.keys()):
            continue
        if value is not None and number_of(wanted, theirs) != value and not (isinstance(form, dict) and "missing" in form):
            yield f"only {key}: transformers has {value}, supported here {wanted}, and a missing key is taken for it"


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2] / "configs/models")
    failed = False
    for file in sorted(folder.glob("*.yaml")):
        model = loaded(file)
        for fault in faults_of(model) if "hf_config" in model else ():
            failed = True
            print(f"{file.name}: {fault}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
