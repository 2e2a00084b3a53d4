"""Every command and option in a program's --help is in its page, and the other way round:
options_documented.py PROGRAM PAGE. With --config-keys SOURCE PAGE: the same for the keys that the source knows."""

import pathlib
import re
import subprocess
import sys

from tracked import report

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
EXPLAINED_BY_THEMSELVES = {"--help", "--version"}


def help_of(*command: str) -> str:
    return subprocess.run([*command, "--help"], capture_output=True, text=True, check=True, timeout=60).stdout


def options_in(help_text: str) -> set[str]:
    """Those at the start of a line, before its explanation."""
    found = set()
    for line in help_text.splitlines():
        if re.match(r"\s+-", line):
            found |= set(OPTION.findall(re.split(r"\s{2,}", line.strip())[0]))
    return found


def commands_in(help_text: str) -> list[str]:
    part = re.search(r"^Subcommands:\n((?:  .*\n?)*)", help_text, re.MULTILINE)
    return re.findall(r"^  ([a-z][a-z-]*)", part.group(1), re.MULTILINE) if part else []


def compare(what: str, known: set[str], documented: set[str], page: str) -> list[str]:
    return [f"{page}: {what} {name} is missing" for name in sorted(known - documented)] + [
        f"{page}: there is no {what} {name}" for name in sorted(documented - known)]


def check_program(program: str, page: str) -> list[str]:
    text = pathlib.Path(page).read_text(encoding="utf-8")
    main_help = help_of(program)
    commands = commands_in(main_help)
    known = options_in(main_help)
    for command in commands:
        known |= options_in(help_of(program, command))
    documented = set(OPTION.findall(text))
    headings = set(re.findall(r"^## `([a-z-]+)`", text, re.MULTILINE))
    return compare("option", known - EXPLAINED_BY_THEMSELVES, documented - EXPLAINED_BY_THEMSELVES, page) + compare(
        "command", set(commands), headings, page)


def check_keys(source: str, page: str) -> list[str]:
    known = set(re.findall(r'^\s*\{"([a-z_]+\.[a-z_]+)",', pathlib.Path(source).read_text(encoding="utf-8"), re.MULTILINE))
    if not known:
        return [f"{source}: no keys found: has the table changed?"]
    text = pathlib.Path(page).read_text(encoding="utf-8")
    documented = {f"{section}.{key}" for section, key in re.findall(r"^\| `\[([a-z_]+)\] ([a-z_]+)`", text, re.MULTILINE)}
    return compare("key", known, documented, page)


def main() -> int:
    if sys.argv[1] == "--config-keys":
        return report(check_keys(*sys.argv[2:4]))
    return report(check_program(*sys.argv[1:3]))


if __name__ == "__main__":
    sys.exit(main())
