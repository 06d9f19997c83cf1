"""python -m espalier.trace FOLDER -o models/x.yaml: writes a model file from the code of a Hugging Face model."""
from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import sys


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m espalier.trace", description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help="a Hugging Face folder; only its config.json and code are read")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, help="the model file to write")
    parser.add_argument("--name", help="name of the architecture; default: the output's")
    parser.add_argument("--trust-remote-code", action="store_true", help="run Python code that the folder has")
    parser.add_argument("--no-check", action="store_true", help="write the file without comparing it with transformers")
    parser.add_argument("--espalier", help="the command; default: $ESPALIER, that of this package, or that of PATH")
    return parser.parse_args()


def command(given: str | None) -> pathlib.Path:
    """Returns the espalier command."""
    own = pathlib.Path(__file__).absolute().parents[1] / "bin" / "espalier"
    for word in (given, os.environ.get("ESPALIER"), str(own), shutil.which("espalier")):
        if word and pathlib.Path(word).is_file():
            return pathlib.Path(word).resolve()
    sys.exit("espalier.trace: error: no espalier command; name it with --espalier")


def parts_of(espalier: pathlib.Path) -> pathlib.Path:
    """Returns the folder models/parts that this command reads."""
    given = os.environ.get("ESPALIER_CONFIGS")
    folders = [pathlib.Path(given)] if given else []
    for folder in list(espalier.parents)[:5]:
        folders += [folder, folder / "configs", folder / "share" / "espalier" / "configs"]
    for folder in folders:
        if (folder / "models" / "parts").is_dir():
            return folder / "models" / "parts"
    sys.exit(f"espalier.trace: error: no configs/models/parts beside {espalier}; name the folder configs in "
             "ESPALIER_CONFIGS")


def main() -> None:
    given = arguments()
    try:
        import transformers
    except ImportError as problem:
        sys.exit(f"espalier.trace: error: {problem}; it needs the packages torch and transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    from .check import check
    from .keys import Keys
    from .faults import NotUnderstood
    from .tiny import Source, Traced
    from .document import text_of
    from .write import Writer
    espalier = command(given.espalier)
    name = given.name or re.sub(r"\W", "_", given.output.stem)
    try:
        source = Source(given.folder, given.trust_remote_code)
        traced = Traced(source, {})
        order = traced.kinds()[1]
        keys = Keys(source, max(2, *(order.index(kind) + 1 for kind in order)) if len(order) > 1 else 1)
        writer = Writer(keys, traced, parts_of(espalier))
        writer.describe()
        writer.weights()
        document = writer.document(name)
        note = "" if given.no_check else "\nIts loss and gradients are those of transformers."
        text = text_of(document, f"{source.raw['architectures'][0]}, written by espalier.trace from its code.{note}")
        if not given.no_check:
            check(espalier, writer, name, text)
    except NotUnderstood as fault:
        sys.exit(f"espalier.trace: error: {fault}")
    given.output.parent.mkdir(parents=True, exist_ok=True)
    temporary = given.output.with_name(f".{given.output.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(given.output)
    print(f"{given.output}: {'not checked' if given.no_check else 'checked'}", file=sys.stderr)


if __name__ == "__main__":
    main()
