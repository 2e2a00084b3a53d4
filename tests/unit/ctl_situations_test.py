"""What each command of ingeroctl says, and its exit code, where something is not as it should be: a value of the wrong kind, a
missing or unreadable file, no daemon, a process that was not recorded, an empty window; and what it looks like on 60 columns,
in a pipe, without colours and with hostile names; and command lines that the daemons do not understand:
ctl_situations_test.py INGEROCTL INGEROD RELAY."""

import concurrent.futures
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import tempfile
import unicodedata

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path += [str(ROOT / "tests/support"), str(ROOT / "tests/docs")]
from console_blocks import run_on_terminal  # noqa: E402
from help_text import commands_in, help_of, option_lines  # noqa: E402

INGEROCTL = pathlib.Path(sys.argv[1])
ENVIRONMENT = {"PATH": f"{INGEROCTL.parent}:{os.environ['PATH']}", "TZ": "UTC", "LC_ALL": "C.UTF-8", "TERM": "xterm",
               "INGERO_SOCKET": "/nonexistent/control.sock"}
DONE, FAILED, USAGE, NO_DAEMON, PARTIAL = 0, 1, 2, 4, 5
HOSTILE = "\x1b[31mevil\x07\u202e"

# Of a store, each with what else it needs, on the scenario that has most to say.
OF_A_STORE = {"explain": [], "incidents": [], "stragglers": [], "waits": [], "stacks": [], "processes": [], "stats": [],
              "gpus": [], "requests": [], "query": ["SELECT count(*) FROM events"], "export": ["--format", "csv"]}
WITHOUT_A_DAEMON = {"mcp", "problems", "demo", "import", "merge", "db", "check", "support-bundle"}
NEEDED = {"query": ["SELECT 1"], "export": ["--format", "csv"], "annotate": ["--id", "a"], "record": ["--pid", "1", "-o", "/nonexistent/x"],
          "monitor": ["--count", "1"], "top": ["--once"]}
# Of a value that has a kind: whatever else a user types there is a mistake.
OF_A_KIND = ("PID", "TID", "ROWS", "WAITS", "STACKS", "INCIDENTS", "CALLS", "DURATION", "TIME", "WHEN", "SEVERITY", "WHAT", "BY",
             "FORMAT", "KIND")

problems: list[str] = []


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(arguments, env=ENVIRONMENT | environment, capture_output=True, text=True, timeout=120,
                          stdin=subprocess.DEVNULL, errors="replace", check=False)


