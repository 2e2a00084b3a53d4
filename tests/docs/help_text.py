"""What a program's --help says: its commands and options."""

import re
import subprocess

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def help_of(*command: str) -> str:
    return subprocess.run([*command, "--help"], capture_output=True, text=True, check=True, timeout=60).stdout


def option_lines(help_text: str) -> list[str]:
    """Each option with its value, without its explanation."""
    return [re.split(r"\s{2,}", line.strip())[0] for line in help_text.splitlines() if line.startswith("  -")]


def options_in(help_text: str) -> set[str]:
    return {name for line in option_lines(help_text) for name in OPTION.findall(line)}


def values_in(help_text: str) -> dict[str, set[str] | None]:
    """Options that take a value, with the values there are to choose from where --help lists them as {a,b}."""
    found = {}
    for line in option_lines(help_text):
        taken = re.match(r"(?:-\w,)?(--[a-z-]+) ([A-Z]+)(?:.*\{([\w,-]+)\})?", line)
        if taken:
            found[taken.group(1)] = set(taken.group(3).split(",")) if taken.group(3) else None
    return found


def commands_in(help_text: str) -> list[str]:
    """In groups, each with a title of its own."""
    groups = re.findall(r"^([A-Z][\w ]*):\n((?:  .*\n)+)", help_text, re.MULTILINE)
    return [name for title, lines in groups if title not in ("Options", "Positionals", "Examples")
            for name in re.findall(r"^  ([a-z][a-z-]*)", lines, re.MULTILINE)]


def examples_in(help_text: str) -> list[str]:
    part = re.search(r"^Examples:\n((?:  .*\n)+)", help_text, re.MULTILINE)
    return re.findall(r"^    (\S.*)", part.group(1), re.MULTILINE) if part else []
