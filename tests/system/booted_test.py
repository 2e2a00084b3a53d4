"""The package in a booted Debian: installed, run by systemd, asked, upgraded, purged.

    booted_test.py run SOURCE STANDIN RESULTS [CHECK...]    boots, runs the checks in order, notes the results
    booted_test.py report RESULTS CHECK                     tells one check's result: a CTest test each
    booted_test.py list                                     the checks

One system and one order: what comes later builds on what was done before.
"""

import argparse
import contextlib
import json
import pathlib
import re
import subprocess
import sys
import time
import traceback

import booted_package_checks  # noqa: F401  adds its checks after the others
from booted_checks import checks
from booted_host import Host
from booted_system import BootedSystem, Unavailable, look_around

SKIPPED = 77


def build_package(source):
    """The main package's file, and the Debian packages that it needs."""
    made = subprocess.run([source / "scripts/package"], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL)
    if made.returncode != 0:
        if "is missing" in made.stderr:
            raise Unavailable(made.stderr.strip().splitlines()[0])
        raise AssertionError(f"scripts/package failed:\n{made.stderr}")
    [deb] = [source / line for line in made.stdout.splitlines() if re.search(r"/ingero_[^/]*\.deb$", line)]
    fields = subprocess.run(["dpkg-deb", "-f", deb, "Depends"], capture_output=True, text=True, check=True).stdout
    return deb, [re.match(r"[a-z0-9.+-]+", one.strip()).group(0) for one in fields.split(",")]


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


def run(source, standin, results_file, only):
    begin = time.monotonic()
    results_file.unlink(missing_ok=True)
    results = {}

    def write():
        results_file.parent.mkdir(parents=True, exist_ok=True)
        results_file.write_text(json.dumps(results, indent=1), encoding="utf-8")

    try:
        look_around()
        deb, needed = build_package(source)
        print(f"package: {(time.monotonic() - begin) / 60:.1f} min, {deb.stat().st_size >> 10} KiB", flush=True)
        with BootedSystem(source / "build/booted-system", needed) as system:
            subprocess.run(["cp", deb, system.tree / "srv/ingero.deb"], check=True)
            system.boot()
            print(f"booted after {(time.monotonic() - begin) / 60:.1f} min", flush=True)
            host = Host(system, deb, source, standin)
            host.add_people()
            host.copy_standin("/opt/standin", "root", "u=rwX,go=rX")
            hers = host.home("alice") + "/standin"  # where ProtectHome= hides it, and only she may read it
            host.copy_standin(hers, "alice", "u=rwX,go=")
            host.alice = host.start_workload("alice", hers)
            host.bob = host.start_workload("bob", "/opt/standin")
            for name, function in checks.items():
                if only and name not in only and not name.startswith(("package_installs", "first_event")):
                    continue
                results[name] = run_one(name, function, host)
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
    print(f"{len(results) - len(failed)} checks passed, {len(failed)} failed: {minutes:.1f} min")
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
    commands.add_parser("list")
    for name, arguments in (("run", ("source", "standin", "results")), ("report", ("results", "name"))):
        command = commands.add_parser(name)
        for argument in arguments:
            command.add_argument(argument, type=str if argument == "name" else pathlib.Path)
        if name == "run":
            command.add_argument("only", nargs="*", help="only these checks, and the installation")
    options = parser.parse_args()
    if options.command == "list":
        print("\n".join(checks))
        return 0
    if options.command == "report":
        return report(options.results, options.name)
    return run(options.source.resolve(), options.standin.resolve(), options.results.resolve(), options.only)


if __name__ == "__main__":
    sys.exit(main())
