#!/usr/bin/python3
"""Validates a JSON file against a JSON schema: validate_schema.py SCHEMA FILE ('-' for stdin; a .jsonl file is a document a line).

Exit codes: 0 valid, 1 invalid (each error on stderr), 77 python3-jsonschema is missing.
"""

import json
import pathlib
import sys

try:
    from jsonschema import Draft202012Validator
except ImportError:
    print("python3-jsonschema is missing", file=sys.stderr)
    sys.exit(77)


def load(path: pathlib.Path) -> dict:
    """With what it refers to in the schema of what answers have in common."""
    schema = json.loads(path.read_text(encoding="utf-8").replace('"common.schema.json#/', '"#/'))
    common = json.loads(path.with_name("common.schema.json").read_text(encoding="utf-8"))
    own = schema.setdefault("$defs", {})
    schema["$defs"] = common["$defs"] | own
    if common["$defs"].keys() & own.keys():
        raise ValueError(f"{path}: defines what common.schema.json does: {common['$defs'].keys() & own.keys()}")
    return schema


def main() -> int:
    schema = load(pathlib.Path(sys.argv[1]))
    Draft202012Validator.check_schema(schema)
    if sys.argv[2] == "-":
        documents = [json.load(sys.stdin)]
    else:
        with open(sys.argv[2], encoding="utf-8") as file:
            documents = [json.loads(line) for line in file] if sys.argv[2].endswith(".jsonl") else [json.load(file)]
    errors = [error for document in documents for error in Draft202012Validator(schema).iter_errors(document)]
    for error in errors:
        print(f"{'/'.join(map(str, error.absolute_path))}: {error.message}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
