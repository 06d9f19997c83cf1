#!/usr/bin/env python3
"""Checks the house rules. Usage: conventions.py ROOT

Prints one line `FILE:LINE: error: ...` per violation and exits with 1 if there is any. Checks the files that git
tracks, or all files if ROOT is not a repository. Each rule is a generator of (file, line, message).
"""
import pathlib
import re
import shutil
import subprocess
import sys

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 100
MAX_CLASS_LINES = 250
# The rooms that each room may include and link. format and messages are the border between compiler and runtime.
ALLOWED = {
    "messages": (),
    "format": ("messages",),
    "dialects": ("format", "messages"),
    "planner": ("format", "messages"),
    "runtime": ("format", "messages"),
    "compiler": ("dialects", "planner", "format", "messages"),
    "tools": ("compiler", "dialects", "planner", "runtime", "format", "messages"),
    "c_interface": ("runtime", "format", "messages"),
}
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]')


class Tree:
    """The files of the project."""

    def __init__(self, root):
        self.root = root
        listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, check=False)
        if (root / ".git").exists() and listed.returncode == 0:
            names = listed.stdout.decode().split("\0")
        else:
            names = [str(p.relative_to(root)) for p in root.rglob("*") if not p.is_relative_to(root / "build")]
        self.files = sorted(n for n in names if n and (root / n).is_file())

    def named(self, *suffixes, under=""):
        return [f for f in self.files if f.endswith(suffixes) and f.startswith(under)]

    def lines(self, file):
        return (self.root / file).read_text(errors="replace").splitlines()

    def text(self, file):
        return (self.root / file).read_text(errors="replace")


