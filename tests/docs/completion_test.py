"""Completion in a shell knows every command, option and listed value of --help, completes what is typed, and makes nothing
but text of what it is told: completion_test.py bash|zsh|fish INGEROCTL INGEROD INGERO_RELAY."""

import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from help_text import commands_in, help_of, options_in, values_in
from shells import SHELLS, Shell
from tracked import report, skip

problems: list[str] = []
# A unit as a target may call it; no shell is to read any of it.
HOSTILE = "evil$(touch HIT);`touch HIT`&x y'z\"|>HIT"
DESCRIPTION = "%F{red}$(touch HIT)\\e[31m"


def check(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        problems.append(f"{what}: {found!r} instead of {wanted!r}")


def check_against_help(shell: Shell, path: pathlib.Path) -> None:
    """Every option of every command, and no other; each value that --help lists."""
    program = path.name
    main_help = help_of(str(path))
    common = options_in(main_help)
    commands = commands_in(main_help)
    wanted = {f"{program} --": common}
    if commands:
        wanted[f"{program} "] = set(commands)
    for command in commands:
        wanted[f"{program} {command} --"] = common | options_in(help_of(str(path), command))
    for option, values in values_in(main_help).items():
        if values is not None:
            wanted[f"{program} {option} "] = values
    for (line, words), offered in zip(wanted.items(), shell.offers(list(wanted)), strict=True):
        check(repr(line), offered, words)


def complete(program: str, *words: str) -> list[str]:
    """What the program itself says may stand there; the first line is what else."""
    return subprocess.run([program, "complete", "--", *words], capture_output=True, text=True, check=True, timeout=60,
                          stdin=subprocess.DEVNULL).stdout.splitlines()


def check_values(program: str, folder: pathlib.Path) -> None:
    """Each option that takes one of several words offers those that it takes, by what it says of another one."""
    any_taken = False
    for command in commands_in(help_of(program)):
        for option in values_in(help_of(program, command)):
            said = subprocess.run([program, command, option, "no such value"], capture_output=True, text=True, check=False,
                                  timeout=60, stdin=subprocess.DEVNULL, cwd=folder,
                                  env={"INGERO_SOCKET": "/nonexistent"}).stderr
            taken = re.search(r" wants ((?:[\w-]+, )*[\w-]+ or [\w-]+), not 'no such value'", said)
            any_taken |= bool(taken)
            for before in ([option, ""], [f"{option}="]):
                offered = [line.split("\t")[0].removeprefix(f"{option}=") for line in complete(program, command, *before)[1:]]
                if taken:
                    check(f"{command} {' '.join(before)}", set(offered), set(re.split(", | or ", taken.group(1))))
                elif set(offered) & set(commands_in(help_of(program))):
                    problems.append(f"{command} {' '.join(before)}: offers {offered}, which are no values")
    if not any_taken:
        problems.append("no option says which words it takes")


def check_without_daemon(program: str, folder: pathlib.Path) -> None:
    """A daemon that is not there, and one that says nothing, are no candidates, soon."""
    begun = time.monotonic()
    check("without a daemon", complete(program, "--socket", f"{folder}/none", "stats", "--pid", ""), ["words"])
    without = time.monotonic() - begun
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{folder}/silent.sock")
        silent.listen()
        begun = time.monotonic()
        check("with one that is silent", complete(program, "--socket", f"{folder}/silent.sock", "stats", "--pid", ""), ["words"])
        if time.monotonic() - begun > without + 0.5:
            problems.append(f"a silent daemon holds the completion up for {time.monotonic() - begun:.2f} s")
    check("an unknown command", complete(program, "bogus", "--"), ["words"])
    check("words of another program", complete(program, "annotate", "--id", "x", "ls", "--"), ["commands"])


def check_typed(shell: Shell) -> None:
    """At a terminal: one candidate is put in."""
    for typed, words in [("ingeroctl expl", ["explain"]), ("ingeroctl explain --fail-on=hi", ["explain", "--fail-on=high"]),
                         ("ingeroctl explain --fail-on hi", ["explain", "--fail-on", "high"]),
                         ("ingeroctl --db demo:cpu-c", ["--db", "demo:cpu-contention"]),
                         ("ingeroctl demo strag", ["demo", "straggler"]),
                         ("ingeroctl problems own-io", ["problems", "own-io-wait"]),
                         ("ingeroctl trace --op cudaDeviceSy", ["trace", "--op", "cudaDeviceSync"])]:
        check(repr(typed), shell.words_after_tab(typed), ["ingeroctl", *words])
    (shell.folder / "a store").mkdir()
    path = shell.words_after_tab("ingeroctl --db a")
    check("a path", [word.rstrip("/") for word in path], ["ingeroctl", "--db", "a store"])


def check_inert(shell_class: type[Shell], folder: pathlib.Path) -> None:
    programs = folder / "programs"
    programs.mkdir()
    answer = programs / "answer"
    answer.write_text(f"words\n{HOSTILE}\t{DESCRIPTION}\n", encoding="utf-8")
    program = programs / "ingeroctl"
    program.write_text(f"#!/bin/sh\ncat {answer}\n", encoding="utf-8")
    program.chmod(0o755)
    home = folder / "home"
    home.mkdir()
    shell = shell_class(home, str(programs))
    check("hostile text", shell.words_after_tab("ingeroctl record --unit ev"), ["ingeroctl", "record", "--unit", HOSTILE])
    answer.write_text(f"words\n{HOSTILE}\t{DESCRIPTION}\nevil-other\t{DESCRIPTION}\n", encoding="utf-8")
    terminal = shell.terminal()
    seen = terminal.type("ingeroctl record --unit ev\t\t\t", "evil-other")
    seen += terminal.type("\x15echo do''ne\n", "done\r\n")
    terminal.close()
    if "evil-other" not in seen:
        problems.append(f"nothing is listed: {seen!r}")
    if list(home.rglob("HIT")):
        problems.append("text of a candidate was run")


def main() -> int:
    name, paths = sys.argv[1], [pathlib.Path(path).resolve() for path in sys.argv[2:5]]
    if shutil.which(name) is None:
        return skip(f"{name} is missing")
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        home = place / "complete"
        home.mkdir()
        programs = ":".join(str(path.parent) for path in paths)
        shell = SHELLS[name](home, programs)
        for path in paths:
            check_against_help(shell, path)
        if name == "bash":  # the same for all
            check_values(str(paths[0]), place)
            check_without_daemon(str(paths[0]), place)
        check_typed(shell)
        check_inert(SHELLS[name], place)
    return report(problems)


if __name__ == "__main__":
    sys.exit(main())
