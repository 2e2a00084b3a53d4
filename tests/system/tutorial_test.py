"""docs/tutorial.md: its commands run in order, and print what it shows.

tutorial_test.py ROOT INGERODS_PROGRAM INGEROCTLS_FOLDER: beside a daemon of its own, in place of the package."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

SKIPPED = 77
LIMIT_S = 150


def main() -> int:
    root, ingerod, tools = (pathlib.Path(argument) for argument in sys.argv[1:])
    sys.path.insert(0, str(root / "tests/support"))
    from console_blocks import difference, run_on_terminal, steps

    if os.geteuid() != 0:
        print("SKIPPED: loading probes into the kernel needs root")
        return SKIPPED
    with tempfile.TemporaryDirectory() as place:
        environment = dict(os.environ, PATH=f"{tools}:{os.environ['PATH']}", INGERO_SOCKET=f"{place}/control.sock",
                           INGERO_SPANS_SOCKET=f"{place}/spans.sock", LC_ALL="C.UTF-8", NO_COLOR="1")
        with subprocess.Popen([ingerod, "--directory", place], stdout=subprocess.DEVNULL) as daemon:
            try:
                subprocess.run(["sh", "-c", "until ingeroctl status; do [ -d /proc/$0 ] || exit 1; done", str(daemon.pid)],
                               env=environment, check=True, capture_output=True, timeout=LIMIT_S)
                incident = slowest = ""
                done = 0
                for command, shown in steps(root / "docs/tutorial.md"):
                    # The page's own incident is another, and its request.
                    run = re.sub(r"(--verify) [0-9a-f]+", rf"\1 {incident}", command)
                    run = re.sub(r"request-\d+", slowest, run)
                    code, printed = run_on_terminal(run, environment, root, limit_s=LIMIT_S)
                    print(f"$ {run}\n{printed}")
                    assert code == 0, code
                    line = difference(shown, printed)
                    assert line is None, f"$ {command}\nprinted\n{printed}and not: {line}"
                    if found := re.search(r"^([0-9a-f]{16})  lock-wait ", printed, re.MULTILINE):
                        incident = found[1]
                    if command.startswith("ingeroctl requests") and not slowest:
                        slowest = re.search(r"request-\d+", printed)[0]
                    done += 1
                assert done == 7, done
            finally:
                daemon.send_signal(signal.SIGTERM)
                assert daemon.wait(LIMIT_S) == 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
