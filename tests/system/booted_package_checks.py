"""The checks of how the package is upgraded and removed: the last ones, since they leave no daemon behind."""

import re
import subprocess
import time

from booted_checks import check, figure, long_check
from booted_host import SOCKETS
from booted_system import wait_until


def repacked(host, version):
    """The same package under a later version."""
    folder = host.system.cache / "repacked"
    subprocess.run(["rm", "-rf", folder], check=True)
    subprocess.run(["dpkg-deb", "-R", host.deb, folder], check=True)
    control = folder / "DEBIAN/control"
    text = control.read_text(encoding="utf-8")
    control.write_text(re.sub(r"^Version: .*$", f"Version: {version}", text, flags=re.MULTILINE), encoding="utf-8")
    target = host.system.path("/srv/ingero-next.deb")
    subprocess.run(["dpkg-deb", "-Znone", "--root-owner-group", "-b", folder, target], check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run(["rm", "-rf", folder], check=True)


def told_as_gap_ns(gaps, begin_ns):
    """The time from then on that lies in at least one of them."""
    total, covered_to = 0, begin_ns
    for gap in sorted(gaps, key=lambda gap: gap["from_ns"]):
        total += max(0, gap["to_ns"] - max(gap["from_ns"], covered_to))
        covered_to = max(covered_to, gap["to_ns"])
    return total


def is_of_the_upgrade(reason, *pids):
    """That nobody was there, or that these were found again; not of what else the host runs meanwhile, nor that hot calls
    are recorded in slices."""
    if reason.startswith("sliced: "):
        return False
    return reason == "ingerod was not running" or reason.endswith(tuple(f" (pid {pid})" for pid in pids))


@check
def upgrade_keeps_sockets_and_clients_and_loses_little(host):
    repacked(host, "99.0")
    host.system.start_service("load", "/opt/standin/standin-workload", "--orphan", "--cpu", host.cpus[-1], "--duration",
                              "60", "train", "--launches", "50", user="bob")
    load = int(host.system.show("load.service", "MainPID")["MainPID"])
    host.wait_traced(host.alice, host.bob, load)
    before, pid = host.inodes(), host.main_pid()
    script = ("end=$(($(date +%s) + $1)); failed=0; n=0; longest=0\n"
              "while [ $(date +%s) -lt $end ]; do\n"
              "  t=$(date +%s%N); ingeroctl processes >/dev/null 2>>/tmp/client.log || failed=$((failed + 1))\n"
              "  t=$((($(date +%s%N) - t) / 1000000)); [ $t -gt $longest ] && longest=$t; n=$((n + 1)); sleep 0.05\n"
              "done; echo $n $failed $longest\n")
    client = host.system.popen("sh", "-c", script, "client", "8", user="alice")
    wait_until("the client's first call", lambda: host.system.path("/tmp/client.log").exists())
    begin = time.time_ns()
    host.system.run("dpkg", "--install", "/srv/ingero-next.deb")
    took = (time.time_ns() - begin) / 1e9
    calls, failed, longest = map(int, client.communicate()[0].split())
    assert host.main_pid() != pid and host.state() == "active", "it was not restarted"
    assert host.inodes() == before
    host.wait_traced(host.alice, host.bob, load)
    wait_until("calls after it", lambda: host.ask("stats", "--since", "1s")["ops"])
    gaps = [gap for gap in host.ask("stats", "--since", f"{int(time.time() - begin / 1e9) + 5}s")["coverage"]["gaps"]
            if gap["to_ns"] > begin and is_of_the_upgrade(gap["reason"], host.alice, host.bob, load)]
    host.system.systemctl("stop", "load.service")
    gap_s = told_as_gap_ns(gaps, begin) / 1e9
    figure(f"dpkg {took:.1f} s, gap {gap_s:.2f} s {[gap['reason'] for gap in gaps]}, {calls} calls of a client, "
           f"{failed} failed, the longest {longest} ms")
    assert gaps, "no gap is told of"
    assert gap_s < 2, gap_s
    # Who calls while it is down waits; only the call that it was about to answer as it stopped may fail.
    assert failed <= 1, host.system.path("/tmp/client.log").read_text(encoding="utf-8")


@check
def upgrade_of_a_stopped_daemon_leaves_it_stopped(host):
    host.system.systemctl("stop", "ingerod")
    host.system.run("dpkg", "--install", "/srv/ingero-next.deb")
    assert host.state() == "inactive"
    assert host.socket_states() == dict.fromkeys(SOCKETS, "inactive")
    host.system.systemctl("start", "ingerod")


@check
def remove_stops_it_and_keeps_configuration_and_events(host):
    host.system.run("apt-get", "remove", "--yes", "--quiet", "ingero")
    assert host.system.run("pgrep", "ingero", check=False).returncode == 1, "a process runs"
    assert host.system.path("/etc/ingero/ingerod.conf").exists()
    assert host.system.path("/var/lib/ingero/store").is_dir()
    for path in ("/run/ingero", "/run/ingerod", "/usr/sbin/ingerod"):
        assert not host.system.path(path).exists(), path


@check
def purge_leaves_nothing(host):
    host.system.write("/etc/ingero/ingerod.conf.d/mine.conf", "")
    host.system.run("apt-get", "purge", "--yes", "--quiet", "ingero")
    left = host.system.run("find", "/", "-xdev", "-iname", "*ingero*", "-not", "-path", "/srv/*").stdout.splitlines()
    left += host.system.run("find", "/run", "-iname", "*ingero*").stdout.splitlines()
    figure(f"left: {left}")
    assert left == []
    for database in ("passwd", "group"):
        assert host.system.run("getent", database, "ingero", check=False).stdout == "", database
    units = host.system.systemctl("list-unit-files", "--no-legend", "*ingero*", check=False).stdout
    units += host.system.systemctl("list-units", "--all", "--no-legend", "*ingero*", check=False).stdout
    assert units.strip() == "", units
    assert "Ingero" not in host.system.journal("--list-catalog")


@long_check
def upgrade_from_the_previous_commits_package(host):
    host.system.run("apt-get", "purge", "--yes", "--quiet", "ingero", check=False)
    host.system.run("apt-get", "install", "--yes", "--quiet", "/srv/ingero-previous.deb")
    host.system.systemctl("enable", "--now", "ingerod")
    host.wait_traced(host.alice, host.bob)
    calls = "select count(*) from events where timestamp < "
    wait_until("calls of before", lambda: host.ask("query", calls + str(time.time_ns()))["rows"][0][0] > 1000)
    before, pid, upgraded_ns = host.inodes(), host.main_pid(), time.time_ns()
    kept = host.ask("query", calls + str(upgraded_ns))["rows"][0][0]
    host.system.run("dpkg", "--install", "/srv/ingero.deb")
    assert host.main_pid() != pid and host.state() == "active", "it was not restarted"
    assert host.inodes() == before
    host.wait_traced(host.alice, host.bob)
    wait_until("calls after it", lambda: host.ask("stats", "--since", "1s")["ops"])
    found = host.ask("query", calls + str(upgraded_ns))["rows"][0][0]
    figure(f"{host.previous}: {found} of its calls are there, {kept} were when it was replaced")
    assert found >= kept
    host.system.systemctl("stop", "ingerod")  # while it works in the store nobody else may
    host.system.run("ingeroctl", "db", "verify", "/var/lib/ingero/store")
    host.system.run("apt-get", "purge", "--yes", "--quiet", "ingero")
    assert host.system.run("pgrep", "ingero", check=False).returncode == 1, "a process runs"
