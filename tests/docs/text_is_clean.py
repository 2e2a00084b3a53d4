"""No tracked file names a path of somebody's machine, or says who or what wrote it."""

import re
import sys

from tracked import ROOT, report, text_of, tracked

# Written so that they do not match themselves.
FORBIDDEN = [
    (re.compile(r"(?<![\w.*/-])/(?:[w]ork|[r]oot|[h]ome|[U]sers)/[\w.]"), "a path of one machine"),
    (re.compile(r"\b(?:[C]o-[Aa]uthored-[Bb]y:|[G]enerated (?:with|by)\b|[Aa]s an? (?:[A]I|language model)\b)"),
     "says who wrote it"),
    (re.compile(r"(?:<{7}|>{7}) \w"), "an unfinished merge"),
]


def main() -> int:
    problems = []
    for path in tracked():
        if path.name == "LICENSE" or path.parent.name == "LICENSES":
            continue
        for number, line in enumerate((text_of(path) or "").splitlines(), 1):
            for pattern, what in FORBIDDEN:
                if pattern.search(line):
                    problems.append(f"{path.relative_to(ROOT)}:{number}: {what}: {line.strip()[:100]}")
    return report(problems)


if __name__ == "__main__":
    sys.exit(main())
