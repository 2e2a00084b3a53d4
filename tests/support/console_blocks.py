"""Blocks of `console` in documents: commands after "$ ", each with the lines that it prints. A line "..." stands for any lines.

What differs each time is compared by its kind only: numbers, times, identifiers, severities, widths."""

import contextlib
import fcntl
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

VARYING = (
    (r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)|\b\d\d:\d\d:\d\d\.\d+", "TIME"),
    (r"\b([0-9a-f]{16}|[0-9a-f]{8})\b", "ID"),
    (r"\b(HIGH|MEDIUM|LOW|high|medium|low)\b", "SEVERITY"),
    (r"\[[-=#.]{24}\]", "BAR"),
    (r"<?\d[\d,.]*( (ns|µs|ms|s|min|KiB|MiB|GiB)\b| %)?", "N"),
    (r"N to N|at most N", "N"),
    # Told where it is another time than was lost.
    (r"; waited N$", ""),
    (r"\s+", " "),
)


def shape_of(line: str) -> str:
    for pattern, word in VARYING:
        line = re.sub(pattern, word, line)
    return line.strip()


BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


def steps(page: pathlib.Path):
    """(command, lines that it prints) of each command of a page."""
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = step.partition("\n")
            yield command, shown.splitlines()


def difference(shown: list[str], printed: str) -> str | None:
    """The first line shown that was not printed at its place: after the line before it, or later where "..." stands between."""
    lines = [shape_of(line) for line in printed.splitlines()]
    at, may_skip = 0, False
    for line in shown:
        if line == "...":
            may_skip = True
            continue
        wanted = shape_of(line)
        candidates = range(at, len(lines) if may_skip else min(at + 1, len(lines)))
        found = next((index for index in candidates if lines[index] == wanted), None)
        if found is None:
            return line
        at, may_skip = found + 1, False
    rest = [line for line in lines[at:] if line]
    return f"(end of what is shown) before: {rest[0]}" if rest and not may_skip else None


def run_on_terminal(command: str, environment: dict[str, str], folder: pathlib.Path, columns: int = 100,
                    limit_s: float = 60) -> tuple[int, str]:
    """(exit code, what a shell's command wrote to a terminal of so many columns); TimeoutError beyond the limit."""
    ours, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 1000, columns, 0, 0))
    with open(ours, "rb", buffering=0) as reader:
        with subprocess.Popen(["sh", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                              stdout=terminal, stderr=terminal, start_new_session=True) as process:
            os.close(terminal)
            output, end = b"", time.monotonic() + limit_s
            try:
                while chunk := _read(reader, end):
                    output += chunk
                return process.wait(max(0, end - time.monotonic())), output.decode().replace("\r\n", "\n")
            except (TimeoutError, subprocess.TimeoutExpired) as late:
                raise TimeoutError(f"$ {command}\nprinted in {limit_s} s\n{output.decode(errors='replace')}") from late
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def _read(reader, end: float) -> bytes:
    if not select.select([reader], [], [], max(0, end - time.monotonic()))[0]:
        raise TimeoutError
    try:
        return reader.read(65536)
    except OSError:  # the last program that had the terminal open has ended
        return b""