def ingeroctl(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return run(str(INGEROCTL), *arguments, **environment)


def check(what: object, is_so: bool, shown: str = "") -> None:
    if not is_so:
        problems.append(f"{what}: {shown[-600:]}")


def is_a_mistake(what: object, ran: subprocess.CompletedProcess, exit_code: int, said: str = "") -> None:
    """An error in one line, with what to do."""
    lines = ran.stderr.splitlines()
    name = next(pathlib.Path(word).name for word in ran.args if str(word) in sys.argv[1:])
    check(what, ran.returncode == exit_code and len(lines) >= 2 and lines[0].startswith(f"{name}: ") and
          lines[1].startswith("hint: ") and said in lines[0] and "\x1b" not in ran.stderr and not ran.stdout,
          f"exit code {ran.returncode}, not {exit_code}: {ran.stdout}{ran.stderr}")


def wrong_kinds(command: str) -> None:
    for line in option_lines(help_of(str(INGEROCTL), command)):
        taken = re.match(r"(?:-\w,)?(--[a-z-]+) ([A-Z]+)", line)
        if not taken or taken.group(2) not in OF_A_KIND:
            continue
        for value in (HOSTILE, ""):
            ran = ingeroctl(command, taken.group(1), value, *NEEDED.get(command, []))
            is_a_mistake((command, taken.group(1), value), ran, USAGE, taken.group(1))


def daemons() -> None:
    for program in sys.argv[2:]:
        name = pathlib.Path(program).name
        for argument, said in (("--sokcet=x", "unknown option '--sokcet'; did you mean '--socket'?"), ("extra", "unexpected word 'extra'"),
                               ("--socket", "--socket wants a value")):
            ran = run(program, argument)
            is_a_mistake([name, argument], ran, USAGE, said)
            check([name, argument], f"hint: see '{name} --help'" in ran.stderr, ran.stderr)
        check([name, "--version"], run(program, "--version").stdout.startswith(f"{name} "))
    ran = run(sys.argv[2], "--log-level", "loud")
    is_a_mistake(["ingerod", "--log-level"], ran, USAGE, "--log-level wants debug, info, warn or error, not 'loud'")
    is_a_mistake(["ingerod", "--config"], run(sys.argv[2], "--check-config", "--config", "/nonexistent"), USAGE, "No such file")


def stores_to_inspect(folder: pathlib.Path) -> None:
    for arguments in (["info", "demo:healthy"], ["verify", "demo:healthy"], ["compact", "demo:healthy", "-o", str(folder / "compacted")],
                      ["info", str(folder / "compacted")]):
        ran = ingeroctl("db", *arguments)
        check(["db", *arguments], ran.returncode == DONE and " events" in ran.stdout and not ran.stderr, ran.stdout + ran.stderr)
    for path in (folder / "text", folder / "empty", folder / "missing"):
        is_a_mistake(["db", "info", path.name], ingeroctl("db", "info", str(path)), FAILED, path.name)
        ran = ingeroctl("import", str(path), "-o", str(folder / "imported"))
        check(["import", path.name], ran.returncode == FAILED and path.name in ran.stderr and not ran.stdout, ran.stderr)
        check(["import", path.name], ("hint: " in ran.stderr) == path.exists(), ran.stderr)


def full_device() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        for arguments in (["--version"], ["--help"], ["help", "stats"], ["demo"]):
            ran = subprocess.run([INGEROCTL, *arguments], env=ENVIRONMENT, stdout=full, stderr=subprocess.PIPE, timeout=120, check=False)
            check(["full device", *arguments], ran.returncode == FAILED, f"exit code {ran.returncode}")


def no_daemon(command: str) -> None:
    ran = ingeroctl(command, *NEEDED.get(command, []))
    is_a_mistake((command, "without a daemon"), ran, NO_DAEMON)


def files(command: str, more: list[str], folder: pathlib.Path) -> None:
    for path, said in ((folder / "missing", "No such file or directory"), (folder / "secret" / "store", "Permission denied"),
                       (folder / "empty", "no event store"), (folder / "text", "")):
        # What root may read besides.
        drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
        ran = subprocess.run([*drop, INGEROCTL, "--db", path, command, *more], env=ENVIRONMENT, capture_output=True, text=True,
                             timeout=120, check=False)
        is_a_mistake((command, path.name), ran, FAILED, said)


def windows(command: str, more: list[str]) -> None:
    takes_window = "--since" in help_of(str(INGEROCTL), command)
    for scenario in ("demo:cpu-contention", "demo:slow-request"):
        whole = ingeroctl("--db", scenario, command, *more)
        check((command, scenario), whole.returncode == DONE and whole.stdout.strip() and not whole.stderr, whole.stderr)
        check((command, "in a pipe"), "\x1b" not in whole.stdout, whole.stdout)
        if not takes_window or command in ("query", "export"):
            continue
        empty = ingeroctl("--db", scenario, command, *more, "--from", "2020-01-01", "--to", "2020-01-02")
        check((command, "of an empty window"), empty.returncode == PARTIAL and "nothing recorded" in empty.stdout and
              not empty.stderr, f"exit code {empty.returncode}: {empty.stdout}{empty.stderr}")
        absent = ingeroctl("--db", scenario, command, *more, "--pid", "424242")
        check((command, "of an absent process"), absent.returncode == DONE and absent.stdout.strip(),
              f"exit code {absent.returncode}: {absent.stdout}{absent.stderr}")


def width(line: str) -> int:
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def terminals(command: str, more: list[str]) -> None:
    if command in ("query", "export"):
        return
    for scenario in ("demo:slow-request", "demo:straggler", "demo:cpu-contention", "demo:throttling"):
        line = f"ingeroctl --no-pager --db {scenario} {command} {' '.join(more)}"
        exit_code, narrow = run_on_terminal(line, ENVIRONMENT | {"NO_COLOR": "1"}, ROOT, 60)
        check((command, scenario, "NO_COLOR"), exit_code == DONE and narrow.strip() and "\x1b" not in narrow, narrow)
        # The two notes are given word for word.
        long = [one for one in narrow.splitlines() if width(one) > 60 and not one.startswith("Note: ")]
        check((command, scenario, "on 60 columns"), not long, "\n".join(long))


def hostile(command: str, more: list[str], trace: pathlib.Path) -> None:
    for arguments in (("--json",), ()):
        ran = ingeroctl(*arguments, "--db", str(trace), command,
                        *(["SELECT comm, * FROM events LIMIT 1"] if command == "query" else more))
        controls = [c for c in ran.stdout + ran.stderr if (unicodedata.category(c) in ("Cc", "Cf")) and c != "\n"]
        # Data for other programs is as it was.
        if command == "export":
            continue
        check((command, arguments, "of hostile names"), not controls and ran.returncode in (DONE, PARTIAL),
              f"{ran.returncode} {controls}: {ran.stdout}{ran.stderr}")
        if command in ("processes", "query") or (command == "explain" and arguments):
            check((command, arguments, "that they are there"), "[31mevil" in ran.stdout, ran.stdout)


def make_trace(path: pathlib.Path) -> None:
    with sqlite3.connect(path) as trace:
        trace.executescript("""
            CREATE TABLE events(id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp INTEGER NOT NULL, pid INTEGER NOT NULL,
              tid INTEGER NOT NULL, source INTEGER NOT NULL, op INTEGER NOT NULL, duration INTEGER NOT NULL,
              gpu_id INTEGER DEFAULT 0, arg0 INTEGER DEFAULT 0, arg1 INTEGER DEFAULT 0, ret_code INTEGER DEFAULT 0,
              stack_hash INTEGER DEFAULT 0);
            CREATE TABLE process_names(pid INTEGER PRIMARY KEY, name TEXT NOT NULL, seen_at INTEGER NOT NULL DEFAULT 0);""")
        start = 1_700_000_000_000_000_000
        trace.executemany("INSERT INTO events(timestamp, pid, tid, source, op, duration) VALUES (?, 7, 7, 1, 3, ?)",
                          [(start + number * 1_000_000, 50_000 if number % 50 else 40_000_000) for number in range(2_000)])
        trace.execute("INSERT INTO process_names VALUES (7, ?, 0)", (HOSTILE,))


def main() -> int:
    commands = commands_in(help_of(str(INGEROCTL)))
    with tempfile.TemporaryDirectory() as path, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        folder = pathlib.Path(path)
        (folder / "secret" / "store").mkdir(parents=True)
        (folder / "empty").mkdir()
        (folder / "text").write_text("no trace\n", encoding="utf-8")
        trace = folder / "hostile.db"
        make_trace(trace)
        (folder / "secret").chmod(0)
        work = [pool.submit(wrong_kinds, command) for command in commands]
        work += [pool.submit(no_daemon, command) for command in commands if command not in WITHOUT_A_DAEMON]
        for command, more in OF_A_STORE.items():
            work += [pool.submit(files, command, more, folder), pool.submit(windows, command, more),
                     pool.submit(terminals, command, more), pool.submit(hostile, command, more, trace)]
        work += [pool.submit(full_device), pool.submit(daemons), pool.submit(stores_to_inspect, folder)]
        for one in work:
            one.result()
        (folder / "secret").chmod(0o700)
    missing = set(commands) - set(OF_A_STORE) - WITHOUT_A_DAEMON - {"status", "top", "trace", "monitor", "probes", "annotate",
                                                                    "record", "reload"}
    check("commands that are not tested", not missing, str(missing))
    print("\n\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