def include_direction(tree):
    """Checks that a room includes only the rooms of ALLOWED."""
    for file in tree.named(".cpp", ".h"):
        room = file.split("/")[0]
        if room not in ALLOWED:
            continue
        for number, line in enumerate(tree.lines(file), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            target = match[1]
            other = target.split("/")[0]
            if other in ALLOWED and other not in (room, *ALLOWED[room]):
                yield file, number, f"{room} must not include {target}"
            if other in ("mlir", "llvm", "mlir-c", "llvm-c") and room in ("format", "messages", "runtime", "planner"):
                yield file, number, f"{room} must not include {target}: it runs where no LLVM is installed"
            if other == "yaml-cpp" and not file.startswith("compiler/import/"):
                yield file, number, f"only compiler/import reads YAML, not {file}"


def folder_cycles(tree):
    """Checks that the folders of a room do not include each other, directly or through others. A folder may include the
    folders around it and below it."""
    edges = {}  # folder -> included folder -> the first (file, line)
    for file in tree.named(".cpp", ".h"):
        folder = file.rpartition("/")[0]
        for number, line in enumerate(tree.lines(file), 1):
            match = INCLUDE.match(line)
            other = match[1].rpartition("/")[0] if match else ""
            nested = folder.startswith(other + "/") or other.startswith(folder + "/")
            if file.split("/")[0] in ALLOWED and other.split("/")[0] == file.split("/")[0] and other != folder and not nested:
                edges.setdefault(folder, {}).setdefault(other, (file, number))

    def reached(folder):
        seen, waiting = set(), [folder]
        while waiting:
            for other in edges.get(waiting.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        return seen

    for folder in sorted(edges):
        for other, (file, number) in sorted(edges[folder].items()):
            if folder in reached(other):
                yield file, number, f"{folder} must not include {other}, which includes {folder}"


def build_direction(tree):
    """Checks that the libraries and programs of a room compile only its own sources, and link only the libraries of the
    rooms of ALLOWED."""
    commands, rooms = [], {}  # rooms: the room of each target
    for file in tree.named("CMakeLists.txt"):
        room = file.split("/")[0]
        text = re.sub(r"#[^\n]*", "", tree.text(file))
        for match in re.finditer(r"\b([a-z_]+)\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)", text):
            line = text[:match.start()].count("\n") + 1
            words = match[2].split()
            commands.append((file, line, room, match[1], words))
            if match[1] in ("add_library", "add_executable") and words:
                rooms[words[0]] = room
    for file, line, room, command, words in commands:
        if room not in ALLOWED:
            continue
        if command == "target_link_libraries":
            for word in words[1:]:
                other = rooms.get(re.sub(r"\$<LINK_ONLY:(\w+)>", r"\1", word))
                if other in ALLOWED and other not in (room, *ALLOWED[room]):
                    yield file, line, f"{room} must not link {word} of {other}"
        elif command in ("add_library", "add_executable", "file", "list", "target_sources"):
            for word in words:
                other = word.replace("${CMAKE_SOURCE_DIR}/", "").split("/")[0] if "${CMAKE_SOURCE_DIR}/" in word else room
                if other != room and word.endswith(".cpp"):
                    yield file, line, f"{room} must not compile {word} into its libraries"


def file_length(tree):
    for file in tree.named(".cpp", ".h", ".td", ".py", ".proto"):
        count = len(tree.lines(file))
        if count > MAX_FILE_LINES:
            yield file, count, f"{count} lines, at most {MAX_FILE_LINES}; split it by idea"


# Comments, raw strings, strings and characters, which are not code. An apostrophe in 1'000 separates digits.
NO_CODE = re.compile(r"""//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])'"""
                     r"""|^[ \t]*\#(?:\\\n|[^\n])*""", re.DOTALL | re.MULTILINE)
NO_FUNCTION = ("namespace", "class", "struct", "enum", "union", "extern")


def is_function(heading):
    """Returns whether the text before a brace is a function heading: it has parameters and is not an initializer."""
    heading = re.sub(r"operator\s*[^\s(\w]+", "operator", heading)
    heading = re.sub(r"template\s*<[^{;]*?>\s*(?=\w)", "", heading)
    depth, outside = 0, ""
    for character in heading:
        depth += character in "(<["
        outside += character if depth == 0 else ""
        depth -= character in ")>]" and depth > 0
    return "(" in heading and "=" not in outside and not heading.strip().startswith(NO_FUNCTION)


def body_lengths(tree):
    """Counts the lines of functions, from the heading to the closing brace, including lambdas, and of class bodies."""
    for file in tree.named(".cpp", ".h"):
        code = NO_CODE.sub(lambda m: "\n" * m[0].count("\n") or " ", tree.text(file))
        open_braces, heading, line, first = [], "", 1, 1
        for character in code:
            if character == "{":
                inside = any(function for _, _, function in open_braces)
                open_braces.append((first, " ".join(heading.split()), not inside and is_function(heading)))
            elif character == "}" and open_braces:
                start, text, function = open_braces.pop()
                if function and line - start + 1 > MAX_FUNCTION_LINES:
                    yield file, start, f"{line - start + 1} lines, at most {MAX_FUNCTION_LINES}, in {text}"
                if re.match(r"(class|struct|union)\b", text) and line - start + 1 > MAX_CLASS_LINES:
                    yield file, start, f"{line - start + 1} lines, at most {MAX_CLASS_LINES}, in {text}"
            if character in "{};":
                heading = ""
            elif heading or not character.isspace():
                first = first if heading else line
                heading += character
            line += character == "\n"


def definitions(text):
    """Yields (line, kind, name, bases, body) of each top-level class and def of a TableGen file."""
    found = list(re.finditer(r"^(class|def) (\w+)", text, re.MULTILINE))
    for match, following in zip(found, found[1:] + [None]):
        body = text[match.end():following.start() if following else len(text)]
        base = re.search(r":\s*(\w+)\s*[<{;]", body)
        yield text[:match.start()].count("\n") + 1, match[1], match[2], base[1] if base else "", body


def passes_complete(tree):
    """Checks that flag, source file and lit test of a pass have one stem, and that the pass has a description."""
    file = "compiler/passes.td"
    for number, kind, name, _, body in definitions(tree.text(file)) if file in tree.files else ():
        flag = re.search(r'Pass<"([^"]+)"', body)
        if kind != "def" or not flag:
            continue
        stem = flag[1].replace("-", "_")
        sources = [f for f in tree.named(f"/{stem}.cpp", under="compiler/")]
        if not sources:
            yield file, number, f"pass {flag[1]} needs a source file compiler/*/{stem}.cpp"
        folder = sources[0].rsplit("/", 1)[0] if sources else "compiler/*"
        if sources and f"test/{folder}/{stem}.mlir" not in tree.files:
            yield file, number, f"pass {flag[1]} needs a lit test test/{folder}/{stem}.mlir"
        for field in ("summary", "description"):
            if not re.search(rf'let {field} = (?:"[^"]|\[\{{\s*[^\s}}])', body):
                yield file, number, f"pass {flag[1]} needs a {field}"


def ops_described(tree):
    """Checks that every op has a one-line summary, itself or as a parameter of its class, and that dialects/SPEC.md
    describes its life."""
    spec = tree.text("dialects/SPEC.md") if "dialects/SPEC.md" in tree.files else ""
    specified = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", spec))))
    for file in tree.named("/ops.td", under="dialects/"):
        known = list(definitions(tree.text(file)))
        bases = {name: base for _, _, name, base, _ in known}
        speaking = {name for _, _, name, _, body in known if re.search(r'let summary = (?:\w|"[^"])', body)}
        for number, kind, name, _, body in known:
            chain = [name]
            while chain[-1] in bases:
                chain.append(bases[chain[-1]])
            if kind != "def" or chain[-1] != "Op":
                continue
            mnemonic = re.search(r'"(\w+)"', body)[1]
            if not speaking.intersection(chain):
                yield file, number, f"op {mnemonic} needs a summary"
            if mnemonic not in specified:
                yield file, number, f"op {mnemonic} needs its life in dialects/SPEC.md"


def attributes_declared(tree):
    """Checks that dialects/SPEC.md describes each discardable attribute of dialects/attributes.h, and that product code
    takes the names of attributes from there."""
    file = "dialects/attributes.h"
    spec = tree.text("dialects/SPEC.md") if "dialects/SPEC.md" in tree.files else ""
    for number, line in enumerate(tree.lines(file) if file in tree.files else (), 1):
        for name in re.findall(r'\{"(\w+\.\w+)"\}', line):
            if f"`{name}`" not in spec:
                yield file, number, f"attribute {name} needs a row in dialects/SPEC.md"
    dialects = "|".join(sorted({f.split("/")[1] for f in tree.named("/ops.td", under="dialects/")}))
    used = re.compile(rf'Attr\w*(?:<[^>]*>)?\([^"]*"((?:{dialects})\.\w+)"')
    for other in tree.named(".cpp", ".h", under="compiler/") + tree.named(".cpp", ".h", under="dialects/"):
        for number, line in enumerate(tree.lines(other), 1):
            if match := used.search(line):
                yield other, number, f"attribute {match[1]} needs a constant in {file}"


# Checks that several ops share have the label of their family. Each op of the TableGen class needs the test.
FAMILIES = {"unary": "Model_Unary", "elementwise": "Model_Binary", "reduce": "Model_Reduce", "moved": "Model_Moved",
            "collective": "Dist_Collective"}


def constraints_tested(tree):
    """Checks that each verifier check has a label of a constraint in ops.td, and that a test breaks the constraint."""
    tests = "\n".join(tree.text(f) for f in tree.named(".mlir", under="test/dialects/"))
    ops = "\n".join(tree.text(f) for f in tree.named("/ops.td", under="dialects/"))
    for file in tree.named(".cpp", under="dialects/"):
        for number, line in enumerate(tree.lines(file), 1):
            for stem, constraint in re.findall(r"//.*?\b([a-z]\w*)_(c\d+)\b", line):
                members = [stem]
                if stem in FAMILIES:
                    members = re.findall(rf'^def \w+ : {FAMILIES[stem]}<"(\w+)"', ops, re.MULTILINE)
                for op in members:
                    if not re.search(rf"@{op}_{constraint}(?!\d)", tests):
                        yield file, number, (f"constraint {stem}_{constraint} needs a test in test/dialects "
                                             f"with a function @{op}_{constraint}_...")


# The code that executes plans must not name a schedule, a technique or the shape of a pipeline.
EXECUTES = re.compile(r"runtime/(executor|program|prepare)\.(cpp|h)|runtime/device/.*")
TECHNIQUE = re.compile(r"1f1b|gpipe|zero_?bubble|\bzero_?[123]\b|interleav|recompute|\btied|\bbackward\b|\bforward\b(?!<)"
                       r"|\b(pp|dp|cp|ep|tp)(\(\))? ([=!]=|[<>])", re.IGNORECASE)


def executor_plain(tree):
    for file in filter(EXECUTES.fullmatch, tree.named(".cpp", ".h", under="runtime/")):
        for number, line in enumerate(tree.lines(file), 1):
            if match := TECHNIQUE.search(line.split("//")[0]):
                yield file, number, f"'{match[0]}' in what executes plans, which knows actions only"


def columns(tree):
    for file in tree.named(".cpp", ".h"):
        for number, line in enumerate(tree.lines(file), 1):
            if len(line) > 120:
                yield file, number, f"{len(line)} columns, at most 120"


def formatted(tree):
    """Checks the formatting if clang-format is installed and there is a style file (the script's own test has none)."""
    program = shutil.which("clang-format-19")
    files = [str(tree.root / file) for file in tree.named(".cpp", ".h")]
    if not program or not (tree.root / ".clang-format").exists():
        return
    result = subprocess.run([program, "--dry-run", "-Werror", "--ferror-limit=1", *files], text=True, check=False,
                            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    for match in re.finditer(r"^(.+?):(\d+):\d+: error: code should be clang-formatted", result.stderr, re.MULTILINE):
        yield pathlib.Path(match[1]).relative_to(tree.root), match[2], "clang-format-19 would format this otherwise"


def merged(tree):
    for file in tree.named(".cpp", ".h", ".td", ".py", ".proto", ".mlir", ".test", ".yaml", ".md", ".txt"):
        for number, line in enumerate(tree.lines(file), 1):
            if line.startswith(("<<<<<<< ", ">>>>>>> ")):
                yield file, number, "half of a merge stands here"


RULES = (include_direction, folder_cycles, build_direction, file_length, body_lengths, passes_complete, ops_described,
         attributes_declared, constraints_tested, executor_plain, columns, formatted, merged)


def main():
    tree = Tree(pathlib.Path(sys.argv[1]).resolve())
    broken = 0
    for rule in RULES:
        for file, line, message in rule(tree):
            print(f"{file}:{line}: error: {message}")
            broken += 1
    return 1 if broken else 0


sys.exit(main())
