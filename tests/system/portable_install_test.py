"""The portable archive's install.sh in a booted system without a package of ingero: what it refuses, what it installs,
that doing it again changes nothing, that an upgrade keeps configuration and events, and what is left in the end.

portable_install_test.py ROOT STANDIN: of the sources, of the stand-in programs."""

import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

from booted_host import SOCKETS, Host
from booted_system import BootedSystem, Unavailable, look_around, wait_until
from booted_test import build_package, way_of_building

SKIPPED = 77
PREFIX = "/opt/ingero"
CONFIG = "/etc/ingero/ingerod.conf"
OWN_LINE = "# of the administrator\n"
UNITS = ["ingerod.service", "ingero-relay.service", *(f"ingerod-{name}.socket" for name in SOCKETS)]


def build(root):
    done = subprocess.run([root / "scripts/portable"], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, f"scripts/portable: exit {done.returncode}"
    return root / done.stdout.splitlines()[-1]


def unpack(archive, folder):
    """The folder of the archive as `folder`, and its version."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder.parent)
        name = tar.getnames()[0]
    (folder.parent / name).rename(folder)
    return (folder / "VERSION").read_text(encoding="utf-8").strip()


def later_version(folder, version):
    """The same under another version, with another packaged configuration, beside it."""
    later = folder.with_name(version)
    shutil.copytree(folder, later, symlinks=True)
    (later / "VERSION").write_text(f"{version}\n", encoding="utf-8")
    with open(later / "share/system/ingerod.conf", "a", encoding="utf-8") as conf:
        conf.write(f"# of version {version}\n")


def installer(host, version, *arguments, **more):
    return host.system.run("sh", f"/srv/{version}/install.sh", *arguments, **more)


def files(host):
    """{path: what it is} of all that an installer may touch."""
    told = host.system.run("find", "/usr", "/etc", "/opt", "/srv", "(", "-type", "f", "-o", "-type", "l", ")", "-printf",
                           "%p %y %m %s %l\\n")
    return dict(line.split(" ", 1) for line in told.stdout.splitlines()
                # Users and groups have their own check.
                if not re.match(r"/etc/(\.pwd\.lock|(passwd|group|shadow|gshadow|subuid|subgid)-?) ", line))


def check_refusals(host, version):
    """Each with its reason, and nothing changed."""
    before = files(host)
    host.system.run("install", "-d", "-o", "alice", "/opt/of-alice")
    host.system.run("mkdir", "-p", "/opt/other/things")
    prefixes = {"relative/path": "not an absolute path", "/opt/a b": "invalid --prefix", "/opt/../etc/x": "invalid --prefix",
                "/usr": "folder of the system", host.home("alice") + "/ingero": "cannot see", "/tmp": "cannot see",
                "/opt/of-alice/ingero": "must be root's", "/opt/other": "is not empty"}
    for prefix, why in prefixes.items():
        refused = installer(host, version, "--prefix", prefix, check=False)
        assert refused.returncode == 1 and why in refused.stderr, (prefix, refused)
    for arguments, code, why in ((("--purge",), 2, "usage"), (("--frob",), 2, "usage"), (("--prefix",), 2, "usage"),
                                 (("--uninstall",), 1, "nothing is installed")):
        refused = installer(host, version, *arguments, check=False)
        assert refused.returncode == code and why in refused.stderr, (arguments, refused)
    refused = installer(host, version, user="alice", check=False)
    assert refused.returncode == 1 and "needs root" in refused.stderr, refused
    host.system.run("cp", "/bin/true", "/usr/sbin/ingerod")
    refused = installer(host, version, check=False)
    assert refused.returncode == 1 and "a package of ingero is installed" in refused.stderr, refused
    host.system.run("rm", "-r", "/usr/sbin/ingerod", "/opt/of-alice", "/opt/other")
    after = files(host)
    assert after == before, sorted(set(after.items()) ^ set(before.items()))
    print(f"{len(prefixes) + 6} refusals, each with its reason")


def check_install(host, version):
    said = installer(host, version).stdout
    assert f"installed in {PREFIX}/{version}" in said and "systemctl enable --now ingerod" in said, said
    for unit in UNITS:
        assert host.system.systemctl("is-enabled", unit, check=False).stdout.strip() == "disabled", unit
        assert host.state(unit) == "inactive", unit
    assert host.system.run("systemd-analyze", "verify", "--man=no", *UNITS).stderr == ""
    host.system.systemctl("enable", "--now", "ingerod")
    host.wait_traced(host.bob)
    wait_until("events", lambda: host.ask("status")["events"]["recorded"] > 0)
    assert host.socket_states() == dict.fromkeys(SOCKETS, "active")
    program = host.system.path(f"/proc/{host.main_pid()}/exe").readlink()
    assert str(program) == f"{PREFIX}/{version}/sbin/ingerod", program
    status = host.proc_status(host.main_pid())
    assert status["Uid"].split()[0] == host.system.run("id", "-u", "ingero").stdout.strip() != "0", status["Uid"]
    answer = host.ask("check", "--probe")
    assert answer["ready"] and not [one for one in answer["checks"] if one["state"] == "fail"], answer["checks"]
    shown = wait_until("the name on the bus", lambda: host.system.run(
        "busctl", "--system", "call", "io.ingero.Ingero1", "/io/ingero/Ingero1", "io.ingero.Ingero1", "GetStatus",
        user="alice", check=False).stdout)
    assert "tracing" in shown, shown
    # As with the package, polkit knows what it decides about.
    assert "io.ingero.ingero1.manage" in host.system.run("pkaction").stdout
    assert "Tracing has started" in host.system.journal("-u", "ingerod", "--catalog")


def check_again(host, version):
    before, sockets, pid = files(host), host.inodes(), host.main_pid()
    said = installer(host, version)
    assert said.stderr == "" and "enable" not in said.stdout, said
    after = files(host)
    assert after == before, sorted(set(after.items()) ^ set(before.items()))
    assert host.state() == "active" and host.main_pid() != pid and host.inodes() == sockets
    refused = installer(host, version, "--prefix", "/opt/elsewhere", check=False)
    assert refused.returncode == 1 and "below another prefix" in refused.stderr, refused
    inside = host.system.run("sh", f"{PREFIX}/{version}/install.sh", check=False)
    assert inside.returncode == 1 and "inside the prefix" in inside.stderr, inside


def calls_of(host):
    return sum(row["count"] for row in host.ask("stats", "--since", "1h")["ops"])


def check_upgrades(host, version):
    config = host.system.path(CONFIG)
    sockets, calls = host.inodes(), calls_of(host)
    assert installer(host, "98.0").stderr == ""
    assert "of version 98.0" in config.read_text(encoding="utf-8"), "one that nobody changed stayed as it was"
    with open(config, "a", encoding="utf-8") as file:
        file.write(OWN_LINE)
    own = config.read_text(encoding="utf-8")
    said = installer(host, "99.0").stderr
    assert f"{CONFIG} was changed and is kept" in said, said
    assert config.read_text(encoding="utf-8") == own
    assert "of version 99.0" in host.system.path(f"{PREFIX}/99.0/share/system/ingerod.conf").read_text(encoding="utf-8")
    program = str(host.system.path(f"/proc/{host.main_pid()}/exe").readlink())
    assert program == f"{PREFIX}/99.0/sbin/ingerod" and host.inodes() == sockets, program
    kept = sorted(path.name for path in host.system.path(PREFIX).iterdir())
    assert kept == ["98.0", "99.0", "current", "installed-files"], kept
    host.wait_traced(host.bob)
    after = calls_of(host)
    assert after >= calls > 0, (calls, after)
    print(f"upgraded from {version} to 98.0 and 99.0 with {calls} calls kept")


def check_uninstalls(host, version, before):
    installer(host, "99.0", "--uninstall")
    assert host.system.run("pgrep", "ingero", check=False).returncode == 1, "a process runs"
    assert OWN_LINE in host.system.path(CONFIG).read_text(encoding="utf-8")
    assert host.system.path("/var/lib/ingero/store").is_dir()
    left = {path for path in files(host) if path not in before and not path.startswith(("/etc/ingero/", "/srv/"))}
    assert left == set(), left
    assert host.system.systemctl("list-unit-files", "--no-legend", "*ingero*", check=False).stdout.strip() == ""

    installer(host, version, "--prefix", "/srv/tools/ingero")
    host.system.systemctl("enable", "--now", "ingerod")
    host.wait_traced(host.bob)
    assert OWN_LINE in host.system.path(CONFIG).read_text(encoding="utf-8")
    installer(host, version, "--uninstall", "--purge", "--prefix", "/srv/tools/ingero")
    told = host.system.run("find", "/", "-xdev", "-iname", "*ingero*", "-not", "-path", "/srv/*").stdout.splitlines()
    told += host.system.run("find", "/run", "/srv/tools", "-iname", "*ingero*").stdout.splitlines()
    assert told == [], told
    for database in ("passwd", "group"):
        assert "ingero" not in host.system.run("getent", database).stdout, database


def main():
    root, standin = map(pathlib.Path, sys.argv[1:])
    try:
        look_around()
        archive = build(root)
        _, _, needed = build_package(root, way_of_building("bookworm"))
        with BootedSystem(root / "build/booted-system", needed) as system:
            version = unpack(archive, system.tree / "srv/unpacked")
            (system.tree / "srv/unpacked").rename(system.tree / "srv" / version)
            for later in ("98.0", "99.0"):
                later_version(system.tree / "srv" / version, later)
            system.boot()
            host = Host(system, None, root, standin)
            host.add_people()
            host.copy_standin("/opt/standin", "root", "u=rwX,go=rX")
            host.bob = host.start_workload("bob", "/opt/standin")
            before = files(host)
            check_refusals(host, version)
            check_install(host, version)
            check_again(host, version)
            check_upgrades(host, version)
            check_uninstalls(host, version, before)
    except Unavailable as why:
        print(f"SKIPPED: {why}")
        return SKIPPED
    print(f"{archive.name}: refused, installed, installed again, upgraded twice, uninstalled and purged")
    return 0


if __name__ == "__main__":
    sys.exit(main())
