"""The examples of ingerod.conf(5) are configurations that ingerod accepts: config_examples_accepted.py INGEROD PAGE."""

import pathlib
import subprocess
import sys
import tempfile

from man_page import ManPage
from tracked import report


def main() -> int:
    program, page = sys.argv[1], ManPage(pathlib.Path(sys.argv[2]))
    examples = [example for example in page.section("EXAMPLES").examples() if example.startswith("[")]
    problems = [] if examples else [f"{page.name}: no examples"]
    with tempfile.TemporaryDirectory() as folder:
        for number, example in enumerate(examples, 1):
            file = pathlib.Path(folder) / f"example-{number}.conf"
            file.write_text(example, encoding="utf-8")
            checked = subprocess.run([program, "--config", file, "--check-config"], capture_output=True, text=True,
                                     check=False, timeout=60)
            if checked.returncode != 0:
                problems.append(f"{page.name}: {checked.stderr.strip()}")
    return report(problems)


if __name__ == "__main__":
    sys.exit(main())
