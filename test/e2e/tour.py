#!/usr/bin/env python3
"""Runs the commands of the README's tour, or of a page, as they are printed. Usage: tour.py SOURCE_DIR FOLDER [PAGE.md]

A command may fail only where an error is shown below it. What is shown below a command is what it prints, with `...` for
anything and any blanks or line breaks where words are parted. The README's runs on a GPU are left out, what it measures
on one is measured on the emulated device, and its tour ends where plans for other machines begin: those commands have
tests of their own."""
import pathlib
import re
import subprocess
import sys

source, folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
programs = ("espalier ", "test/")
if len(sys.argv) > 3:
    text = (source / sys.argv[3]).read_text()
    programs += ("python3 ", "ls ", "head ")
else:
    text = (source / "README.md").read_text().split("## A tour of ten minutes")[1].split("**Plan for machines")[0]
text = text.replace("\\\n", "")  # a command of two lines
folder.mkdir(parents=True)
for name in ("configs", "test", "tools"):
    (folder / name).symlink_to(source / name)
commands = 0
for block in text.split("```")[1::2]:
    for part in block.split("\n$ ")[:]:
        line, _, shown = part.strip().removeprefix("$ ").partition("\n")
        if not line.startswith(programs) or line.startswith("espalier run gpu.plan"):
            continue
        if line.startswith("espalier calibrate --target cuda"):
            line += " --device emulated"
        result = subprocess.run(["bash", "-c", line], cwd=folder, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, check=False)
        is_error = "error:" in shown or " needs " in shown
        if (result.returncode != 0) != is_error:
            sys.exit(f"$ {line}\n{result.stdout[-3000:]}\nended with {result.returncode}")
        pattern = ".*".join(r"\s+".join(map(re.escape, words.split())) for words in shown.split("..."))
        if not re.search(pattern, result.stdout, re.DOTALL):
            sys.exit(f"$ {line}\nthe page shows\n{shown}\nit prints\n{result.stdout[-3000:]}")
        commands += 1
print(f"{commands} commands do what is printed")
