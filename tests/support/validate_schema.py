#!/usr/bin/python3
"""Validates a JSON file against a JSON schema: validate_schema.py SCHEMA FILE ('-' for stdin; a .jsonl file is a document a line).

Exit codes: 0 valid, 1 invalid (each error on stderr), 77 python3-jsonschema is missing.
"""

import json
import sys

try:
    from jsonschema import Draft202012Validator
except ImportError:
    print("python3-jsonschema is missing", file=sys.stderr)
    sys.exit(77)


def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as file:
        schema = json.load(file)
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
