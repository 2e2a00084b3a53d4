"""The rpm, on a chroot and in the system that is booted from it: what it installs, what becomes of the units, the
configuration and the events when it is installed, upgraded and removed, and that two builds have the same bytes.

rpm_test.py ROOT: of the sources."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from booted_system import BootedSystem, Unavailable, look_around, wait_until

SKIPPED = 77
SERVICES = ["ingerod.service", "ingero-relay.service"]
SOCKETS = [f"ingerod-{name}.socket" for name in ("spans", "annotate", "control", "mcp", "relay")]
HELPER = "usr/lib/systemd/systemd-update-helper"
# What one family has and the other has not.
OF_DEB_ALONE = re.compile(r"/usr/share/(doc/ingero/(changelog|copyright)|lintian)|/usr/share/doc/ingero$")
OF_RPM_ALONE = re.compile(r"/usr/lib/\.build-id|/usr/share/licenses/ingero|/etc/ingero/ingerod\.conf\.d$|/usr/share/doc/ingero$")


def output_of(*command, **more):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
                          **more)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def build(root):
    """(rpm, deb, the same two of Python, packages that the deb depends on). Twice, and the same: of what is
    built already, in the long form from their sources."""
    of = [] if os.environ.get("INGERO_LONG") else ["--of", "release"]
    hashes, made = [], ""
    for environment, umask in (({}, 0o022), ({"TZ": "Asia/Tokyo", "LC_ALL": "C", "CCACHE_DISABLE": "1"}, 0o077)):
        if not of:
            shutil.rmtree(root / "build/package", ignore_errors=True)
        for stamp in ("stamp", "rpm/stamp"):
            (root / "build/package" / stamp).unlink(missing_ok=True)
        made = output_of(root / "scripts/package", *of, env=os.environ | environment, umask=umask)
        files = [root / next(line for line in made.splitlines() if re.search(name, line)) for name in
                 (r"/ingero-[^/]*\.rpm$", r"/ingero_[^/]*\.deb$", r"/python3-ingero-[^/]*\.rpm$",
                  r"/python3-ingero_[^/]*\.deb$")]
        hashes.append([hashlib.sha256(one.read_bytes()).hexdigest() for one in files])
    assert hashes[0] == hashes[1], "the same sources gave other packages"
    needed = output_of("dpkg-deb", "-f", files[1], "Depends")
    return *files, [re.match(r"[a-z0-9.+-]+", one.strip()).group(0) for one in needed.split(",")]


def check_lint(root, *rpms):
    told = output_of("rpmlint", "--rpmlintrc", root / "packaging/rpm/ingero.rpmlintrc", *rpms,
                     root / "packaging/rpm/ingero.spec")
    assert re.search(r" 0 errors, 0 warnings", told), told


def check_same_files(rpm, deb):
    of_rpm = {line for line in output_of("rpm", "-qpl", rpm).splitlines() if not OF_RPM_ALONE.match(line)}
    of_deb = {line.split()[5][1:] for line in output_of("dpkg-deb", "-c", deb).splitlines() if not line.startswith("d")}
    of_deb = {re.sub(r"^/lib/systemd/", "/usr/lib/systemd/", name) for name in of_deb if not OF_DEB_ALONE.match(name)}
    of_deb = {name.replace("/zsh/vendor-completions/", "/zsh/site-functions/") for name in of_deb}
    folders = {"/etc/ingero", "/usr/lib/ingero", "/usr/share/doc/ingero/examples", "/usr/share/ingero",
               "/usr/share/ingero/demo"}
    assert of_rpm - folders == of_deb, sorted((of_rpm - folders) ^ of_deb)


def check_python(tree, rpm, deb):
    """The rpm of Python holds what the deb does, where its Python looks, and can be imported from there."""
    of_rpm = [line for line in output_of("rpm", "-qpl", rpm).splitlines() if "/licenses/" not in line]
    of_deb = [line.split()[5][1:] for line in output_of("dpkg-deb", "-c", deb).splitlines() if not line.startswith("d")]
    modules = {re.sub(r".*/dist-packages/", "", name) for name in of_deb if "/dist-packages/" in name}
    [folder] = {found[1] for name in of_rpm if (found := re.match(r"(.*/python3\.\d+/site-packages)/ingero$", name))}
    assert modules and modules <= {name.removeprefix(f"{folder}/") for name in of_rpm}, (modules, of_rpm)
    [wheel] = [name for name in of_rpm if name.endswith(".whl")]
    assert wheel in of_deb, of_deb
    assert output_of("rpm", "-qp", "--qf", "%{ARCH}", rpm) == "noarch"
    tree.rpm("-i", "--nodeps", rpm)
    told = output_of("chroot", tree.path, "env", f"PYTHONPATH={folder}", "PYTHONDONTWRITEBYTECODE=1", "python3", "-c",
                     "import ingero, importlib.metadata as m\n"
                     "print(ingero.__file__, [e.value for e in m.entry_points(group='vllm.stat_logger_plugins')])")
    assert told == f"{folder}/ingero/__init__.py ['ingero.vllm:StatLogger']\n", told
    tree.rpm("-e", "python3-ingero")
    left = [path for path in (tree.path / "usr").rglob("*ingero*")]
    assert not left, left


def next_version(root, rpm, of_python, place):
    """The same with another version and another packaged configuration."""
    tree = place / "tree"
    tree.mkdir()
    for one in (of_python, rpm):
        archive = subprocess.run(["rpm2cpio", one], capture_output=True, check=True).stdout
        subprocess.run(["cpio", "--quiet", "-idmu"], input=archive, cwd=tree, check=True)
    with open(tree / "etc/ingero/ingerod.conf", "a", encoding="utf-8") as conf:
        conf.write("# of the next version\n")
    shutil.rmtree(tree / "usr/lib/.build-id")
    output_of("rpmbuild", "-bb", "--nodeps", "--define", f"_topdir {place}/top", "--define", f"_rpmdir {place}", "--define",
              "_rpmfilename %%{NAME}-next.rpm", "--define", f"install_tree {tree}", "--define", "ingero_version 99.0", "--define",
              "__brp_compress %{nil}", root / "packaging/rpm/ingero.spec")
    return place / "ingero-next.rpm"


class Tree:
    """A system that does not run, and rpm on it."""

    def __init__(self, path):
        self.path = path

    def rpm(self, *arguments):
        # What the system has comes from other packages: of them rpm knows nothing.
        return output_of("rpm", "--root", self.path, *arguments)

    def unit_state(self, unit):
        done = subprocess.run(["systemctl", f"--root={self.path}", "is-enabled", unit], capture_output=True, text=True,
                              check=False)
        return done.stdout.strip() or "none"

    def names(self, file):
        return {line.split(":")[0] for line in (self.path / "etc" / file).read_text(encoding="utf-8").splitlines()}


def check_life(tree, rpm, following):
    tree.rpm("-i", "--nodeps", rpm)
    states = {unit: tree.unit_state(unit) for unit in SERVICES + SOCKETS}
    assert set(states.values()) == {"disabled"}, states
    assert {"ingero", "ingero-relay"} <= tree.names("passwd") and {"ingero", "ingero-relay"} <= tree.names("group")
    verified = subprocess.run(["rpm", "--root", tree.path, "-V", "--nodeps", "ingero"], capture_output=True, text=True,
                              check=False).stdout
    assert not verified, verified

    conf = tree.path / "etc/ingero/ingerod.conf"
    own = conf.read_text(encoding="utf-8") + "# of the administrator\n"
    conf.write_text(own, encoding="utf-8")
    store = tree.path / "var/lib/ingero/store"
    store.mkdir(parents=True)
    (store / "data").write_text("events", encoding="utf-8")
    output_of("systemctl", f"--root={tree.path}", "enable", "ingerod.service")
    enabled = {unit: tree.unit_state(unit) for unit in SERVICES + SOCKETS}
    assert enabled["ingerod.service"] == "enabled", enabled
    tree.rpm("-U", "--nodeps", following)
    assert tree.rpm("-q", "--qf", "%{VERSION}\n", "ingero") == "99.0\n"
    assert {unit: tree.unit_state(unit) for unit in SERVICES + SOCKETS} == enabled, "an upgrade changes no unit"
    assert conf.read_text(encoding="utf-8") == own
    assert "of the next version" in conf.with_name("ingerod.conf.rpmnew").read_text(encoding="utf-8")
    assert (store / "data").read_text(encoding="utf-8") == "events"

    tree.rpm("-e", "ingero")
    left = {unit: tree.unit_state(unit) for unit in SERVICES + SOCKETS}
    assert not {"enabled", "disabled"} & set(left.values()), left
    links = [link for link in (tree.path / "etc/systemd/system").rglob("ingero*")]
    assert not links, links
    assert conf.with_name("ingerod.conf.rpmsave").read_text(encoding="utf-8") == own and not conf.exists()
    assert (store / "data").exists(), "events are the administrator's to delete"
    assert not (tree.path / "usr/sbin/ingerod").exists() and not (tree.path / "usr/lib/ingero").exists()
    conf.with_name("ingerod.conf.rpmsave").unlink()
    shutil.rmtree(store.parent)


def check_helper(tree, rpm, following):
    """Where systemd's own helper for packages is, it is told, as the macros would tell it."""
    helper, log = tree.path / HELPER, tree.path / "told"
    helper.write_text('#!/bin/sh\necho "$@" >>/told\n', encoding="utf-8")
    helper.chmod(0o755)
    tree.rpm("-i", "--nodeps", rpm)
    tree.rpm("-U", "--nodeps", following)
    tree.rpm("-e", "ingero")
    units = " ".join(SERVICES + SOCKETS)
    told = log.read_text(encoding="utf-8").splitlines()
    assert told == [f"install-system-units {units}", f"mark-restart-system-units {' '.join(SERVICES)}",
                    f"remove-system-units {units}"], told
    helper.unlink()
    log.unlink()


