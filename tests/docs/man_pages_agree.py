"""The man pages agree with each other and with the tree: names and versions, references to pages of ours, the list of
docs/README.md, and the pages that the programs and units tell to read."""

import re
import sys

from man_page import REFERENCE, ManPage, pages
from tracked import ROOT, report, text_of

OURS = re.compile(r"(?:io\.)?ingero", re.IGNORECASE)
SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO"]


def version() -> str:
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    return re.search(r"project\(ingero VERSION ([\d.]+)", text).group(1)


def check_page(page: ManPage, known: set[tuple[str, str]]) -> list[str]:
    name, number = page.path.stem, page.path.suffix[1:]
    problems = []
    title = re.match(r'\.TH (\S+) (\d) "" "ingero ([\d.]+)" "ingero"$', page.head.lines[0])
    if not title or (title.group(1).lower(), title.group(2)) != (name.lower(), number):
        problems.append(f"{page.name}: the first line must be the .TH of {name} {number}")
    elif title.group(3) != version():
        problems.append(f"{page.name}: is about version {title.group(3)}, and this is {version()}")
    names = page.section("NAME").text().split(" - ")
    if len(names) != 2 or names[0].split(",")[0] != name:
        problems.append(f'{page.name}: NAME must be "{name} - what it is"')
    problems += [f"{page.name}: no section {section}" for section in SECTIONS if section not in page.sections]
    if not page.section("SEE ALSO").lines or list(page.sections)[-1] != "SEE ALSO":
        problems.append(f"{page.name}: SEE ALSO must be the last section")
    ours = {(who, where) for who, where in page.references() if OURS.match(who)}
    problems += [f"{page.name}: {who}({where}): no such page" for who, where in sorted(ours - known)]
    see_also = set(REFERENCE.findall(page.section("SEE ALSO").text()))
    problems += [f"{page.name}: SEE ALSO does not list {who}({where})"
                 for who, where in sorted(known - see_also - {(name, number)})]
    return problems


def check_mentions(known: set[tuple[str, str]]) -> list[str]:
    """Of what users get to read: messages, units, descriptions."""
    problems = []
    for folder in ("daemon", "ctl", "core", "dbus", "systemd", "packaging"):
        for path in sorted((ROOT / folder).rglob("*")):
            text = text_of(path) if path.is_file() else None
            for who, where in REFERENCE.findall(text or ""):
                if re.match(r"(?:io\.ingero|ingero[dc])", who) and (who, where) not in known:
                    problems.append(f"{path.relative_to(ROOT)}: {who}({where}): no such page")
    return problems


def main() -> int:
    all_pages = [ManPage(path) for path in pages()]
    known = {(page.path.stem, page.path.suffix[1:]) for page in all_pages}
    listed = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    problems = [f"docs/README.md does not list {page.name}" for page in all_pages
                if f"(man/{page.path.name})" not in listed]
    for page in all_pages:
        problems += check_page(page, known)
    return report(problems + check_mentions(known) or ([] if all_pages else ["no man pages: have they moved?"]))


if __name__ == "__main__":
    sys.exit(main())
