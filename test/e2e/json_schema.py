"""Validates JSON files, or each line of .jsonl files, against docs/schemas. Usage: json_schema.py SCHEMAS NAME=FILE..."""
import json
import pathlib
import sys

import jsonschema

schemas = pathlib.Path(sys.argv[1])
names = set()
for word in sys.argv[2:]:
    name, file = word.split("=", 1)
    schema = json.loads((schemas / (name + ".json")).read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    text = pathlib.Path(file).read_text()
    for answer in text.splitlines() if file.endswith(".jsonl") else [text]:
        for error in validator.iter_errors(json.loads(answer)):
            sys.exit(f"{file}: {error.json_path}: {error.message} ({name})")
    names.add(name)
    # A schema that accepts anything tests nothing.
    assert not validator.is_valid({}), name
print(f"{len(sys.argv) - 2} answers hold to {len(names)} schemas")
missing = {path.stem for path in schemas.glob("*.json")} - names
print("not tested:", " ".join(sorted(missing)) or "none")