def check_booted(system, rpm):
    Tree(system.tree).rpm("-i", "--nodeps", rpm)
    system.boot()
    assert system.systemctl("is-active", "ingerod", check=False).stdout.strip() == "inactive"
    system.systemctl("enable", "--now", "ingerod")
    status = wait_until("an answer", lambda: system.run("ingeroctl", "--json", "status").stdout)
    assert '"state"' in status, status
    assert system.systemctl("is-active", "ingerod").stdout.strip() == "active"


def main():
    root = pathlib.Path(sys.argv[1])
    for program in ("rpm", "rpmbuild", "rpmlint", "rpm2cpio", "cpio"):
        if not shutil.which(program):
            print(f"SKIPPED: {program} is missing: scripts/install-dependencies test")
            return SKIPPED
    try:
        look_around()
        rpm, deb, python_rpm, python_deb, needed = build(root)
        check_lint(root, rpm, python_rpm)
        check_same_files(rpm, deb)
        with BootedSystem(root / "build/booted-system", needed) as system, \
                tempfile.TemporaryDirectory(prefix="ingero-rpm-") as place:
            following = next_version(root, rpm, python_rpm, pathlib.Path(place))
            tree = Tree(system.tree)
            check_python(tree, python_rpm, python_deb)
            check_life(tree, rpm, following)
            check_helper(tree, rpm, following)
            check_booted(system, rpm)
    except Unavailable as why:
        print(f"SKIPPED: {why}")
        return SKIPPED
    print(f"{rpm.name}: {rpm.stat().st_size >> 10} KiB; installed, upgraded, removed, and booted with it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
