"""The archive of scripts/portable traces on a system that has no C library: a bare folder with /proc, /sys and /dev, and
the archive on a read-only mount below a folder with a space. Its counts are those of the stand-in's log.

portable_test.py ROOT: of the sources. Starts itself again in a mount namespace: portable_test.py --inside FOLDER."""

import collections
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / name) for name in ("support", "gpu")]
from ground_truth import count_calls  # noqa: E402
from ops import op_of  # noqa: E402

SKIPPED = 77
CALLS = 3000
LIMIT_S = 60
# What the workload calls after its gate, and the driver calls inside.
EXPECTED = {"cudaLaunchKernel", "cudaMalloc", "cudaFree", "cudaMemcpyAsync", "cudaStreamSync", "cuLaunchKernel",
            "cuMemAlloc", "cuMemFree", "cuMemcpyHtoDAsync", "cuStreamSynchronize"}
# What the programs are given of the host's environment: nothing that helps them find a library.
ENVIRONMENT = {"INGERO_SOCKET": "/var/run/control.sock", "LD_LIBRARY_PATH": "/nowhere", "PATH": "/nowhere"}


def build(root: pathlib.Path) -> pathlib.Path:
    """Twice, and the same: as one would under another umask and in another time zone."""
    hashes = []
    for options, environment in ([], {}), (["--no-build"], {"TZ": "Asia/Tokyo", "LC_ALL": "C"}):
        done = subprocess.run([root / "scripts/portable", *options], env=os.environ | environment, text=True,
                              stdout=subprocess.PIPE, umask=0o077 if options else -1, check=False)
        assert done.returncode == 0, f"scripts/portable: exit {done.returncode}"
        archive = root / done.stdout.splitlines()[-1]
        hashes.append(hashlib.sha256(archive.read_bytes()).hexdigest())
    assert hashes[0] == hashes[1], "the same sources gave two archives"
    print(f"{archive.name}: {archive.stat().st_size / 2**20:.1f} MiB")
    return archive


def mount(*arguments: str | pathlib.Path) -> None:
    subprocess.run(["mount", *arguments], check=True)


