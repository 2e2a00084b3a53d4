"""Every example of the man pages, and of each command's --help, runs as it stands and exits as it should, with a real
ingerod that traces a program: examples_test.py INGEROCTL INGEROD WORKLOAD BUS_RULES. Those that need systemd run in the booted
system: examples_of_systemd_run in tests/system/booted_checks.py.

What stands for something of the reader's own is replaced by what there is here: see REPLACED. The examples run in one
folder, those first that make what others name."""

import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "docs"), str(HERE.parent / "support")]
from help_text import commands_in, examples_in, help_of  # noqa: E402
from man_page import ManPage, commands_of_examples, needs_systemd, pages  # noqa: E402
from traced_host import TracedHost, skip, wait_for_line  # noqa: E402

# The reader's process, a minute of patience, and a folder of theirs.
REPLACED = {r"\b4711\b": "{pid}", r"\b30s\b": "1s", r"\b10s\b": "1s", "/tmp/ingero": "{folder}/second"}
# Those that end when they are interrupted, and what they print before.
ENDLESS = {"ingeroctl monitor --count 1": "connected to ingerod at", "gdbus monitor --system --dest io.ingero.Ingero1": "io.ingero.Ingero1"}
# Where it is not 0. A window of the past, in which this daemon did not run yet, is answered in part.
EXIT_CODES = {"ingeroctl explain --since 2h --fail-on high": {3, 5},
              "ingeroctl explain --from 14:30 --to 15:00 --pid 4711": {0, 5},
              # As long as it reads the libraries of programs it says that it is starting.
              "ingerod --directory /tmp/ingero &\ningeroctl --socket /tmp/ingero/control.sock status": {0, 4}}
# What has nothing to say where all is well.
SILENT = ("ingeroctl mcp", "ingeroctl --db recording mcp", "ingeroctl annotate --label", "ingeroctl trace", "busctl call")
MAKERS = ("ingeroctl record --pid", "ingeroctl import")
LIMIT_S = 60


def examples(ingeroctl: str) -> dict[str, str]:
    """Where it stands, by example."""
    found = {}
    for page in map(ManPage, pages()):
        for command in commands_of_examples(page):
            found.setdefault(command, page.name)
    for command in commands_in(help_of(ingeroctl)):
        lines = examples_in(help_of(ingeroctl, command))
        assert 1 <= len(lines) <= 3, f"{command} --help has {len(lines)} examples"
        for line in lines:
            found.setdefault(line, f"ingeroctl {command} --help")
    return found


def make_trace(file: pathlib.Path) -> None:
    """As the earlier agent recorded."""
    trace = sqlite3.connect(file)
    trace.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, timestamp INTEGER, pid INTEGER, tid INTEGER, source INTEGER, "
                  "op INTEGER, duration INTEGER, gpu_id INTEGER, arg0 INTEGER, arg1 INTEGER, ret_code INTEGER)")
    trace.executemany("INSERT INTO events VALUES (?, ?, 100, 100, 1, 3, 5000, 0, 0, 0, 0)",
                      [(i, 1_700_000_000_000_000_000 + i * 1_000_000) for i in range(1, 50)])
    trace.commit()
    trace.close()


class Examples:
    def __init__(self, host: TracedHost, folder: pathlib.Path, pid: int):
        self.host, self.folder, self.pid = host, folder, pid
        self.problems: list[str] = []

    def run(self, example: str, where: str) -> None:
        line = example
        for pattern, by in REPLACED.items():
            line = re.sub(pattern, by.format(pid=self.pid, folder=self.folder), line)
        wanted = EXIT_CODES.get(example, {0})
        if example in ENDLESS:
            code, told = self.interrupt(line, ENDLESS[example])
        else:
            *background, last = line.splitlines()
            for one in background:
                assert one.endswith(" &"), f"{where}: of several lines only the last may end: {one}"
                self.host.start(["/bin/sh", "-c", "exec " + one[:-2]], "is ready")
            done = subprocess.run(["/bin/bash", "-c", last], cwd=self.folder, env=self.host.environment, capture_output=True,
                                  text=True, check=False, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
            code, told = done.returncode, done.stdout + done.stderr
        if code not in wanted:
            self.problems.append(f"{where}: {example!r}: exit code {code}, not one of {sorted(wanted)}: {told[-600:]}")
        if not told.strip() and not example.startswith(SILENT):
            self.problems.append(f"{where}: {example!r} prints nothing")

    def interrupt(self, line: str, until: str) -> tuple[int, str]:
        process = subprocess.Popen(["/bin/sh", "-c", "exec " + line], cwd=self.folder, env=self.host.environment,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        told = wait_for_line(process, until)
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=LIMIT_S)
        process.stdout.close()
        return (0 if code == -signal.SIGINT else code), told


def main() -> int:
    ingeroctl, ingerod, workload, bus_rules = sys.argv[1:5]
    for program in ("dbus-daemon", "busctl", "gdbus", "jq"):
        if shutil.which(program) is None:
            skip(f"{program} is missing")
    found = examples(ingeroctl)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_trace(folder / "trace.db")
        (folder / "train.py").write_text("print('trained')\n", encoding="utf-8")
        with TracedHost(ingeroctl, ingerod, workload, folder, bus_rules=bus_rules) as host:
            process = host.start_workload("--pace", "sleep", "train", "--steps", "100000000", "--step-rate", "50", "--launches", "10")
            host.wait_for_calls(process.pid)
            host.ctl("annotate", "--kind", "request", "--id", "cmpl-17", "--", "true")
            runs = Examples(host, folder, process.pid)
            for example, where in sorted(found.items(), key=lambda one: (not one[0].startswith(MAKERS), one)):
                if not needs_systemd(example):
                    runs.run(example, where)
    print(f"{len(found)} examples, {sum(map(needs_systemd, found))} of them need systemd")
    print("\n".join(runs.problems))
    unused = [example for example in [*ENDLESS, *EXIT_CODES] if example not in found]
    if unused:
        print(f"exceptions for examples that are not there: {unused}")
    return 1 if runs.problems or unused else 0


if __name__ == "__main__":
    sys.exit(main())
