#!/usr/bin/env python3
"""Writes man pages and completions for shells from the help of every verb. Usage: command_pages.py ESPALIER SHARE

SHARE/man/man1/espalier*.1                             a page for each verb
SHARE/bash-completion/completions/espalier             bash
SHARE/zsh/site-functions/_espalier                     zsh
SHARE/fish/vendor_completions.d/espalier.fish          fish
"""
import dataclasses
import os
import pathlib
import re
import subprocess
import sys


@dataclasses.dataclass
class Option:
    """An option or a positional argument as the help lists it."""
    names: list  # "-o", "--output"; a positional argument has its bare name
    value: str  # "TEXT", "INT ..."; empty for a flag
    text: str
    group: str

    @property
    def choices(self):
        listed = re.search(r"[(;] ?one of ([^;)]+)", self.text)
        return listed[1].split(", ") if listed else []


@dataclasses.dataclass
class Verb:
    """A verb with what its help says."""
    path: list  # ["data", "tokenize"]
    summary: str
    usage: str
    options: list
    below: dict  # summaries by the name of the verb
    example: str

    @property
    def name(self):
        return "-".join(["espalier", *self.path])


def rows_of(body):
    """Returns (left, right) for each row of a section: two columns, or the text below a long name."""
    rows = []
    for line in body.splitlines():
        if re.match(r"  \S", line):
            left, _, right = line.strip().partition("  ")
            rows.append([left, right.strip()])
        else:
            rows[-1][1] = (rows[-1][1] + " " + line.strip()).strip()
    return rows


def read(espalier, path):
    """Returns the verb of a path and, after it, all verbs below it."""
    text = subprocess.run([espalier, *path, "--help"], check=True, capture_output=True, text=True,
                          env={**os.environ, "COLUMNS": "120"}).stdout
    head, *sections = re.split(r"\n\n(?=\S)", text.rstrip("\n"))
    summary, _, usage = head.partition("\nUsage: ")
    verb = Verb(path, " ".join(summary.split()), " ".join(usage.split()), [], {}, "")
    for section in sections:
        title, _, body = re.match(r"((?:.|\n)*?):\n((?=  )(?:.|\n)*)", section).group(0).partition(":\n  ")
        body = "  " + body
        if title == "Subcommands":
            verb.below = dict(rows_of(body))
        elif title == "Example":
            verb.example = " ".join(body.split())
        else:
            for left, right in rows_of(body):
                names, _, value = left.partition(" ")
                verb.options.append(Option(names.split(","), value, right, " ".join(title.split())))
    return [verb] + [each for name in verb.below for each in read(espalier, [*path, name])]


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text)


def man_page(verb, version):
    lines = [f'.TH {verb.name.upper()} 1 "" "{version}"', ".SH NAME", roff(f"{verb.name} - {verb.summary}"),
             ".SH SYNOPSIS", roff(verb.usage)]
    if verb.below:
        lines.append(".SH COMMANDS")
        for name, summary in verb.below.items():
            lines += [".TP", f".BR {roff(verb.name + '-' + name)} (1)", roff(summary)]
    group = None
    for option in verb.options:
        if option.group != group:
            group = option.group
            lines.append(f".SH {roff(group).upper()}")
        lines += [".TP", ".B " + roff(", ".join(option.names) + (" " + option.value if option.value else "")),
                  roff(option.text) or "\\&"]
    if verb.example:
        lines += [".SH EXAMPLE", ".EX", roff(verb.example), ".EE"]
    if verb.path:
        lines += [".SH SEE ALSO", f".BR {roff('-'.join(['espalier', *verb.path[:-1]]))} (1)"]
    return "\n".join(lines) + "\n"


def dashed(option):
    return [name for name in option.names if name.startswith("-")]


