"""The package in a booted Debian: installed, run by systemd, asked, upgraded, purged.

    booted_test.py run SOURCE STANDIN RESULTS SUITE [CHECK...]    boots, runs the checks in order, notes the results
    booted_test.py report RESULTS CHECK                           tells one check's result: a CTest test each
    booted_test.py list [long]                                    the checks, of the long form too

One system and one order: what comes later builds on what was done before.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import traceback

import booted_bus_checks  # noqa: F401  adds its checks after those of booted_checks
import booted_python_checks  # noqa: F401  and these theirs
import booted_package_checks  # noqa: F401  and these theirs, the last ones
from booted_checks import checks, long_checks
from booted_host import Host
from booted_system import BootedSystem, Unavailable, look_around

SKIPPED = 77


def way_of_building(suite):
    """The options of scripts/package."""
    # In the long form from its source, as it is shipped: to compile everything once more takes minutes. What another
    # suite has can only be built there.
    if suite != "bookworm":
        return ["--suite", suite]
    return [] if os.environ.get("INGERO_LONG") else ["--of", "release"]


def build_previous(source, suite):
    """The previous commit, and its main package, built from a checkout of its own with the same systems to build in."""
    found = subprocess.run(["git", "-C", source, "rev-parse", "--verify", "HEAD~1"], capture_output=True, text=True,
                           check=False)
    if found.returncode != 0:
        raise Unavailable("git has no commit before this one here")
    commit = found.stdout.strip()
    folder = source / "build/previous"
    if not (folder / ".git").exists():
        subprocess.run(["git", "clone", "--quiet", "--shared", "--no-checkout", source, folder], check=True)
    subprocess.run(["git", "-C", folder, "fetch", "--quiet", "origin", "HEAD"], check=True)
    subprocess.run(["git", "-C", folder, "checkout", "--quiet", "--force", "--detach", commit], check=True)
    (source / "build/trees").mkdir(exist_ok=True)
    (folder / "build").mkdir(exist_ok=True)
    if not (folder / "build/trees").exists():
        (folder / "build/trees").symlink_to(source / "build/trees")
    deb, _, needed = build_package(folder, [] if suite == "bookworm" else way_of_building(suite))
    return commit, deb, needed


def build_package(source, of):
    """The files of the main package and of the Python package, and the Debian packages that the former needs."""
    made = subprocess.run([source / "scripts/package", *of, "deb"], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL)
    if made.returncode != 0:
        if "is missing" in made.stderr:
            raise Unavailable(made.stderr.strip().splitlines()[0])
        raise AssertionError(f"scripts/package failed:\n{made.stderr}")
    [deb] = [source / line for line in made.stdout.splitlines() if re.search(r"/ingero_[^/]*\.deb$", line)]
    [of_python] = [source / line for line in made.stdout.splitlines() if re.search(r"/python3-ingero_[^/]*\.deb$", line)]
    fields = subprocess.run(["dpkg-deb", "-f", deb, "Depends"], capture_output=True, text=True, check=True).stdout
    return deb, of_python, [re.match(r"[a-z0-9.+-]+", one.strip()).group(0) for one in fields.split(",")]


def run_one(name, function, host):
    print(f"== {name}", flush=True)
    begin = time.monotonic()
    result = {"status": "passed", "text": ""}
    try:
        # Checks start and stop it more often in a minute than anybody should.
        host.system.systemctl("reset-failed", check=False)
        function(host)
    except Exception:  # whatever goes wrong in a check is that check's failure
        result = {"status": "failed", "text": traceback.format_exc()}
        print(result["text"], flush=True)
        with contextlib.suppress(Exception):
            print(host.system.journal("-u", "ingerod", "-n", "15"), flush=True)
    result["seconds"] = round(time.monotonic() - begin, 1)
    print(f"== {name}: {result['status']}, {result['seconds']} s", flush=True)
    return result


def run(source, standin, results_file, suite, only):
    begin = time.monotonic()
    results_file.unlink(missing_ok=True)
    results = {}

    def write():
        results_file.parent.mkdir(parents=True, exist_ok=True)
        results_file.write_text(json.dumps(results, indent=1), encoding="utf-8")

    try:
        look_around()
        wanted = [name for name in checks if name not in long_checks or suite != "bookworm" or name in only]
        deb, of_python, needed = build_package(source, way_of_building(suite))
        previous, no_previous = None, None
        try:
            if long_checks.intersection(wanted):
                previous = build_previous(source, suite)
        except Unavailable as why:
            no_previous = {"status": "skipped", "text": str(why)}
        except Exception:  # of that commit, and no reason not to check this one
            no_previous = {"status": "failed", "text": traceback.format_exc()}
        print(f"package: {(time.monotonic() - begin) / 60:.1f} min, {deb.stat().st_size >> 10} KiB", flush=True)
        needed = sorted({*needed, *(previous[2] if previous else [])})
        with BootedSystem(source / "build/booted-system", needed, suite) as system:
            subprocess.run(["cp", deb, system.tree / "srv/ingero.deb"], check=True)
            subprocess.run(["cp", of_python, system.tree / "srv/python3-ingero.deb"], check=True)
            if previous:
                subprocess.run(["cp", previous[1], system.tree / "srv/ingero-previous.deb"], check=True)
            system.boot()
            print(f"booted after {(time.monotonic() - begin) / 60:.1f} min", flush=True)
            host = Host(system, deb, source, standin)
            host.previous = previous[0] if previous else None
            host.add_people()
            host.copy_standin("/opt/standin", "root", "u=rwX,go=rX")
            hers = host.home("alice") + "/standin"  # where ProtectHome= hides it, and only she may read it
            host.copy_standin(hers, "alice", "u=rwX,go=")
            host.alice = host.start_workload("alice", hers)
            host.bob = host.start_workload("bob", "/opt/standin")
            for name in wanted:
                if only and name not in only and not name.startswith(("package_installs", "first_event")):
                    continue
                if name in long_checks and no_previous:
                    results[name] = no_previous
                    continue
                results[name] = run_one(name, checks[name], host)
                if results[name]["status"] == "failed" and not name.startswith(("remove", "purge")):
                    with contextlib.suppress(Exception):
                        host.restore()
    except Unavailable as why:
        print(f"SKIPPED: {why}")
        results = {name: {"status": "skipped", "text": str(why)} for name in checks}
        write()
        return SKIPPED
    write()
    failed = [name for name, result in results.items() if result["status"] == "failed"]
    minutes = (time.monotonic() - begin) / 60
    print(f"{suite}: {len(results) - len(failed)} checks passed, {len(failed)} failed: {minutes:.1f} min")
    return 0


def report(results_file, name):
    if not results_file.exists():
        print("the booted system was not run to its end")
        return 1
    result = json.loads(results_file.read_text(encoding="utf-8")).get(name)
    if result is None:
        print("not run")
        return 1
    print(("SKIPPED: " if result["status"] == "skipped" else "") + result["text"])
    return {"passed": 0, "failed": 1, "skipped": SKIPPED}[result["status"]]


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list").add_argument("form", nargs="?", choices=["short", "long"], default="short")
    for name, arguments in (("run", ("source", "standin", "results", "suite")), ("report", ("results", "name"))):
        command = commands.add_parser(name)
        for argument in arguments:
            command.add_argument(argument, type=str if argument in ("name", "suite") else pathlib.Path)
        if name == "run":
            command.add_argument("only", nargs="*", help="only these checks, and the installation")
    options = parser.parse_args()
    if options.command == "list":
        print("\n".join(name for name in checks if options.form == "long" or name not in long_checks))
        return 0
    if options.command == "report":
        return report(options.results, options.name)
    return run(options.source.resolve(), options.standin.resolve(), options.results.resolve(), options.suite,
               options.only)


if __name__ == "__main__":
    sys.exit(main())
