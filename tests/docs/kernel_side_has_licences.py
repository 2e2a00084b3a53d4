"""Every source of bpf/ begins with its licence, and the texts of the licences are there."""

import re
import sys

from tracked import ROOT, report, tracked

TEXTS = {"GPL-2.0": "LICENSES/GPL-2.0-only.txt", "GPL-2.0-only": "LICENSES/GPL-2.0-only.txt", "Apache-2.0": "LICENSE"}


def main() -> int:
    problems = []
    for path in tracked("*.h", "*.c"):
        if path.parent != ROOT / "bpf":
            continue
        name = path.relative_to(ROOT)
        first = path.read_text(encoding="utf-8").split("\n", 1)[0]
        licence = re.search(r"SPDX-License-Identifier: ([\w.\- ]+?)\s*(?:\*/)?$", first)
        if not licence:
            problems.append(f"{name}: the first line has no SPDX-License-Identifier")
            continue
        for one in licence.group(1).split(" OR "):
            if one not in TEXTS:
                problems.append(f"{name}: unknown licence {one}")
            elif not (ROOT / TEXTS[one]).is_file():
                problems.append(f"{name}: {TEXTS[one]} is missing")
    return report(problems)


if __name__ == "__main__":
    sys.exit(main())
