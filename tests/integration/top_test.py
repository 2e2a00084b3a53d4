"""ingeroctl top on a real terminal, with a real ingerod that traces programs: what it shows of a program that is held up, of a
call that does not return and of a request; its keys, other sizes, and a daemon that goes away and comes back; and once into a
pipe: top_test.py INGEROCTL INGEROD WORKLOAD SCHEMA VALIDATE."""

import json
import os
import pathlib
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support")]
from traced_host import LIMIT_S, TracedHost, skip  # noqa: E402


class Tmux:
    """A terminal in which a command runs. A client in control mode tells each time that something is written to it."""

    def __init__(self, folder: pathlib.Path, environment: dict[str, str], width: int, height: int, command: str):
        self.base = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
        self.environment = {**environment, "TERM": "xterm-256color"}
        self.run("new-session", "-d", "-x", str(width), "-y", str(height), command)
        try:
            self.run("set-option", "-g", "window-size", "manual")
            self.client = subprocess.Popen([*self.base, "-C", "attach-session"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                           stderr=subprocess.STDOUT, env=self.environment)
        except BaseException:
            self.run("kill-server")
            raise

    def run(self, *words: str) -> str:
        return subprocess.run([*self.base, *words], check=True, capture_output=True, text=True, timeout=LIMIT_S,
                              stdin=subprocess.DEVNULL, env=self.environment).stdout

    def screen(self) -> list[str]:
        return self.run("capture-pane", "-p").splitlines()

    def type(self, *keys: str) -> None:
        self.run("send-keys", *keys)

    def resize(self, width: int, height: int) -> None:
        self.run("resize-window", "-x", str(width), "-y", str(height))

    def wait_for(self, what: str, holds) -> list[str]:
        """Looks again whenever something was drawn."""
        until = time.monotonic() + LIMIT_S
        while True:
            screen = self.screen()
            if holds("\n".join(screen)):
                return screen
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.client.stdout], [], [], left)[0] or not os.read(self.client.stdout.fileno(), 65536):
                raise AssertionError(f"{what}: not seen on\n" + "\n".join(screen))

    def wait_for_end(self) -> None:
        """Of the command, and so of the session, and so of the client."""
        until = time.monotonic() + LIMIT_S
        while select.select([self.client.stdout], [], [], max(0, until - time.monotonic()))[0]:
            if not os.read(self.client.stdout.fileno(), 65536):
                return
        raise AssertionError("it does not end: " + "\n".join(self.screen()))

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        # There is no server where the command has ended.
        subprocess.run([*self.base, "kill-server"], check=False, capture_output=True, timeout=LIMIT_S, env=self.environment)
        self.client.communicate(timeout=LIMIT_S)


def row_of(screen: list[str], pid: int) -> str:
    found = [line for line in screen if re.match(rf"[> ]\s+{pid}\b", line)]
    return found[0] if len(found) == 1 else ""


def look_once(host: TracedHost, pid: int, schema: str, validate: str) -> None:
    answer = host.folder / "answer.json"
    # A host that is held up has calls in half a minute all the same.
    done = host.ctl("top", "--once", "--json", "--interval", "30s")
    assert done.returncode == 0, done
    answer.write_text(done.stdout, encoding="utf-8")
    valid = subprocess.run([sys.executable, validate, schema, str(answer)], capture_output=True, text=True, check=False)
    assert valid.returncode in (0, 77), valid.stderr
    looked = json.loads(done.stdout)
    own = next(one for one in looked["processes"] if one["pid"] == pid)
    assert own["ops"] and own["longest_ns"] > 0 and sum(own["split"].values()) > 0, own
    # Driver calls inside calls of the runtime are not counted a second time.
    assert {op["op"] for op in own["ops"]} == {"cudaLaunchKernel"}, own["ops"]
    only = json.loads(host.ctl("top", "--once", "--json", "--pid", str(pid)).stdout)
    assert [one["pid"] for one in only["processes"]] == [pid] and not only["in_flight"], only
    text = host.ctl("top", "--once")
    assert text.returncode == 0 and re.search(rf"^\s+{pid}\s", text.stdout, re.MULTILINE), text
    alone = host.ctl("top", "--once", "--pid", str(pid), "--interval", "30s")
    assert alone.returncode == 0 and "cudaLaunchKernel" in alone.stdout, alone
    absent = host.ctl("top", "--once", "--pid", "2147483647")
    assert absent.returncode == 1 and "no traced process 2147483647" in absent.stderr, absent
    no_terminal = host.ctl("top")
    assert no_terminal.returncode == 2 and "no terminal to draw on" in no_terminal.stderr, no_terminal
    for wrong in ("soon", "1ms", "2h"):
        assert host.ctl("top", "--interval", wrong).returncode == 2, wrong
    nobody = host.ctl("--socket", "/nonexistent", "top", "--once")
    assert nobody.returncode == 4, nobody


