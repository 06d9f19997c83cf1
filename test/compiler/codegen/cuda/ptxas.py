"""Compiles the kernels of every run file with ptxas. Usage: ptxas.py PTXAS CONFIGS FOLDER

Prints a line per run file. Fails if a run file does not compile for cuda, or if ptxas refuses its text or spills
registers.
"""
import pathlib
import re
import subprocess
import sys

ARCHITECTURES = ("sm_80", "sm_90")


def check(ptxas, text):
    """Returns the errors and register spills that ptxas reports for a text."""
    faults = []
    for architecture in ARCHITECTURES:
        done = subprocess.run([ptxas, f"-arch={architecture}", "-v", text, "-o", "/dev/null"],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            faults.append(f"{architecture}: {done.stderr[:2000]}")
        functions = re.split(r"Compiling entry function ", done.stderr)[1:]
        if not functions:
            faults.append(f"{architecture}: no kernels")
        for function in functions:
            spilled = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", function)
            if not spilled or spilled.groups() != ("0", "0"):
                faults.append(f"{architecture}: {function}")
    return faults


def main(ptxas, configs, folder):
    faults = 0
    for run in sorted(pathlib.Path(configs).glob("*.yaml")):
        target = pathlib.Path(folder) / run.stem
        done = subprocess.run(["espalier", "compile", str(run), "--target", "cuda", "-o", f"{target}.plan",
                               "--emit-kernels", str(target)], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{run.name}: error: {done.stderr}")
            faults += 1
            continue
        found = check(ptxas, str(target / "sm_80.ptx"))
        faults += len(found)
        print(f"{run.name}: {'accepted' if not found else chr(10).join(found)}")
    return faults > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