class Bare:
    """The system without a C library."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.tree, = (root / "opt/a folder").iterdir()
        more = [path for path in root.rglob("*") if path.is_file() and not path.is_relative_to(self.tree)]
        assert more == [], f"the bare system has files: {more}"
        for name in ("proc", "sys", "dev"):
            (root / name).mkdir()
            mount("--rbind", f"/{name}", root / name)
        (root / "var").mkdir()
        mount("-t", "tmpfs", "none", root / "var")
        mount("--bind", self.tree, self.tree)
        mount("-o", "remount,bind,ro", self.tree)

    def start(self, program: str, *arguments: str, folder: str = "/", **more) -> subprocess.Popen:
        """`program` of the archive; where `folder` is not /, by a path relative to it."""
        inside = "/" + str((self.tree / program).relative_to(self.root))
        if folder != "/":
            inside = os.path.relpath(self.tree / program, self.tree / folder)

        def enter() -> None:
            os.chroot(self.root)
            os.chdir("/" if folder == "/" else "/" + str((self.tree / folder).relative_to(self.root)))

        return subprocess.Popen([inside, *arguments], preexec_fn=enter, env=ENVIRONMENT, text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, **more)

    def run(self, program: str, *arguments: str, folder: str = "/") -> str:
        process = self.start(program, *arguments, folder=folder)
        output, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, f"{program} {' '.join(arguments)}: exit {process.returncode}\n{output}"
        return output


def wait_for_line(process: subprocess.Popen, text: str) -> None:
    seen = ""
    for line in process.stdout:
        seen += line
        if text in line:
            return
    raise AssertionError(f"{process.args[0]} ended without '{text}':\n{seen}")


def wait_traced(bare: Bare, pid: int) -> None:
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        listed = json.loads(bare.run("bin/ingeroctl", "processes", "--json"))["processes"]
        if any(one["pid"] == pid and one["state"] == "tracing" for one in listed):
            return
    raise AssertionError(f"process {pid} is not traced")


def trace(bare: Bare) -> tuple[collections.Counter, collections.Counter]:
    """Calls and errors by operation: made, and as the daemon answers."""
    (bare.root / "var/ingerod.conf").write_text('[capture]\noverhead_budget = 0\nwait_floor = "off"\n')
    daemon = bare.start("sbin/ingerod", "--directory", "/var/run", "--config", "/var/ingerod.conf",
                        stderr=subprocess.STDOUT)
    workload = None
    try:
        wait_for_line(daemon, "is ready")
        workload = bare.start("standin/standin-workload", "--gate", "--log", "/var/truth", "--standin",
                              "scratch=/var,at=cudaMemcpyAsync:/10:error=1", "calls", "--count", str(CALLS), "--rate", "20000",
                              "--op", "mixed", folder="gpu" if (bare.tree / "gpu").exists() else "share")
        wait_for_line(workload, "ready")
        wait_traced(bare, workload.pid)
        print(*workload.communicate("go\n", timeout=LIMIT_S)[0].splitlines(), sep="\n")
        assert workload.returncode == 0, f"the workload: exit {workload.returncode}"
        answer = json.loads(bare.run("bin/ingeroctl", "stats", "--json", "--pid", str(workload.pid)))
    finally:
        for process in filter(None, (workload, daemon)):
            process.terminate()
            process.wait(LIMIT_S)
    assert daemon.returncode == 0, f"ingerod: exit {daemon.returncode}"
    seen: collections.Counter = collections.Counter()
    for row in answer["ops"]:
        seen[row["op"], "calls"] += row["count"]
        seen[row["op"], "errors"] += row["errors"]
    made: collections.Counter = collections.Counter()
    for (function, result), count in count_calls(bare.root / "var/truth").items():
        made[op_of(function), "calls"] += count
        made[op_of(function), "errors"] += count if result != 0 else 0
    return made, seen


def inside(root: pathlib.Path) -> None:
    bare = Bare(root)
    assert "ingerod" in bare.run("sbin/ingerod", "--version", folder="share/man")
    # Starts ingerod, which starts a worker and the program that it probes: all find each other.
    check = json.loads(bare.run("bin/ingeroctl", "check", "--probe", "--json"))
    states = {one["name"]: one["state"] for one in check["checks"]}
    assert check["ready"] and states["probe-events"] == "pass", check["checks"]
    made, seen = trace(bare)
    # Names and devices are asked for before the gate opens; and not all that the stand-in has is traced.
    ops = {op for op, _ in seen}
    assert EXPECTED <= ops, EXPECTED - ops
    for key in sorted((op, kind) for op in ops for kind in ("calls", "errors")):
        print(f"{key[0]:24} {key[1]:7} {made[key]:6} made {seen[key]:6} traced")
        assert made[key] == seen[key], key
    assert seen["cudaMemcpyAsync", "errors"] > 0
    assert sum(count for (op, kind), count in seen.items() if kind == "calls") >= CALLS


def main() -> int:
    if sys.argv[1] == "--inside":
        inside(pathlib.Path(sys.argv[2]))
        return 0
    if os.geteuid() != 0:
        print("SKIPPED: loading probes into the kernel needs root")
        return SKIPPED
    archive = build(pathlib.Path(sys.argv[1]))
    with tempfile.TemporaryDirectory() as scratch:
        place = pathlib.Path(scratch) / "opt/a folder"
        place.mkdir(parents=True)
        with tarfile.open(archive) as tar:
            tar.extractall(place)
        os.chmod(scratch, 0o755)
        return subprocess.run(["unshare", "--mount", "--propagation", "private", sys.executable, "-B", __file__,
                               "--inside", scratch], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
