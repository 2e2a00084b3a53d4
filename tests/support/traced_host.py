"""An ingerod on a folder of its own and a program that it traces, for tests that ask as people do."""

from __future__ import annotations

import json
import os
import pathlib
import select
import subprocess
import sys
import time

SKIPPED = 77
LIMIT_S = 60


def skip(why: str) -> None:
    print(f"SKIPPED: {why}")
    sys.exit(SKIPPED)


def wait_for_line(process: subprocess.Popen, text: str) -> str:
    """All that it printed until a line with `text`; fails at its end or after the time."""
    seen = b""
    until = time.monotonic() + LIMIT_S
    while text.encode() not in seen:
        if not select.select([process.stdout], [], [], max(0, until - time.monotonic()))[0]:
            raise AssertionError(f"{process.args}: no '{text}' within {LIMIT_S} s: {seen.decode(errors='replace')}")
        more = os.read(process.stdout.fileno(), 65536)
        if not more:
            raise AssertionError(f"{process.args} ended: {seen.decode(errors='replace')}")
        seen += more
    return seen.decode(errors="replace")


# What Debian's system bus lets everybody do.
BUS = """<busconfig><type>system</type><auth>EXTERNAL</auth><listen>{address}</listen>
<policy context="default"><allow user="*"/><deny own="*"/><deny send_type="method_call"/><allow send_type="signal"/>
<allow send_requested_reply="true" send_type="method_return"/><allow send_requested_reply="true" send_type="error"/>
<allow receive_type="method_call"/><allow receive_type="method_return"/><allow receive_type="error"/>
<allow receive_type="signal"/><allow send_destination="org.freedesktop.DBus"/></policy>
<policy user="0"><allow own="io.ingero.Ingero1"/></policy><include>{rules}</include></busconfig>"""


class TracedHost:
    """`ingeroctl`, `ingerod`, `workload`: the programs. What they leave behind lies below `folder`. `bus_rules`: the policy of
    the daemon's name, for a bus of its own; empty: none."""

    def __init__(self, ingeroctl: str, ingerod: str, workload: str, folder: pathlib.Path, config: str = "",
                 bus_rules: str = ""):
        if os.geteuid() != 0:
            skip("loading BPF needs root")
        self.ingeroctl, self.ingerod, self.folder = pathlib.Path(ingeroctl), pathlib.Path(ingerod), folder
        self.workload_program = workload
        self.run = folder / "run"
        file = folder / "ingerod.conf"
        file.write_text(config, encoding="utf-8")
        self.environment = {"PATH": f"{self.ingeroctl.parent}:{self.ingerod.parent}:/usr/sbin:/usr/bin:/sbin:/bin",
                            "INGERO_SOCKET": f"{self.run}/control.sock", "INGERO_SPANS_SOCKET": f"{self.run}/spans.sock",
                            "HOME": str(folder), "LC_ALL": "C.UTF-8",
                            "DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={folder}/bus"}
        self.children: list[subprocess.Popen] = []
        if bus_rules:
            rules = BUS.format(address=self.environment["DBUS_SYSTEM_BUS_ADDRESS"], rules=bus_rules)
            (folder / "bus.conf").write_text(rules, encoding="utf-8")
            self.start(["dbus-daemon", f"--config-file={folder}/bus.conf", "--nofork", "--print-address=1"], "unix:")
        self.daemon = self.start([ingerod, "--directory", self.run, "--config", file, *(["--bus", "system"] if bus_rules else [])],
                                 "is ready")

    def start(self, command: list, ready: str, **more) -> subprocess.Popen:
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, **{"env": self.environment, **more})
        self.children.append(process)
        wait_for_line(process, ready)
        return process

    def start_workload(self, *arguments: str, prefix: tuple = (), **more) -> subprocess.Popen:
        """Behind its gate, traced, and then let go."""
        process = self.start([*prefix, self.workload_program, *arguments, "--gate"], "ready", **more)
        until = time.monotonic() + LIMIT_S
        while not any(one["pid"] == process.pid and one["state"] == "tracing" for one in self.ask("processes")["processes"]):
            assert time.monotonic() < until, f"{process.pid} is not traced"
        process.stdin.write(b"go\n")
        process.stdin.flush()
        return process

    def ctl(self, *arguments: str, **more) -> subprocess.CompletedProcess:
        return subprocess.run([self.ingeroctl, *arguments], capture_output=True, text=True, check=False,
                              **{"timeout": LIMIT_S, "stdin": subprocess.DEVNULL, "env": self.environment, **more})

    def ask(self, *arguments: str) -> dict:
        answer = self.ctl("--json", *arguments)
        assert answer.stdout, f"ingeroctl {' '.join(arguments)}: {answer}"
        return json.loads(answer.stdout)

    def wait_for_calls(self, pid: int) -> None:
        """Until calls of the process are in the store."""
        until = time.monotonic() + LIMIT_S
        while not self.ask("stats", "--pid", str(pid))["ops"]:
            assert time.monotonic() < until, f"no calls of {pid}"

    def __enter__(self) -> TracedHost:
        return self

    def __exit__(self, *_) -> None:
        for process in reversed(self.children):
            process.terminate()
            try:
                process.wait(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
