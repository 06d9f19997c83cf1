#!/usr/bin/env python3
"""Counts the product files that features touch. Usage: width.py ROOT [--compile BUILD]

Each patch of this folder adds a made-up feature of one kind to the tree, and is never committed as code. A patch must
apply, and may touch at most as many product files as WIDTHS allows. With --compile, the patched sources are also
compiled, without code generation, against the patched headers and what TableGen and protoc make of the patched
declarations; this takes minutes.

Prints one line per patch, and exits with 1 if there is an error.
"""
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

# The kinds of features, and the largest number of product files that each may touch.
WIDTHS = {"attention_attribute": 12, "bucket_fact": 4, "optimizer": 6, "run_key": 5}
TABLES = {"ops.h.inc": "-gen-op-decls", "attrs.h.inc": "-gen-attrdef-decls", "enums.h.inc": "-gen-enum-decls"}


def touched(patch):
    """Returns the product files that a patch changes."""
    files = re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.MULTILINE)
    return [file for file in files if not file.startswith(("test/", "docs/"))]


def patched(root, patch, scratch):
    """Copies the files of a patch to `scratch` and applies the patch there. Returns the error, or an empty text."""
    for file in touched(patch):
        target = scratch / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if (root / file).exists():
            target.write_bytes((root / file).read_bytes())
    result = subprocess.run(["git", "apply", str(patch)], cwd=scratch, capture_output=True, text=True, check=False)
    return result.stderr


def generate(root, build, scratch, files):
    """Makes the generated headers of patched declarations in `scratch`. Returns the errors."""
    tablegen = re.search(r"(\S*mlir-tblgen)", (build / "build.ninja").read_text())[1]
    includes = ["-I", str(scratch), "-I", str(root), "-I", str(pathlib.Path(tablegen).parents[1] / "include")]
    jobs = []
    for dialect in {pathlib.PurePath(file).parts[1] for file in files if re.match(r"dialects/\w+/\w+\.td", file)}:
        source = next(place / f"dialects/{dialect}/ops.td" for place in (scratch, root)
                      if (place / f"dialects/{dialect}/ops.td").exists())
        for name, mode in TABLES.items():
            if not (build / "dialects" / dialect / name).exists():
                continue
            filters = [] if "enum" in mode else [f"-dialect={dialect}"]
            filters += [f"-attrdefs-dialect={dialect}"] if "attrdef" in mode else []
            target = scratch / "dialects" / dialect / name
            target.parent.mkdir(parents=True, exist_ok=True)
            jobs.append([tablegen, mode, *filters, *includes, str(source), "-o", str(target)])
    for file in files:
        if file.endswith(".proto"):
            jobs.append(["protoc", f"--cpp_out={scratch}", f"-I{scratch}", file])
    results = [subprocess.run(job, cwd=scratch, capture_output=True, text=True, check=False) for job in jobs]
    return "".join(result.stderr for result in results if result.returncode)


def syntax_command(command, scratch):
    """Returns the command that checks a source of `scratch` without its precompiled header."""
    kept, words = [], iter(command)
    for word in words:
        if word == "-Xclang":
            following = next(words)
            if following in ("-include-pch", "-include"):
                next(words), next(words)
            elif not following.startswith("-fno-pch"):
                kept += [word, following]
        elif word in ("-o", "-MT", "-MF"):
            next(words)
        elif word not in ("-c", "-MD", "-Winvalid-pch", "-fpch-instantiate-templates"):
            kept.append(word)
    compiler = next(i for i, word in enumerate(kept) if word.endswith(("clang++-19", "clang++", "g++", "c++")))
    return [kept[compiler], f"-I{scratch}", *kept[compiler + 1:-1], "-fsyntax-only"]


def compiled(root, build, scratch, files):
    """Checks the patched sources. Returns the errors."""
    entries = json.loads((build / "compile_commands.json").read_text())
    commands = {str(pathlib.Path(entry["file"]).relative_to(root)): shlex.split(entry["command"])
                for entry in entries if entry["file"].startswith(f"{root}/") and "/build/" not in entry["file"]}
    errors = generate(root, build, scratch, files)
    for file in files:
        if file in commands and not errors:
            command = [*syntax_command(commands[file], scratch), str(scratch / file)]
            result = subprocess.run(command, cwd=build, capture_output=True, text=True, check=False)
            errors += result.stderr if result.returncode else ""
    return errors


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    build = pathlib.Path(sys.argv[3]).resolve() if sys.argv[2:3] == ["--compile"] else None
    failed = False
    for kind, most in WIDTHS.items():
        patch = pathlib.Path(__file__).resolve().parent / f"{kind}.patch"
        files = touched(patch)
        with tempfile.TemporaryDirectory() as scratch:
            errors = patched(root, patch, pathlib.Path(scratch))
            if not errors and build:
                errors = compiled(root, build, pathlib.Path(scratch), files)
        if len(files) > most:
            errors += f"{kind}: touches more than {most} product files\n"
        print(f"{kind}: {len(files)} product files, at most {most}{': error' if errors else ''}")
        sys.stderr.write(errors)
        failed |= bool(errors)
    return 1 if failed else 0


sys.exit(main())
