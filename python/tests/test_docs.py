"""Runs the examples of docs/python.md as printed, one after the other."""
import pathlib
import re
import shutil

import pytest

import espalier as ep

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def test_examples(run_file, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(run_file, tmp_path / "tiny_gpt.yaml")
    shutil.copy(text, tmp_path / "text.txt")
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "python.md").read_text(), re.DOTALL)
    assert len(blocks) == 3
    exec(compile("\n".join(blocks), "python.md", "exec"), {})


@pytest.mark.parametrize("name", ep.__all__)
def test_public_names_have_docstrings(name):
    public = getattr(ep, name)
    assert public.__doc__ and not public.__doc__.startswith(f"{name}(")  # the default doc string of dataclasses
