"""What bash, zsh and fish offer of a real ingerod, and of a recorded scenario: processes, units, operations, incidents;
and that a unit that is called like a command stays text: shells_test.py bash|zsh|fish INGEROCTL INGEROD WORKLOAD."""

import pathlib
import re
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "docs"), str(HERE.parent / "support")]
from shells import SHELLS  # noqa: E402
from traced_host import TracedHost, skip  # noqa: E402

CGROUPS = pathlib.Path("/sys/fs/cgroup/systemd")
# No shell is to read it; another that no terminal is to get.
HOSTILE_UNIT = "evil$(touch HIT);`touch HIT` & y'z.service"
UNSEEN_UNIT = "evil\x1b[2J.service"




def main() -> int:
    name, ingeroctl, ingerod, workload = sys.argv[1:5]
    if shutil.which(name) is None:
        skip(f"{name} is missing")
    problems = []

    def check(what: str, found: object, wanted: object) -> None:
        if found != wanted:
            problems.append(f"{what}: {found!r} instead of {wanted!r}")

    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        home = folder / "home"
        home.mkdir()
        groups = []
        with TracedHost(ingeroctl, ingerod, workload, folder) as host:
            calls = ("--pace", "sleep", "calls", "--count", "100000000", "--rate", "50")
            shell = SHELLS[name](home, str(pathlib.Path(ingeroctl).parent), {"INGERO_SOCKET": host.environment["INGERO_SOCKET"]})
            first = host.start_workload(*calls)
            socket = f"ingeroctl --socket {host.environment['INGERO_SOCKET']}"
            asked = ["ingeroctl --db demo:cpu-contention explain --incident "]
            # Half a second, as a completion has it, is little where all CPUs are busy.
            incidents = next((one for _ in range(20) for one in shell.offers(asked) if one), set())
            for _ in range(20):
                pids, by_socket, ops, scenarios, none = shell.offers([
                    "ingeroctl stats --pid ", f"{socket} trace --pid=", "ingeroctl trace --op cudaLaunchKernelEx",
                    "ingeroctl demo cold",
                    "ingeroctl --socket /nonexistent stats --pid "])
                if pids and by_socket:
                    break
            # Programs of other tests may be traced too.
            check("a pid", str(first.pid) in pids, True)
            check("pids", {one for one in pids if not one.isdigit()}, set())
            check("a pid of a named socket", f"--pid={first.pid}" in by_socket, True)
            check("operations", {op for op in ops if not op.startswith("cudaLaunchKernelEx")}, set())
            check("an operation", "cudaLaunchKernelExC" in ops, True)
            check("scenarios", scenarios, {"cold-start"})
            check("ids of incidents", bool(incidents) and all(re.fullmatch("[0-9a-f]{16}", one) for one in incidents), True)
            check("without a daemon", none, set())
            if CGROUPS.is_dir():
                try:
                    # A unit of its own from before it is looked at.
                    for unit in (HOSTILE_UNIT, UNSEEN_UNIT):
                        groups.append(CGROUPS / unit)
                        groups[-1].mkdir()
                        host.start_workload(*calls, prefix=("/bin/sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', groups[-1]))
                    units = {process["unit"] for process in host.ask("processes")["processes"]}
                    check("units that the daemon knows", units >= {HOSTILE_UNIT}, True)
                    wanted = ["ingeroctl", "record", "--unit", HOSTILE_UNIT]
                    words = None
                    for _ in range(20):
                        if (words := shell.words_after_tab("ingeroctl record --unit ev")) == wanted:
                            break
                    check("a hostile unit", words, wanted)
                finally:
                    for process in host.children[-2:]:
                        process.kill()
                        process.wait()
                    for group in groups:
                        group.rmdir()
        if list(folder.rglob("HIT")):
            problems.append("text of a unit was run")
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
