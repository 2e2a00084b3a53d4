"""What Debian's own tools say of the debs: lintian, which has nothing to say that is not explained, and the tests of
packaging/deb/tests by autopkgtest, on a chroot.

debian_tools_test.py ROOT: of the sources.  --inside TREE FOLDER DEB...: itself again, in a mount namespace."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from booted_system import BootedSystem, Unavailable, look_around
from booted_test import build_package, way_of_building

SKIPPED = 77
LIMIT_S = 600


def check_lint(debs):
    told = subprocess.run(["lintian", "--allow-root", "--tag-display-limit", "0", *debs], capture_output=True, text=True,
                          check=False)
    # Of a package whose binaries were not built for it, what an override explains may be absent.
    wrong = [line for line in told.stdout.splitlines() if re.match("[EW]: (?!.* mismatched-override )", line)]
    assert told.returncode in (0, 2) and wrong == [], (told, wrong)


def inside(tree, folder, debs):
    for name in ("proc", "sys", "dev"):
        subprocess.run(["mount", "--rbind", f"/{name}", tree / name], check=True)
    # A source package by its name alone: what is tested is what is installed.
    done = subprocess.run(["autopkgtest", "--no-built-binaries", f"--output-dir={folder}/results", *debs,
                           folder / "source/", "--", "chroot", tree],
                          check=False, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
    return done.returncode


def check_autopkgtest(root, system, debs):
    with tempfile.TemporaryDirectory(prefix="ingero-autopkgtest-") as scratch:
        folder = pathlib.Path(scratch)
        folder.chmod(0o755)
        shutil.copytree(root / "packaging/deb", folder / "source/debian")
        done = subprocess.run(["unshare", "--mount", "--propagation", "private", sys.executable, "-B", __file__,
                               "--inside", system.tree, folder, *debs], check=False)
        summary = (folder / "results/summary").read_text(encoding="utf-8")
    tests = re.findall(r"^Tests: (\S+)$", (root / "packaging/deb/tests/control").read_text(encoding="utf-8"), re.MULTILINE)
    results = dict(line.split(None, 2)[:2] for line in summary.splitlines())
    # 2: a test was skipped, 4: one failed.
    assert done.returncode == 0 and results == dict.fromkeys(tests, "PASS"), f"exit {done.returncode}\n{summary}"
    print(f"autopkgtest: {len(tests)} passed")


def main():
    if sys.argv[1] == "--inside":
        tree, folder, *debs = map(pathlib.Path, sys.argv[2:])
        return inside(tree, folder, debs)
    root = pathlib.Path(sys.argv[1]).resolve()
    for program in ("lintian", "autopkgtest"):
        if not shutil.which(program):
            print(f"SKIPPED: {program} is missing: scripts/install-dependencies test")
            return SKIPPED
    try:
        look_around()
        deb, of_python, needed = build_package(root, way_of_building("bookworm"))
        check_lint([deb, of_python])
        with BootedSystem(root / "build/booted-system", needed) as system:
            check_autopkgtest(root, system, [deb, of_python])
    except Unavailable as why:
        print(f"SKIPPED: {why}")
        return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
