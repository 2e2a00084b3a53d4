"""The commands that README.md tells to run, those of scripts/, exist and can be executed."""

import os
import re
import sys

from tracked import ROOT, report


def main() -> int:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = set(re.findall(r"(?<![\w/.])(?:\./)?((?:scripts|\.ci)/[\w-]+)", text))
    problems = [f"README.md: {name}: not there, or not executable"
                for name in sorted(commands) if not os.access(ROOT / name, os.X_OK)]
    problems += [f"README.md does not name {name}"
                 for name in ("scripts/quickstart", "scripts/test") if name not in commands]
    return report(problems)


if __name__ == "__main__":
    sys.exit(main())
