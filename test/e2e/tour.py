#!/usr/bin/env python3
"""Runs the commands of docs/tour.md, or of another page, as printed. Usage: tour.py SOURCE_DIR FOLDER [PAGE.md]

A command may fail only if the page shows an error below it. The text below a command is its expected output, in which
`...` matches anything and words may be separated by any blanks or line breaks. A run on a GPU is left out, and the
calibration of a GPU uses the emulated device. A block of YAML or Python whose first line is a comment with a path is
written to this file."""
import pathlib
import re
import subprocess
import sys

# Any number matches a measured number, and any level matches an instruction set. Losses and norms must agree in two
# decimals. The patterns are applied to escaped text, in which a blank is \s+ and a dot is escaped.
NUMBER = r"\d(?:\d|\\\.)*"
MEASURED = ((r"(?:" + NUMBER + r"\\s\+(?:s|min|h)\\s\+)+left", r"(?:\\d+\\s+(?:s|min|h|d)\\s+)+left"),
            (NUMBER + r"(?=\\s\+(?:ms|tokens/s|GB/s|s\b|KiB))", r"[\\d.]+"),
            (r"mfu\\s\+" + NUMBER + r"\\s\+%", r"(mfu\\s+[\\d.]+\\s+%)?"),
            (r"(loss|norm)(\\s\+\d+\\\.\d\d)\d*", r"\1\2\\d*"),
            (r"x86\\-64\\-v\d", r"x86-64(-v\\d)?"),
            (r"[0-9a-f]{64}", "[0-9a-f]{64}"))


def pattern_of(shown):
    """Returns the pattern of the output for which a page shows `shown`."""
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
    text = (source / "docs/tour.md").read_text()
text = text.replace("\\\n", "")  # joins a command with its continuation line
folder.mkdir(parents=True)
for name in ("configs", "docs", "test", "tools"):
    (folder / name).symlink_to(source / name)
commands = 0
for block in text.split("```")[1::2]:
    if file := re.match(r"(?:yaml|python)\n# (\S+\.\w+)\n", block):
        (folder / file[1]).parent.mkdir(parents=True, exist_ok=True)
        (folder / file[1]).write_text(block[file.end():])
    for part in block.split("\n$ ")[:]:
        line, _, shown = part.strip().removeprefix("$ ").partition("\n")
        if not line.startswith(programs) or line.startswith("espalier run gpu.plan"):
            continue
        if line.startswith("espalier calibrate --target cuda"):
            line += " --device emulated"
        result = subprocess.run(["bash", "-c", line], cwd=folder, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, check=False)
        is_error = any(words in shown for words in ("error:", " needs ", " does not hold"))
        if (result.returncode != 0) != is_error:
            sys.exit(f"$ {line}\n{result.stdout[-3000:]}\nended with {result.returncode}")
        if not re.search(pattern_of(shown), result.stdout, re.DOTALL):
            sys.exit(f"$ {line}\nthe page shows\n{shown}\nit prints\n{result.stdout[-3000:]}")
        commands += 1
print(f"{commands} commands do what is printed")
