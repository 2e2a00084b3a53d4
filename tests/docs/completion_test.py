"""The bash completions know every command, option and listed value of --help, and complete as bash asks them to:
completion_test.py INGEROCTL INGEROD."""

import os
import pathlib
import pty
import select
import shutil
import subprocess
import sys
import tempfile
import time

from help_text import commands_in, help_of, options_in, values_in
from tracked import ROOT, report, skip

FOLDER = ROOT / "ctl" / "completion"
# Only the command's own text is in the answer of a hostile process, never a pid.
PROCESSES = r'{"processes":[{"comm":"\"pid\":666","pid":4711},{"comm":"python","pid":4812}]}'
problems: list[str] = []


def check(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        problems.append(f"{what}: {found!r} instead of {wanted!r}")


def complete(program: str, *words: str, name: str = "") -> set[str]:
    """What is offered for the last word. `name`: the program as it is called, where it is not found by its own name."""
    name = name or program
    script = (f'set -u; source "{FOLDER}/{program}.bash"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); '
              f'_{program} "$1" "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD - 1]}}"; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    ran = subprocess.run(["bash", "--norc", "-c", script, "bash", name, *words], capture_output=True, text=True,
                         check=False, timeout=60, stdin=subprocess.DEVNULL)
    check(f"{program} {' '.join(words)}: standard error", ran.stderr, "")
    return set(ran.stdout.split())


def check_against_help(program: str, path: str) -> None:
    main_help = help_of(path)
    commands = commands_in(main_help)
    common = options_in(main_help)
    check(f"{program}: commands", complete(program, ""), set(commands))
    check(f"{program}: options", complete(program, "--"), common)
    helps = [([], main_help)] + [([command], help_of(path, command)) for command in commands]
    for before, text in helps:
        check(f"{program} {' '.join(before)}: options", complete(program, *before, "--"), common | options_in(text))
        if before:
            check(f"{program} {' '.join(before)}: a second command", complete(program, *before, ""), set())
        for option, values in values_in(text).items():
            for form in ([option, ""], [option, "="], [option, "=", ""]):
                offered = complete(program, *before, *form, name="/nonexistent/program")
                if values is not None:
                    check(f"{program} {' '.join(before + form)}", offered, values)
                elif offered & (set(commands) | common):
                    problems.append(f"{program} {' '.join(before + form)}: offers {offered}, which are no values")
            check(f"{program} {' '.join([*before, option])}: options in place of a value",
                  complete(program, *before, option, "--"), set())


def make_program(folder: pathlib.Path, body: str) -> str:
    file = folder / "ingeroctl"
    file.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    file.chmod(0o755)
    return str(file)


def check_pids(ingeroctl: str, folder: pathlib.Path) -> None:
    fake = make_program(folder, f"printf '%s\\n' \"$*\" >{folder}/asked\ncat <<'END'\n{PROCESSES}\nEND")
    check("pids", complete("ingeroctl", "stats", "--pid", "", name=fake), {"4711", "4812"})
    check("pids that begin so", complete("ingeroctl", "stats", "--pid", "=", "48", name=fake), {"4812"})
    complete("ingeroctl", "--socket", "/a/socket", "explain", "--pid", "", name=fake)
    asked = (folder / "asked").read_text(encoding="utf-8").strip()
    check("the daemon that is asked for pids", asked, "--socket /a/socket --json processes")
    complete("ingeroctl", "explain", "--socket", "=", "/a/socket", "--pid", "", name=fake)
    check("likewise with =", (folder / "asked").read_text(encoding="utf-8").strip(), asked)
    check("a socket called like a command", complete("ingeroctl", "--socket", "stats", ""), complete("ingeroctl", ""))
    nobody = complete("ingeroctl", "--socket", "/nonexistent", "stats", "--pid", "", name=ingeroctl)
    check("without a daemon", nobody, set())
    check("without a program", complete("ingeroctl", "stats", "--pid", "", name=f"{folder}/none"), set())
    slow = make_program(folder, "exec sleep 30")
    begun = time.monotonic()
    check("with a daemon that hangs", complete("ingeroctl", "stats", "--pid", "", name=slow), set())
    if time.monotonic() - begun > 10:
        problems.append("a daemon that hangs holds the completion up for more than 10 s")


def check_files(folder: pathlib.Path) -> None:
    (folder / "data.d").mkdir()
    (folder / "data.conf").touch()
    both = {f"{folder}/data.d", f"{folder}/data.conf"}
    for program, option, wanted in [("ingeroctl", "--socket", both), ("ingerod", "--socket", both),
                                    ("ingerod", "--config", both), ("ingerod", "--worker", both),
                                    ("ingerod", "--directory", {f"{folder}/data.d"})]:
        check(f"{program} {option}", complete(program, option, f"{folder}/data"), wanted)


class Terminal:
    """A bash that somebody types into."""

    def __init__(self, folder: pathlib.Path):
        environment = {"PATH": f"{folder}:{os.environ['PATH']}", "TERM": "dumb", "INPUTRC": "/dev/null", "PS1": "",
                       "HOME": str(folder), "LC_ALL": "C.UTF-8"}
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environment)

    def type(self, text: str, until: str) -> str:
        os.write(self.fd, text.encode())
        seen = ""
        deadline = time.monotonic() + 30
        while until not in seen and time.monotonic() < deadline:
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    seen += os.read(self.fd, 4096).decode(errors="replace")
                except OSError:
                    break
        return seen

    def close(self) -> None:
        os.close(self.fd)
        os.waitpid(self.pid, 0)


def check_terminal(folder: pathlib.Path) -> None:
    make_program(folder, 'echo "<$*>"')
    terminal = Terminal(folder)
    # Written so that the echo of what is typed is not taken for the answer.
    seen = terminal.type(f"source '{FOLDER}/ingeroctl.bash'; echo rea''dy\n", "ready")
    for typed, wanted in [("ingeroctl expl\t--fail-on=hi\t--js\t\n", "<explain --fail-on=high --json>"),
                          ("ingeroctl stats --since 5m --lim\t3\n", "<stats --since 5m --limit 3>"),
                          ("ingeroctl explain --fr\t14:32 --to 15:00\n", "<explain --from 14:32 --to 15:00>")]:
        seen = terminal.type(typed, wanted + "\r\n")
        if wanted not in seen:
            problems.append(f"typed {typed!r}: {seen!r} instead of {wanted!r}")
    terminal.close()


def main() -> int:
    if shutil.which("bash") is None:
        return skip("bash is missing")
    ingeroctl, ingerod = sys.argv[1:3]
    check_against_help("ingeroctl", ingeroctl)
    check_against_help("ingerod", ingerod)
    for form in (["--fail-on", ""], ["--fail-on", "="], ["--fail-on", "=", ""]):
        check("severities", complete("ingeroctl", "explain", *form), {"low", "medium", "high"})
    with tempfile.TemporaryDirectory() as folder:
        check_files(pathlib.Path(folder))
        check_pids(ingeroctl, pathlib.Path(folder))
        check_terminal(pathlib.Path(folder))
    return report(problems)


if __name__ == "__main__":
    sys.exit(main())
