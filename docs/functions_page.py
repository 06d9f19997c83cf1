#!/usr/bin/env python3
"""Writes the reference page of library functions. Usage: functions_page.py format/functions.def > functions.md

Each row becomes a section: its number, the comment above it, its clauses, and the CUDA kernels that stand for it.
"""
import re
import sys

ROW = re.compile(r'((?:^//[^\n]*\n)*)^(FUNCTION|EPILOGUE|KERNEL)\((\w+), (\w+),\s*((?:"[^"]*"\s*)+)\)', re.MULTILINE)


def main():
    text = open(sys.argv[1], encoding="utf-8").read()
    print("# Library functions\n\nGenerated from `format/functions.def`, whose head explains the grammar.")
    for comment, kind, first, second, strings in ROW.findall(text):
        signature = " ".join("".join(re.findall(r'"([^"]*)"', strings)).split())
        about = " ".join(line[2:].strip() for line in comment.splitlines())
        if kind == "KERNEL":
            print(f"\nCUDA kernel `{first}`. {about}".rstrip())
        else:
            name = second.lower() if kind == "FUNCTION" else f"matmul with epilogue {second.lower()}"
            print(f"\n## {name} ({first})\n\n{about}".rstrip())
        for clause in filter(None, (part.strip() for part in signature.split(";"))):
            print(f"\n    {clause}")


main()
