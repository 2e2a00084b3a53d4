"""Documents against INGEROCTL: each command of theirs exists with its options, and each block of `console` prints what it
shows. Blocks of tutorial.md need a daemon: tests/system runs them. With --write, shows in the others what is printed now."""

import os
import pathlib
import re
import shlex
import sys

from help_text import OPTION, commands_in, help_of, options_in
from tracked import ROOT, report, tracked

sys.path.insert(0, str(ROOT / "tests/support"))
from console_blocks import BLOCK, difference, run_on_terminal, steps  # noqa: E402

ANSWERED = (0, 3, 5)  # with findings, and in part, too
IN_TEXT = re.compile(r"`(?:sudo )?(ingeroctl [^`]+)`|^(?:    |\$ )(?:sudo )?(ingeroctl [^#|\n]+)", re.MULTILINE)


def unknown_words(page: pathlib.Path, known: dict[str, set[str]]) -> list[str]:
    problems = []
    for groups in IN_TEXT.findall(page.read_text(encoding="utf-8")):
        line = (groups[0] or groups[1]).strip()
        options = set(OPTION.findall(line.split(" -- ")[0]))
        words = shlex.split(line.replace("'", " ")) if line.count('"') % 2 == 0 else line.split()
        command = next((word for word in words[1:] if word in known), "")
        wrong = sorted(options - known[""] - known[command])
        named = [word for word in words[1:2] if re.fullmatch(r"[a-z][a-z-]+", word) and word not in known]
        problems += [f"{page.relative_to(ROOT)}: `{line}`: there is no {name}" for name in wrong + named]
    return problems


def wrong_blocks(page: pathlib.Path, environment: dict[str, str]) -> list[str]:
    problems = []
    for command, shown in steps(page):
        _, printed = run_on_terminal(command, environment, ROOT)
        if line := difference(shown, printed):
            problems.append(f"{page.relative_to(ROOT)}: $ {command}\nprints\n{printed}and not, where it is shown: {line}")
    return problems


def write_blocks(page: pathlib.Path, environment: dict[str, str]) -> None:
    """Where a line "..." stands for others, as many lines are shown before and behind it as there were: behind it from the line on
    that begins as the first of them did."""
    now: dict[str, str] = {}  # what stands for an id that a command prints, and others name

    def rewritten(block: re.Match[str]) -> str:
        text = ""
        for step in re.split(r"^\$ ", block.group(1), flags=re.MULTILINE)[1:]:
            command, _, shown = step.partition("\n")
            command = re.sub(r"\b[0-9a-f]{8,16}\b", lambda found: now.get(found.group(), found.group()), command)
            exit_code, printed = run_on_terminal(command, environment, ROOT)
            if exit_code not in ANSWERED:
                sys.exit(f"{page.relative_to(ROOT)}: $ {command}\n{printed}exit code {exit_code}")
            kept, lines = [], printed.splitlines()
            for part in re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE):
                wanted = part.splitlines()
                if kept and wanted:
                    lines = lines[next(at for at, line in enumerate(lines) if line.split()[:1] == wanted[0].split()[:1]):]
                kept.append("".join(line + "\n" for line in lines[:len(wanted)]))
                lines = lines[len(wanted):]
            if len(kept) > 1:
                printed = "...\n".join(kept)
            ids = [re.findall(r"\b[0-9a-f]{16}\b|\b[0-9a-f]{8}\b", lines) for lines in (shown, printed)]
            for old, new in zip(*ids, strict=False):
                now.update({old: new, old[:8]: new[:8]})
            text += f"$ {command}\n{printed}"
        return f"```console\n{text}```"

    page.write_text(BLOCK.sub(rewritten, page.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> int:
    program = pathlib.Path(sys.argv[1])
    environment = {"PATH": f"{program.parent}:{os.environ['PATH']}", "NO_COLOR": "1", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    main_help = help_of(str(program))
    known = {"": options_in(main_help)}
    known |= {command: options_in(help_of(str(program), command)) for command in commands_in(main_help)}
    problems = []
    for page in tracked("*.md"):
        if page.name != "CHANGELOG.md":
            problems += unknown_words(page, known)
        if page.name not in ("tutorial.md", "CONTRIBUTING.md"):
            if sys.argv[2:] == ["--write"]:
                write_blocks(page, environment)
            problems += wrong_blocks(page, environment)
    return report(problems)


if __name__ == "__main__":
    sys.exit(main())
