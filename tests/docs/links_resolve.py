"""Every relative link of a Markdown file leads to a file, and to a heading where it names one."""

import re
import sys

from tracked import ROOT, report, tracked

LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+\s+(.*?)\s*#*$", CODE.sub("", text) + "\n" + text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def main() -> int:
    problems = []
    for path in tracked("*.md"):
        for groups in LINK.findall(CODE.sub("", path.read_text(encoding="utf-8"))):
            link = groups[0] or groups[1]
            if re.match(r"[a-z][a-z0-9+.-]*:", link):
                continue
            name, _, anchor = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            if not target.exists():
                problems.append(f"{path.relative_to(ROOT)}: {link}: no such file")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8")):
                problems.append(f"{path.relative_to(ROOT)}: {link}: no such heading")
    return report(problems)


if __name__ == "__main__":
    sys.exit(main())
