"""Every man page is rendered without a warning: man_pages_render.py man|mandoc."""

import os
import shutil
import subprocess
import sys

from man_page import pages
from tracked import ROOT, report, skip

COMMANDS = {"man": ["man", "--warnings", "-E", "UTF-8", "-l"], "mandoc": ["mandoc", "-T", "lint", "-W", "warning"]}
# The pages have the version in their footer, as systemd's have, and no date.
ACCEPTED = ("missing date, using \"\": TH", )


def main() -> int:
    tool = sys.argv[1]
    if shutil.which(tool) is None:
        return skip(f"{tool} is missing")
    problems = []
    for page in pages():
        # 80 columns: a line that does not fit there is a warning too.
        environment = {**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8", "MANROFFOPT": "", "MANPAGER": "cat"}
        rendered = subprocess.run([*COMMANDS[tool], page], capture_output=True, text=True, check=False, timeout=60,
                                  env=environment)
        said = rendered.stdout + rendered.stderr if tool == "mandoc" else rendered.stderr
        lines = [line for line in said.splitlines() if not line.endswith(ACCEPTED)]
        name = page.relative_to(ROOT)
        problems += [f"{name}: {line}" for line in lines]
        if tool == "man" and (rendered.returncode != 0 or "NAME" not in rendered.stdout):
            problems.append(f"{name}: exit code {rendered.returncode}, {len(rendered.stdout)} characters")
    return report(problems)


if __name__ == "__main__":
    sys.exit(main())
