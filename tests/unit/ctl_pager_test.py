"""What ingeroctl does on a terminal: a long answer goes through a pager and a short one does not, a pager that there is not
keeps nothing back, and NO_COLOR is heeded: ctl_pager_test.py INGEROCTL."""

import os
import pty
import shutil
import subprocess
import sys
import termios

MARK = "sed s/^/paged:/"
LONG = ["--all", "--db", "demo:cpu-contention", "explain"]
SHORT = ["problems", "own-io-wait"]
problems: list[str] = []


def on_terminal(command: list[str], rows: int = 24, typed: bytes = b"", **environment: str) -> str:
    """What the terminal gets, with its line ends as they were written."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (rows, 300))  # no line is wrapped
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                               env={"PATH": os.environ["PATH"], "TERM": "vt100", **environment})
    os.close(theirs)
    os.write(ours, typed)
    seen = b""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:  # nobody has the other end any more
            break
        if not more:
            break
        seen += more
    os.close(ours)
    if process.wait(timeout=60) != 0:
        problems.append(f"{command}: exit code {process.returncode}: {seen.decode()[-300:]}")
    return seen.decode().replace("\r\n", "\n")


def check(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        problems.append(f"{what}: {found!r} instead of {wanted!r}")


def main() -> int:
    ingeroctl = sys.argv[1]
    plain = on_terminal([ingeroctl, "--no-pager", *LONG], INGERO_PAGER=MARK)
    check("it is long", plain.count("\n") > 24, True)
    check("--no-pager", "paged:" in plain, False)
    paged = "".join(f"paged:{line}\n" for line in plain.splitlines())
    check("a long answer", on_terminal([ingeroctl, *LONG], INGERO_PAGER=MARK, PAGER="false"), paged)
    check("PAGER", on_terminal([ingeroctl, *LONG], PAGER=MARK), paged)
    check("as long as the terminal", "paged:" in on_terminal([ingeroctl, *LONG], rows=plain.count("\n"), PAGER=MARK), True)
    check("shorter by a line", on_terminal([ingeroctl, *LONG], rows=plain.count("\n") + 1, PAGER=MARK), plain)
    check("a long help", on_terminal([ingeroctl, "explain", "--help"], PAGER=MARK).startswith("paged:Find"), True)
    check("a short answer", "paged:" in on_terminal([ingeroctl, *SHORT], PAGER=MARK), False)
    check("JSON", "paged:" in on_terminal([ingeroctl, "--json", *LONG], PAGER=MARK), False)
    piped = subprocess.run([ingeroctl, *LONG], capture_output=True, check=True, text=True, env={"PAGER": MARK, "TERM": "vt100"}).stdout
    check("not on a terminal", ("paged:" in piped, "\x1b[" in piped, len(piped) > 1000), (False, False, True))
    for none in ("", "cat"):
        check(f"PAGER={none}", on_terminal([ingeroctl, *LONG], PAGER=none), plain)
    check("TERM=dumb", "paged:" in on_terminal([ingeroctl, *LONG], TERM="dumb", PAGER=MARK), False)
    missing = on_terminal([ingeroctl, *LONG], INGERO_PAGER="no-such-pager-here 2>/dev/null")
    check("a pager that is missing", missing, plain)
    check("without less", on_terminal([ingeroctl, *LONG], PATH="/nonexistent"), plain)
    check("a pager that stops reading", on_terminal([ingeroctl, *LONG], PAGER="head -1"), plain.splitlines()[0] + "\n")
    secure = on_terminal([ingeroctl, *LONG], LESSSECURE="0", PAGER='echo "$LESSSECURE $LESS"; cat >/dev/null')
    check("less is secure", secure, "1 FRX\n")
    check("its own options", on_terminal([ingeroctl, *LONG], LESS="S", PAGER='echo "$LESS"; cat >/dev/null'), "S\n")
    check("colours", "\x1b[" in plain, True)
    check("NO_COLOR", "\x1b[" in on_terminal([ingeroctl, "--no-pager", *LONG], NO_COLOR="1"), False)
    if shutil.which("less"):
        check("less shows a page and ends", plain.splitlines()[0] in on_terminal([ingeroctl, *LONG], typed=b"q"), True)
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