def main() -> int:
    ingeroctl, ingerod, workload, schema, validate = sys.argv[1:6]
    if shutil.which("tmux") is None:
        skip("tmux is missing")
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        with TracedHost(ingeroctl, ingerod, workload, folder, '[capture]\ninflight_floor = "200ms"\n') as host:
            calls = host.start_workload("--pace", "sleep", "calls", "--count", "100000000", "--rate", "200").pid
            blocked = host.start_workload("sync-loop", "--duration", "600",
                                          env={**host.environment, "INGERO_STANDIN": "at=cudaStreamSynchronize:3:futex=600000000"})
            stuck = blocked.pid
            host.wait_for_calls(calls)
            look_once(host, calls, schema, validate)
            status = folder / "status"
            command = f"{ingeroctl} top --interval 500ms; echo $? >{status}"
            try:
                with Tmux(folder, host.environment, 80, 24, command) as terminal:
                    watch(terminal, host, calls, stuck, [ingerod, "--directory", host.run, "--config", folder / "ingerod.conf"])
                    terminal.wait_for_end()
            finally:
                blocked.kill()  # it does not hear of an end
            assert status.read_text(encoding="utf-8") == "0\n", status.read_text(encoding="utf-8")
    return 0


def watch(terminal: Tmux, host: TracedHost, calls: int, stuck: int, daemon: list) -> None:
    def shows(*texts: str):
        return lambda screen: all(text in screen for text in texts)

    terminal.wait_for("both programs", lambda screen: row_of(screen.split("\n"), calls) and row_of(screen.split("\n"), stuck) and
                      "q quit" in screen.split("\n")[-1] and "sort: lost" in screen.split("\n")[-1])
    terminal.wait_for("the call that does not return",
                      lambda screen: re.search(rf"cudaStreamSync of \S+ \({stuck}\): [\d.]+ (ms|s|min), blocked", screen))
    annotated = host.ctl("annotate", "--kind", "request", "--id", "cmpl-of-top", "--", "true")
    assert annotated.returncode == 0, annotated
    terminal.wait_for("the request", shows("Slowest requests of the last minute", "cmpl-of-top"))

    # One order after the other: by pid the lower one is first, whatever they do.
    for order in ("calls", "longest", "memory", "pid"):
        terminal.type("s")
        screen = terminal.wait_for(order, shows(f"sort: {order}"))
    rows = [line for line in screen if row_of([line], calls) or row_of([line], stuck)]
    assert rows == sorted(rows, key=lambda line: int(line[1:].split()[0])), screen

    # The other one is selected, alone, and all again.
    terminal.type("k", "k", "k")
    first, second = sorted((calls, stuck))
    terminal.wait_for("the first", lambda screen: row_of(screen.split("\n"), first).startswith(">"))
    terminal.type("Down")
    terminal.wait_for("the second", lambda screen: row_of(screen.split("\n"), second).startswith(">"))
    terminal.type("k")
    terminal.type("j")
    terminal.wait_for("the second again", lambda screen: row_of(screen.split("\n"), second).startswith(">"))
    terminal.type("Enter")
    other = "cudaStreamSync" if second == calls else "cudaLaunchKernel"
    terminal.wait_for("its operations", lambda screen: f"({second})" in screen and "escape back" in screen and other not in screen)
    terminal.type("Escape")
    terminal.wait_for("all again", lambda screen: row_of(screen.split("\n"), first))

    # Only what is typed; then nothing; then all.
    terminal.type("/")
    terminal.type(str(stuck))
    terminal.wait_for("the filter", lambda screen: f"Filter: {stuck}_" in screen and not row_of(screen.split("\n"), calls))
    terminal.type("x")
    terminal.wait_for("a filter that nothing has", shows(f"No process has '{stuck}x' in its pid"))
    terminal.type("BSpace", "Enter")
    terminal.wait_for("what is kept", lambda screen: f"/ filter: {stuck}" in screen and row_of(screen.split("\n"), stuck))
    terminal.type("Escape")
    terminal.wait_for("without it", lambda screen: row_of(screen.split("\n"), calls))

    # Other sizes: the keys are the last line, each program has one row, and columns come and go.
    for width, height, has, has_not in ((60, 12, "LOST", "CALLS/S"), (132, 40, "LONGEST", "RANK"), (80, 24, "CALLS/S", "LONGEST")):
        terminal.resize(width, height)

        def fits(screen: str, height=height, has=has, has_not=has_not) -> bool:
            lines = screen.split("\n")
            title = next((line for line in lines if line.startswith("  ") and " PID " in line and "DEVICE" in line), "")
            return bool(len(lines) == height and lines[-1].startswith("q quit") and has in title and has_not not in title and
                        row_of(lines, calls) and row_of(lines, stuck))

        terminal.wait_for(f"{width} by {height}", fits)

    # A daemon that goes away, and the next one.
    host.daemon.terminate()
    assert host.daemon.wait(timeout=LIMIT_S) == 0
    terminal.wait_for("that it is gone", shows("the connection to ingerod is lost; reconnecting"))
    host.start(daemon, "is ready")
    terminal.wait_for("the next one", lambda screen: "is lost" not in screen and row_of(screen.split("\n"), calls))

    terminal.type("Space")
    terminal.wait_for("a pause", shows("space resume"))
    terminal.type("q")


if __name__ == "__main__":
    sys.exit(main())
