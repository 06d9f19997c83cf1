#!/usr/bin/env python3
"""Runs the commands of docs/tour.md, or of another page, as they are printed. Usage: tour.py SOURCE_DIR FOLDER [PAGE.md]

A command may fail only where an error is shown below it. What is shown below a command is what it prints, with `...` for
anything and any blanks or line breaks where words are parted. The tour's runs on a GPU are left out, its calibration
of one uses the emulated device, and its test ends where plans for other machines begin: those commands have tests of
their own."""
import pathlib
import re
import subprocess
import sys

# Any number matches a measured number, and any level matches an instruction set. Losses and norms agree in two decimals.
# The patterns apply to escaped text, in which blanks are \s+ and a dot is escaped.
NUMBER = r"\d(?:\d|\\\.)*"
MEASURED = ((r"(?:" + NUMBER + r"\\s\+(?:s|min|h)\\s\+)+left", r"(?:\\d+\\s+(?:s|min|h|d)\\s+)+left"),
            (NUMBER + r"(?=\\s\+(?:ms|tokens/s|s\b|KiB))", r"[\\d.]+"),
            (r"mfu\\s\+" + NUMBER + r"\\s\+%", r"(mfu\\s+[\\d.]+\\s+%)?"),
            (r"(loss|norm)(\\s\+\d+\\\.\d\d)\d*", r"\1\2\\d*"),
            (r"x86\\-64\\-v\d", r"x86-64(-v\\d)?"),
            (r"[0-9a-f]{64}", "[0-9a-f]{64}"))


def pattern_of(shown):
    """What a command prints where a page shows `shown`."""
    pattern = ".*".join(r"\s+".join(map(re.escape, words.split())) for words in shown.split("..."))
    for one, other in MEASURED:
        pattern = re.sub(one, other, pattern)
    return pattern



source, folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
programs = ("espalier ", "test/")
if len(sys.argv) > 3:
    text = (source / sys.argv[3]).read_text()
    programs += ("python3 ", "ls ", "head ")
else:
    text = (source / "docs/tour.md").read_text().split("**Plan for machines")[0]
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
        if not re.search(pattern_of(shown), result.stdout, re.DOTALL):
            sys.exit(f"$ {line}\nthe page shows\n{shown}\nit prints\n{result.stdout[-3000:]}")
        commands += 1
print(f"{commands} commands do what is printed")
