"""Reads a man page in man(7) macros: its sections, tags and references."""

import dataclasses
import pathlib
import re

from tracked import ROOT

FOLDER = ROOT / "docs" / "man"
ESCAPES = {r"\-": "-", r"\&": "", r"\(aq": "'", r"\(dq": '"', r"\e": "\\", r"\ ": " "}
REFERENCE = re.compile(r"([\w.@-]+)\((\d)\)")


def pages() -> list[pathlib.Path]:
    return sorted(path for path in FOLDER.iterdir() if re.fullmatch(r"\.\d", path.suffix))


def plain(line: str) -> str:
    """The words of a line, without macros and escapes."""
    line = re.sub(r"\\f(?:[BIRP]|\(..|\[.*?\])", "", line)
    macro = re.match(r"\.(B|I|BR|RB|BI|IB|IR|RI)\s+(.*)", line)
    if macro:
        words = [quoted or bare for quoted, bare in re.findall(r'"([^"]*)"|((?:\\ |[^\s"])+)', macro.group(2))]
        line = (" " if len(macro.group(1)) == 1 else "").join(words)
    for escape, meaning in ESCAPES.items():
        line = line.replace(escape, meaning)
    return line


@dataclasses.dataclass
class Part:
    """A section, or a subsection of it."""
    title: str
    lines: list[str]
    parts: list["Part"] = dataclasses.field(default_factory=list)

    def tags(self) -> list[str]:
        """What .TP lists here, subsections not included."""
        return [plain(self.lines[at + 1]) for at, line in enumerate(self.lines[:-1]) if re.match(r"\.T[PQ]\b", line)]

    def all_tags(self) -> list[str]:
        return self.tags() + [tag for part in self.parts for tag in part.all_tags()]

    def text(self) -> str:
        lines = [plain(line) for line in self.lines if not re.match(r"\.(?:T[PQ]|PP|IP|EX|EE|RS|RE|br)\b", line)]
        return "\n".join([*lines, *(part.title + "\n" + part.text() for part in self.parts)])

    def examples(self) -> list[str]:
        """What stands between .EX and .EE."""
        found = re.findall(r"^\.EX\n(.*?)^\.EE$", "\n".join(self.lines) + "\n", re.MULTILINE | re.DOTALL)
        inner = ["\n".join(plain(line) for line in example.splitlines()) for example in found]
        return inner + [example for part in self.parts for example in part.examples()]


def commands_of_examples(page: "ManPage") -> list[str]:
    """What the page's examples tell to type, one string an example: bold after a prompt, or a line of a script."""
    found = []
    for example in page.raw_examples():
        lines, typed = example.splitlines(), []
        for at, line in enumerate(lines):
            prompt = re.match(r"[$#] \\fB", line)
            if not prompt and not line.startswith("ingeroctl "):
                continue
            typed.append(plain(line)[2 if prompt else 0:])
            while typed[-1].endswith("\\"):
                at += 1
                typed[-1] = typed[-1][:-1] + plain(lines[at])
        if typed:
            found.append("\n".join(typed))
    return found


def needs_systemd(example: str) -> bool:
    return example.split()[0] in ("systemctl", "journalctl", "systemd-run")


class ManPage:
    def __init__(self, path: pathlib.Path):
        self.path = path
        self.name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
        self.head = Part("", [])
        self.sections: dict[str, Part] = {}
        part = section = self.head
        for line in path.read_text(encoding="utf-8").splitlines():
            heading = re.match(r"\.S([HS])\s+(.*)", line)
            if not heading:
                part.lines.append(line)
                continue
            title = plain(heading.group(2)).strip('"')
            part = Part(title, [])
            if heading.group(1) == "H":
                section = self.sections[title] = part
            else:
                section.parts.append(part)

    def section(self, title: str) -> Part:
        return self.sections.get(title, Part(title, []))

    def raw_examples(self) -> list[str]:
        """As they stand in the source."""
        text = self.path.read_text(encoding="utf-8")
        return re.findall(r"^\.EX\n(.*?)^\.EE$", text, re.MULTILINE | re.DOTALL)

    def tags(self) -> list[str]:
        return [tag for section in self.sections.values() for tag in section.all_tags()]

    def text(self) -> str:
        return "\n".join(section.text() for section in self.sections.values())

    def references(self) -> set[tuple[str, str]]:
        return set(REFERENCE.findall(self.text()))