def bash(verbs):
    """Words of the line that name verbs choose the case; the word before the cursor may ask for one of its values."""
    known = " ".join('"' + " ".join(verb.path) + '"' for verb in verbs if verb.path)
    cases, values = [], []
    for verb in verbs:
        words = [*verb.below] + [name for option in verb.options for name in dashed(option)]
        cases.append(f'    "{" ".join(verb.path)}") words="{" ".join(words)}" ;;')
        for option in verb.options:
            if option.value:
                keys = "|".join(f'"{" ".join(verb.path)} {name}"' for name in dashed(option))
                if keys:
                    values.append(f'    {keys}) words="{" ".join(option.choices)}"; value=1 ;;')
    return f"""# bash completion for espalier
_espalier() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} path="" words="" value="" word
  local known=({known})
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    local longer="${{path:+$path }}$word" each
    for each in "${{known[@]}}"; do [ "$each" = "$longer" ] && path=$longer && break; done
  done
  case "$path" in
{chr(10).join(cases)}
  esac
  case "$path $previous" in
{chr(10).join(values)}
  esac
  if [ -n "$words" ] && {{ [ -n "$value" ] || [[ $current == -* ]] || [[ " $words " == *" $current"* ]]; }}; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  fi
}}
complete -o bashdefault -o default -F _espalier espalier
"""


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def zsh(verbs):
    """A function for each verb; a verb with verbs below it dispatches to theirs."""
    text = "#compdef espalier\n# zsh completion for espalier\n"
    for verb in verbs:
        specs = []
        for option in verb.options:
            about = re.sub(r"([][:])", r"\\\1", option.text)
            action = f"({' '.join(option.choices)})" if option.choices else "_files"
            for name in dashed(option):
                specs.append(quoted(f"*{name}[{about}]" + (f":value:{action}" if option.value else "")))
        function = "_" + re.sub(r"\W", "_", verb.name)
        if verb.below:
            commands = " ".join(quoted(f"{name}:{summary}".replace("::", ":")) for name, summary in verb.below.items())
            cases = "\n".join(f"      {name}) _{re.sub(r'[^a-z0-9]', '_', verb.name + '_' + name)} ;;" for name in verb.below)
            specs += ["'1:command:->command'", "'*::argument:->argument'"]
            after = f"""  case $state in
    command) local commands=({commands}); _describe command commands ;;
    argument) case $line[1] in
{cases}
    esac ;;
  esac
"""
        else:
            specs.append("'*:file:_files'")
            after = ""
        arguments = " \\\n    ".join(specs)
        text += f"{function}() {{\n  local state line\n  _arguments -C \\\n    {arguments}\n{after}}}\n"
    return text + 'if [ "$funcstack[1]" = "_espalier" ]; then _espalier "$@"; else compdef _espalier espalier; fi\n'


def fish(verbs):
    """A condition for each verb: all words of its path are on the line, and none that names a verb below or a group."""
    lines = ["# fish completion for espalier"]
    groups = [verb.path[0] for verb in verbs if verb.path and verb.below]
    for verb in verbs:
        conditions = [f"__fish_seen_subcommand_from {word}" for word in verb.path]
        others = [*verb.below] + [name for name in groups if name not in verb.path[:1] and name not in verb.below]
        if others:
            conditions.append("not __fish_seen_subcommand_from " + " ".join(others))
        when = f" -n {quoted('; and '.join(conditions))}"
        for name, summary in verb.below.items():
            lines.append(f"complete -c espalier{when} -f -a {name} -d {quoted(summary)}")
        for option in verb.options:
            names = "".join(f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}" for name in dashed(option))
            if names:
                values = f" -x -a {quoted(' '.join(option.choices))}" if option.choices else " -r" if option.value else ""
                lines.append(f"complete -c espalier{when}{names}{values} -d {quoted(option.text)}")
    return "\n".join(lines) + "\n"


def main():
    espalier, share = sys.argv[1], pathlib.Path(sys.argv[2])
    version = subprocess.run([espalier, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    verbs = read(espalier, [])
    files = {f"man/man1/{verb.name}.1": man_page(verb, version) for verb in verbs}
    files["bash-completion/completions/espalier"] = bash(verbs)
    files["zsh/site-functions/_espalier"] = zsh(verbs)
    files["fish/vendor_completions.d/espalier.fish"] = fish(verbs)
    for name, text in files.items():
        (share / name).parent.mkdir(parents=True, exist_ok=True)
        (share / name).write_text(text, encoding="utf-8")


main()
