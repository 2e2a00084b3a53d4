"""A daemon on a folder of its own, and programs behind their gates under it."""

from __future__ import annotations

import collections
import json
import os
import pathlib
import selectors
import subprocess
import time

from ops import op_of

LIMIT_S = 120
Calls = collections.Counter  # by (operation, "calls" | "errors")


class Failure(Exception):
    """What was tried, and why it did not work."""


class Programs:
    """Where everything lies, in an unpacked archive or in a build tree."""

    def __init__(self, tree: pathlib.Path) -> None:
        portable = (tree / "sbin/ingerod").exists()
        self.ingerod = tree / ("sbin/ingerod" if portable else "daemon/ingerod/ingerod")
        self.ingeroctl = tree / ("bin/ingeroctl" if portable else "ctl/ingeroctl")
        self.cuda = tree / ("gpu" if portable else "tests/gpu")
        for program in (self.ingerod, self.ingeroctl):
            if not program.exists():
                raise Failure(f"{program} is not there: unpack the archive, or build with scripts/build release")


class Output:
    """The lines that a process prints, each within a time."""

    def __init__(self, process: subprocess.Popen) -> None:
        self.process = process
        self.rest = b""
        self.lines: list[str] = []
        self.selector = selectors.DefaultSelector()
        self.selector.register(process.stdout, selectors.EVENT_READ)

    def next(self, limit_s: float = LIMIT_S) -> str | None:
        """None at the end."""
        until = time.monotonic() + limit_s
        while b"\n" not in self.rest:
            if not self.selector.select(max(0, until - time.monotonic())):
                raise Failure(f"{self.process.args[0]} printed nothing for {limit_s} s")
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                return None
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        self.lines.append(line.decode(errors="replace"))
        return self.lines[-1]


class Daemon:
    # Every call has a record of its own: counts are compared.
    EACH_CALL = '[capture]\noverhead_budget = 0\nwait_floor = "off"\n'

    def __init__(self, programs: Programs, folder: pathlib.Path, settings: str = EACH_CALL) -> None:
        self.programs = programs
        self.folder = folder
        folder.mkdir(exist_ok=True)
        config = folder / "ingerod.conf"
        config.write_text(settings)
        self.process = subprocess.Popen([programs.ingerod, "--directory", folder / "run", "--config", config],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.output = Output(self.process)
        while (line := self.output.next()) is not None:
            if "is ready" in line:
                return
        raise Failure("ingerod did not get ready:\n" + "\n".join(self.output.lines))

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_) -> None:
        self.process.terminate()
        try:
            self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def ask(self, command: str, *options: str) -> dict:
        done = subprocess.run([self.programs.ingeroctl, "--socket", self.folder / "run/control.sock", "--json", command,
                               *options], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        # 5 is a partial answer: what was before the first record is not covered.
        if done.returncode not in (0, 5):
            raise Failure(f"ingeroctl {command}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def wait_traced(self, pid: int, limit_s: float = 20) -> None:
        until = time.monotonic() + limit_s
        state = None
        while time.monotonic() < until:
            state = next((one["state"] for one in self.ask("processes")["processes"] if one["pid"] == pid), None)
            if state == "tracing":
                return
        raise Failure(f"the program is not traced after {limit_s:g} s: "
                      f"{'its state is ' + state if state else 'no library of it was found'}")

    def traced_ops(self) -> set[str]:
        return {probe["op"] for probe in self.ask("probes")["probes"] if probe["functions"] > 0}

    def rows(self, pid: int) -> list[dict]:
        return self.ask("stats", "--since", "1h", "--pid", str(pid))["ops"]

    def calls(self, pid: int) -> Calls:
        calls: Calls = Calls()
        for row in self.rows(pid):
            calls[row["op"], "calls"] += row["count"]
            calls[row["op"], "errors"] += row["errors"]
        return calls


class Run:
    """A program that has run to its end: its last line, and what was recorded of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pid = 0
        self.answer: dict = {}
        self.recorded: Calls = Calls()
        self.at_gates: list[Calls] = []
        self.rows: list[dict] = []
        self.skipped = ""

    def own(self) -> Calls:
        """As the program counted."""
        calls: Calls = Calls()
        for function, results in self.answer.get("calls", {}).items():
            for result, count in results.items():
                calls[op_of(function), "calls"] += count
                calls[op_of(function), "errors"] += 0 if result == "0" else count
        return calls


def run_program(command: list, daemon: Daemon | None = None, name: str = "", snapshots: bool = False,
                environment: dict | None = None) -> Run:
    """Runs it, with a daemon behind its gates: it prints `ready PID` and waits for a line where that may attach."""
    run = Run(name or pathlib.Path(command[0]).name)
    process = subprocess.Popen([*command, *(["--gate"] if daemon else [])], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, env=dict(os.environ, **(environment or {})))
    try:
        output = Output(process)
        while (line := output.next()) is not None:
            if line.startswith("ready ") and daemon:
                run.pid = process.pid
                daemon.wait_traced(process.pid)
                if snapshots:
                    run.at_gates.append(daemon.calls(process.pid))
                process.stdin.write(b"go\n")
                process.stdin.flush()
            elif line.startswith("{"):
                run.answer = json.loads(line)
            elif line.startswith("SKIPPED: "):
                run.skipped = line.removeprefix("SKIPPED: ")
        status = process.wait(LIMIT_S)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
    if run.skipped:
        return run
    if status != 0 or not run.answer:
        raise Failure(f"{run.name} ended with status {status}, and printed: {output.lines[-5:]}")
    if daemon:
        run.rows = daemon.rows(run.pid)
        run.recorded = daemon.calls(run.pid)
    return run
