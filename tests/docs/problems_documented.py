"""docs/problems.md says what `ingeroctl problems` says: problems_documented.py INGEROCTL PAGE [SCHEMA VALIDATOR].
With --write in place of the rest, writes it."""

import json
import pathlib
import subprocess
import sys
import tempfile

HEAD = """# What can be found

The kinds of findings of `ingeroctl explain`, with what proves each, what must have been recorded for that, and what it
cannot see. `ingeroctl problems` lists the same. A finding names its kind, and nothing is found from counts alone.

| Kind | What it is | Proof | Needs | Not seen |
|---|---|---|---|---|
"""


def main() -> int:
    answer = subprocess.run([sys.argv[1], "--json", "problems"], check=True, capture_output=True, text=True).stdout
    page = pathlib.Path(sys.argv[2])
    rows = "".join(f"| `{row['kind']}` | {row['title']} | {row['proof']} | {row['needs']} | {row['limits']} |\n"
                   for row in json.loads(answer)["problems"])
    if sys.argv[3:] == ["--write"]:
        page.write_text(HEAD + rows)
        return 0
    if page.read_text() != HEAD + rows:
        print(f"{page.name} is not what ingeroctl problems says: run this with --write")
        return 1
    schema, validator = sys.argv[3:]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(answer)
        file.flush()
        return subprocess.run([sys.executable, validator, schema, file.name], check=False).returncode


sys.exit(main())
