"""Every command and option in a program's --help is in its man page, and the other way round:
options_documented.py PROGRAM PAGE. With --config-keys SOURCE PAGE: the same for the keys that the source knows, and for
what it says of each: whether a reload takes it up."""

import pathlib
import re
import sys

from help_text import OPTION, commands_in, help_of, options_in
from man_page import ManPage, Part, plain
from tracked import report

ON_RELOAD = "Taken up by a reload."
ON_RESTART = "Needs a restart."


def compare(what: str, known: set[str], documented: set[str], page: str) -> list[str]:
    return [f"{page}: {what} {name} is missing" for name in sorted(known - documented)] + [
        f"{page}: there is no {what} {name}" for name in sorted(documented - known)]


def options_of(tags: list[str]) -> set[str]:
    return {name for tag in tags if tag.startswith("-") for name in OPTION.findall(tag)}


def synopsis_of(part: Part) -> str:
    """What stands before the first paragraph."""
    lines = part.lines[:part.lines.index(".PP")] if ".PP" in part.lines else part.lines
    return " ".join(plain(line) for line in lines)


def check_program(program: str, page: ManPage) -> list[str]:
    main_help = help_of(program)
    common = options_in(main_help)
    problems = compare("option", common, options_of(page.section("OPTIONS").tags()), f"{page.name}: OPTIONS")
    described = {part.title: part for part in page.section("COMMANDS").parts}
    commands = commands_in(main_help)
    problems += compare("command", set(commands), set(described), page.name)
    known = set(common)
    shared = options_of(page.section("WINDOW OPTIONS").tags())
    for command in sorted(set(commands) & set(described)):
        part = described[command]
        own = options_in(help_of(program, command)) - {"--help"}
        known |= own
        problems += compare("option", own, set(OPTION.findall(synopsis_of(part))), f"{page.name}: {command}: synopsis")
        explained = options_of(part.tags())
        # What commands share may be another thing to one of them, which then says so itself.
        problems += compare("explained option", own - shared, explained - (own & shared), f"{page.name}: {command}")
    return problems + [f"{page.name}: there is no option {name}" for name in sorted(options_of(page.tags()) - known)]


def check_keys(source: str, page: ManPage) -> list[str]:
    code = pathlib.Path(source).read_text(encoding="utf-8")
    entries = re.findall(r'^\s*\{"([a-z_]+\.[a-z_]+)",(.*?)\},$', code, re.MULTILINE | re.DOTALL)
    # Whether a reload takes it up, and how its value is written where that is not as it is.
    last = {key: re.search(r"(true|false)(,\s*[a-z_]+)?\)\s*$", rest) for key, rest in entries}
    reloaded = {key: found[1] == "true" for key, found in last.items() if found}
    if not entries or len(reloaded) != len(entries):
        return [f"{source}: the table of keys is not understood: has it changed?"]
    problems = []
    documented = set()
    for title, section in page.sections.items():
        name = re.fullmatch(r"\[([a-z_]+)\] SECTION", title)
        if not name:
            continue
        at = [i for i, line in enumerate(section.lines) if line == ".TP"]
        for start, end in zip(at, [*at[1:], len(section.lines)]):
            key = f"{name.group(1)}.{plain(section.lines[start + 1])}"
            documented.add(key)
            said = section.lines[start:end]
            wanted, other = (ON_RELOAD, ON_RESTART) if reloaded.get(key) else (ON_RESTART, ON_RELOAD)
            if key in reloaded and (wanted not in said or other in said):
                problems.append(f'{page.name}: {key} must say "{wanted}"')
            if not any(line.startswith("Default: ") for line in said):
                problems.append(f"{page.name}: {key} has no default")
    return compare("key", set(reloaded), documented, page.name) + problems


def main() -> int:
    if sys.argv[1] == "--config-keys":
        return report(check_keys(sys.argv[2], ManPage(pathlib.Path(sys.argv[3]))))
    return report(check_program(sys.argv[1], ManPage(pathlib.Path(sys.argv[2]))))


if __name__ == "__main__":
    sys.exit(main())
