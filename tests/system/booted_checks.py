"""The checks of the package in a booted Debian, in the order in which they run. Each prints what it measured."""

import json
import pathlib
import re
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "docs"))
from man_page import ManPage, commands_of_examples, needs_systemd, pages  # noqa: E402
from booted_host import OVERLAY, SOCKETS
from booted_system import wait_until

CAPABILITIES = {"CAP_DAC_READ_SEARCH": 2, "CAP_SYS_PTRACE": 19, "CAP_PERFMON": 38, "CAP_BPF": 39,
                "CAP_CHECKPOINT_RESTORE": 40}

checks = {}
long_checks = set()  # names of those that only the long form has time for


def check(function):
    checks[function.__name__] = function
    return function


def long_check(function):
    long_checks.add(function.__name__)
    return check(function)


def figure(text):
    print(f"   {text}", flush=True)


# Installed, started, first event


@check
def package_installs_disabled_and_idle(host):
    host.installed_at = time.monotonic()
    host.system.run("apt-get", "install", "--yes", "--quiet", "/srv/ingero.deb")
    figure(f"apt-get install: {time.monotonic() - host.installed_at:.1f} s")
    units = ["ingerod.service", *(f"ingerod-{name}.socket" for name in SOCKETS)]
    for unit in units:
        assert host.system.systemctl("is-enabled", unit, check=False).stdout.strip() == "disabled", unit
        assert host.state(unit) == "inactive", unit
    assert host.system.run("pgrep", "ingero", check=False).returncode == 1, "a process runs"
    user = host.system.run("getent", "passwd", "ingero").stdout.strip().split(":")
    assert user[5:] == ["/var/lib/ingero", "/usr/sbin/nologin"], user
    for path in ("/run/ingero", "/run/ingerod"):
        assert host.system.run("stat", "-c", "%a %U %G", path).stdout.strip() == "755 root root", path
    host.system.systemctl("preset", "ingerod.service")
    assert host.system.systemctl("is-enabled", "ingerod.service", check=False).stdout.strip() == "disabled"


@check
def first_event_within_ten_seconds_of_installing(host):
    assert host.system.show("work-alice.service", "ActiveState")["ActiveState"] == "active"
    begin = time.monotonic()
    host.system.systemctl("enable", "--now", "ingerod")
    wait_until("a first event", lambda: host.ask("status")["events"]["recorded"] > 0, limit_s=10)
    now = time.monotonic()
    figure(f"first event {now - begin:.2f} s after 'enable --now', "
           f"{now - host.installed_at:.2f} s after 'apt-get install' began")
    assert now - host.installed_at < 10
    assert host.socket_states() == dict.fromkeys(SOCKETS, "active")
    host.wait_traced(host.alice, host.bob)


@check
def packaged_configuration_shows_the_defaults(host):
    packaged = host.system.path("/etc/ingero/ingerod.conf").read_text(encoding="utf-8")
    shown = re.findall(r"^#([a-z_]+) = ", packaged, re.MULTILINE)
    table = (host.source / "daemon/ingerod/config/config.cpp").read_text(encoding="utf-8")
    known = re.findall(r'^\s*\{"[a-z_]+\.([a-z_]+)",', table, re.MULTILINE)
    host.system.write("/tmp/all.conf", re.sub(r"^#([a-z_]+ = )", r"\1", packaged, flags=re.MULTILINE))
    host.system.run("ingerod", "--check-config", "--config", "/tmp/all.conf")
    figure(f"{len(shown)} keys")
    assert sorted(shown) == sorted(known) and known


# What it runs as


@check
def daemon_has_its_capabilities_and_no_more(host):
    status = host.proc_status(host.main_pid())
    wanted = sum(1 << bit for bit in CAPABILITIES.values())
    uid = host.system.run("id", "-u", "ingero").stdout.strip()
    figure(f"uid {status['Uid'].split()[0]}, CapEff {status['CapEff']}, NoNewPrivs {status['NoNewPrivs']}, "
           f"Seccomp {status['Seccomp']}")
    assert set(status["Uid"].split()) == {uid} and uid != "0"
    for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == wanted, f"{name} {status[name]}, wanted {wanted:x}"
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


@check
def examples_of_systemd_run(host):
    examples = [one for page in map(ManPage, pages()) for one in commands_of_examples(page) if needs_systemd(one)]
    for example in examples:
        done = host.system.run("/bin/bash", "-c", example, check=False)
        # Of an incident that this host never had there is no line.
        wanted = (0, 1) if "INGERO_INCIDENT_ID" in example else (0,)
        assert done.returncode in wanted, f"{example}: {done}"
    figure(f"{len(examples)} examples")
    assert examples


@check
def workers_have_no_capabilities(host):
    host.ask("stats", "--since", "1s")
    pids = host.system.run("pgrep", "ingero-worker").stdout.split()
    figure(f"{len(pids)} workers")
    for pid in pids:
        status = host.proc_status(pid)
        assert all(int(status[name], 16) == 0 for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")), status
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


@check
def sandbox_scores_at_most_two(host):
    text = host.system.run("systemd-analyze", "security", "--no-pager", "ingerod.service").stdout
    score = float(re.search(r"Overall exposure level for \S+: ([0-9.]+)", text).group(1))
    figure(f"systemd-analyze security: {score}")
    assert score <= 2.0


@check
def limits_are_as_intended(host):
    wanted = {"MemoryMax": str(3584 << 20), "MemoryHigh": str(3328 << 20), "TasksMax": "1024", "OOMScoreAdjust": "500",
              "OOMPolicy": "continue", "CPUWeight": "50", "IOWeight": "20", "LimitCORE": "0", "LimitNOFILE": "65536",
              "LimitMEMLOCK": str(64 << 20), "UMask": "0077", "PrivateNetwork": "yes"}
    assert host.system.show("ingerod.service", *wanted) == wanted
    relay = {"OOMPolicy": "continue", "OOMScoreAdjust": "800"}
    assert host.system.show("ingero-relay.service", *relay) == relay
    assert host.system.path(f"/proc/{host.main_pid()}/oom_score_adj").read_text(encoding="utf-8").strip() == "500"
    own = host.system.path(f"/proc/{host.main_pid()}/ns/net").readlink()
    assert own != host.system.path("/proc/1/ns/net").readlink()
    figure(f"{len(wanted)} settings, network {own}")


@check
def only_the_state_directory_can_be_written(host):
    folder = host.system.path("/var/lib/ingero")
    assert host.system.run("stat", "-c", "%a %U", "/var/lib/ingero").stdout.strip() == "700 ingero"
    assert (folder / "store").is_dir()
    owned = host.system.run("find", "/", "-xdev", "-user", "ingero", "-not", "-path", "/var/lib/ingero*").stdout
    assert owned == "", owned
    # As root, but among the daemon's mounts: what stops it is the sandbox, not the owner of the folder.
    inside = ("nsenter", f"--mount=/proc/{host.main_pid()}/ns/mnt", "touch")
    folders = ["", "/etc", "/etc/ingero", "/home", "/root", "/run", "/run/ingero", "/run/ingerod", "/usr", "/var"]
    writable = [one for one in folders if host.system.run(*inside, f"{one}/x", check=False).returncode == 0]
    figure(f"{len(folders)} folders tried, writable: {writable}")
    assert writable == []


@check
def units_verify_without_complaint(host):
    units = ["ingerod.service", "ingerod-sockets.target", *(f"ingerod-{name}.socket" for name in SOCKETS)]
    said = host.system.run("systemd-analyze", "verify", "--man=no", *units)
    assert said.stdout + said.stderr == "", said


@check
def documented_drop_in_adds_cap_sys_admin(host):
    example = host.system.path("/usr/share/doc/ingero/examples/cap-sys-admin.conf")
    with host.drop_in(example.read_text(encoding="utf-8")):
        host.system.systemctl("restart", "ingerod")
        effective = int(host.proc_status(host.main_pid())["CapEff"], 16)
        assert effective == 1 << 21 | sum(1 << bit for bit in CAPABILITIES.values()), hex(effective)
    host.system.systemctl("restart", "ingerod")


# Each capability is needed


def without(capability):
    kept = " ".join(name for name in CAPABILITIES if name != capability)
    return (f"[Service]\nRestart=no\nAmbientCapabilities=\nAmbientCapabilities={kept}\n"
            f"CapabilityBoundingSet=\nCapabilityBoundingSet={kept}\n")


def does_not_start_without(host, capability):
    with host.drop_in(without(capability)):
        begin = host.cursor()
        assert host.system.systemctl("restart", "ingerod", check=False).returncode != 0, "it started"
        said = [one["MESSAGE"] for one in host.messages(begin) if one.get("_COMM") == "ingerod"]
        figure(f"does not start: {said}")
        assert said, "and does not say why"


def traces_nobody_without(host, capability):
    with host.drop_in(without(capability)):
        host.system.systemctl("restart", "ingerod")
        begun_ns = time.time_ns()
        # A new process too, so that what is found as it is mapped is looked at as well as what is found at the start.
        host.system.start_service("work-late", "/opt/standin/standin-workload", "--orphan", "--pace", "sleep", "calls",
                                  "--count", "100000", "--rate", "300", user="bob")
        time.sleep(2)
        states = host.traced()
        host.system.systemctl("stop", "work-late.service", "ingerod.service")
        # From the store: without the first capability no caller can be seen to be root of this host, and is told all.
        calls = f"SELECT COUNT(*) FROM events WHERE timestamp >= {begun_ns}"
        events = host.ask("--db", "/var/lib/ingero/store", "query", calls)["rows"][0][0]
        figure(f"states {sorted(set(states.values()))}, {events} events")
        assert events == 0 and "tracing" not in states.values(), states
    host.system.systemctl("restart", "ingerod")
    host.wait_traced(host.alice, host.bob)


@check
def without_cap_bpf_it_does_not_start(host):
    does_not_start_without(host, "CAP_BPF")


@check
def without_cap_perfmon_it_does_not_start(host):
    does_not_start_without(host, "CAP_PERFMON")


@check
def without_cap_sys_ptrace_nobody_is_traced(host):
    traces_nobody_without(host, "CAP_SYS_PTRACE")


@check
def without_cap_dac_read_search_nobody_is_traced(host):
    traces_nobody_without(host, "CAP_DAC_READ_SEARCH")


@check
def without_cap_checkpoint_restore_nobody_is_traced(host):
    traces_nobody_without(host, "CAP_CHECKPOINT_RESTORE")


# Every verb of systemctl


@check
def it_checks_itself_with_the_rights_of_the_service(host):
    begin = time.monotonic()
    answer = host.ask("check", "--probe")
    found = {one["name"]: one for one in answer["checks"]}
    failed = [one for one in answer["checks"] if one["state"] == "fail"]
    assert answer["ready"] and not failed, failed
    for name in ("capabilities", "mmap-records", "return-probes", "worker", "probe-events", "probe-seccomp"):
        assert found[name]["state"] == "pass", found[name]
    assert "traced" in found["mapped-library"]["detail"], found["mapped-library"]
    figure(f"check --probe: {time.monotonic() - begin:.2f} s, {answer['probe']['cost_ns']} ns a traced call")
    own = [one["detail"] for one in host.ask("check", user="alice")["checks"] if one["name"] == "mapped-library"]
    assert own and all("used by 1 process" in detail for detail in own), own
    refused = host.system.run("ingeroctl", "check", "--probe", user="alice", check=False)
    assert refused.returncode == 1 and "only root may" in refused.stderr, refused
    assert host.system.run("pgrep", "-f", "^ingero-probe-target", check=False).returncode == 1, "it left a program"


@check
def stop_stops_the_sockets_and_start_brings_them_back(host):
    host.system.systemctl("stop", "ingerod")
    assert host.state() == "inactive"
    assert host.socket_states() == dict.fromkeys(SOCKETS, "inactive")
    refused = host.system.run("ingeroctl", "status", user="alice", check=False)
    assert refused.returncode == 4 and "hint: start it with 'systemctl enable --now ingerod'" in refused.stderr, refused
    assert host.state() == "inactive", "a client started it again"
    host.system.systemctl("start", "ingerod")
    assert host.socket_states() == dict.fromkeys(SOCKETS, "active")
    modes = {name: oct(host.system.path(path).stat().st_mode & 0o777) for name, path in SOCKETS.items()}
    assert modes == dict.fromkeys(SOCKETS, "0o666") | {"relay": "0o600"}, modes
    assert host.ask("status", user="alice")["version"]


@check
def restart_keeps_the_sockets(host):
    before, pid = host.inodes(), host.main_pid()
    begin = time.monotonic()
    host.system.systemctl("restart", "ingerod")
    figure(f"restart: {time.monotonic() - begin:.2f} s")
    assert host.inodes() == before and host.main_pid() != pid
    pid = host.main_pid()
    host.system.systemctl("try-restart", "ingerod")
    assert host.inodes() == before and host.main_pid() != pid


@check
def try_restart_leaves_a_stopped_one_stopped(host):
    host.system.systemctl("stop", "ingerod")
    host.system.systemctl("try-restart", "ingerod")
    assert host.state() == "inactive"
    assert host.socket_states() == dict.fromkeys(SOCKETS, "inactive")
    host.system.systemctl("start", "ingerod")


@check
def a_connection_starts_it_where_only_sockets_listen(host):
    host.system.systemctl("stop", "ingerod")
    host.system.systemctl("start", "ingerod-control.socket")
    assert host.state() == "inactive"
    assert host.ask("status", user="alice")["version"]
    assert host.state() == "active"
    assert host.socket_states() == dict.fromkeys(SOCKETS, "active")
    assert host.ask("status")["sockets"] == len(SOCKETS)


@check
def reload_takes_a_good_configuration(host):
    before, pid = host.inodes(), host.main_pid()
    with host.overlay('[workers]\ndeadline = "20s"\n'):
        begin = host.cursor()
        host.system.systemctl("reload", "ingerod")
        said = [one["MESSAGE"] for one in host.messages(begin)]
        assert any("workers.deadline" in one for one in said), said
    host.system.systemctl("reload", "ingerod")
    assert host.main_pid() == pid and host.inodes() == before and host.state() == "active"
    figure(f"{said}")


@check
def reload_refuses_a_broken_configuration_and_goes_on(host):
    pid, events = host.main_pid(), host.ask("status")["events"]["recorded"]
    with host.overlay("[store]\nmax_sise = 3\n"):
        begin = host.cursor()
        done = host.system.systemctl("reload", "ingerod", check=False)
        said = " / ".join(str(one["MESSAGE"]) for one in host.messages(begin))
        assert done.returncode != 0, "systemctl reload succeeded"
        assert f"{OVERLAY}:2: unknown key: store.max_sise" in said, said
    assert (host.state(), host.main_pid()) == ("active", pid)
    wait_until("more events", lambda: host.ask("status")["events"]["recorded"] > events)
    host.system.systemctl("reload", "ingerod")
    figure(said)


@check
def a_broken_configuration_fails_the_start_without_a_loop(host):
    with host.overlay("[store]\nmax_sise = 3\n"):
        assert host.system.systemctl("restart", "ingerod", check=False).returncode != 0
        seen = host.system.show("ingerod.service", "ActiveState", "NRestarts", "ExecMainStatus")
        assert seen == {"ActiveState": "failed", "NRestarts": "0", "ExecMainStatus": "2"}, seen
    host.system.systemctl("start", "ingerod")
    figure("exit 2, no restart")


@check
def status_and_is_active_tell_how_it_is(host):
    host.wait_traced(host.alice, host.bob)
    text = host.system.systemctl("status", "ingerod").stdout
    line = re.search(r"Status: .*", text)
    assert line and "Active: active (running)" in text, text
    figure(line.group(0))
    assert host.system.systemctl("is-active", "ingerod").stdout.strip() == "active"
    assert host.system.systemctl("is-enabled", "ingerod").stdout.strip() == "enabled"
    assert "TriggeredBy" in text


@check
def enable_and_disable_take_the_sockets_and_the_alias_along(host):
    units = ["ingerod.service", *(f"ingerod-{name}.socket" for name in SOCKETS)]
    alias = host.system.path("/etc/systemd/system/dbus-io.ingero.Ingero1.service")
    assert alias.is_symlink()
    host.system.systemctl("disable", "ingerod")
    assert not alias.is_symlink()
    assert {host.system.systemctl("is-enabled", unit, check=False).stdout.strip() for unit in units} == {"disabled"}
    assert host.state() == "active", "disable stopped it"
    host.system.systemctl("enable", "ingerod")
    assert alias.is_symlink()
    assert {host.system.systemctl("is-enabled", unit).stdout.strip() for unit in units} == {"enabled"}


def wait_restarted(host, pid, limit_s):
    wait_until("another main process", lambda: host.main_pid() not in (0, pid) and host.state() == "active", limit_s)


def workers(host, *of):
    found = host.system.run("pgrep", *of, "ingero-worker", check=False)
    assert found.returncode in (0, 1), found.stderr  # 1: there is none
    return set(found.stdout.split())


@check
def killed_it_is_started_again_with_the_same_sockets(host):
    before, pid = host.inodes(), host.main_pid()
    begin = time.monotonic()
    host.system.systemctl("kill", "--kill-who=main", "--signal=SIGKILL", "ingerod")
    wait_restarted(host, pid, 15)
    figure(f"again after {time.monotonic() - begin:.2f} s")
    assert host.inodes() == before
    host.wait_traced(host.alice, host.bob)
    wait_until("no worker of the old one", lambda: workers(host) <= workers(host, "-P", str(host.main_pid())))


@check
def a_killed_worker_does_not_end_the_daemon(host):
    pid = host.main_pid()
    host.ask("stats", "--since", "1s")
    host.system.run("pkill", "-KILL", "ingero-worker")
    assert host.ask("stats", "--since", "5s")["ops"]
    assert (host.state(), host.main_pid()) == ("active", pid)


@check
def the_watchdog_ends_one_that_hangs(host):
    before = host.inodes()
    with host.drop_in("[Service]\nWatchdogSec=2\n"):
        host.system.systemctl("restart", "ingerod")
        pid = host.main_pid()
        time.sleep(4)  # twice the limit: while it lives it says so
        assert (host.main_pid(), host.state()) == (pid, "active"), "it does not answer the watchdog"
        mark = host.cursor()
        begin = time.monotonic()
        host.system.systemctl("kill", "--kill-who=main", "--signal=SIGSTOP", "ingerod")
        wait_restarted(host, pid, 15)
        figure(f"again after {time.monotonic() - begin:.2f} s, WatchdogSec=2")
        said = " ".join(str(one["MESSAGE"]) for one in host.messages(mark))
        assert "Watchdog timeout" in said, said
    host.system.systemctl("restart", "ingerod")
    assert host.inodes() == before


@check
def journal_has_fields_and_the_catalogue_explains_them(host):
    header = (host.source / "daemon/ingerod/loop/journal_ids.h").read_text(encoding="utf-8")
    ids = dict(re.findall(r"(\w+)_id\[\] = \"([0-9a-f]{32})\"", header))
    catalogue = host.system.journal("--list-catalog", *ids.values())
    assert len(ids) == 9 and len(catalogue.splitlines()) == 9, catalogue
    begin = host.cursor()
    host.system.systemctl("restart", "ingerod")
    both = (ids["started"], ids["stopped"])
    [stopped, started] = [one for one in host.messages(begin) if one.get("MESSAGE_ID") in both]
    for one in (started, stopped):
        assert one["INGERO_NODE"] and one["SYSLOG_IDENTIFIER"] == "ingerod", one
    figure(f"{started['MESSAGE']!r}, INGERO_NODE={started['INGERO_NODE']}, {len(ids)} kinds in the catalogue")
    text = host.system.journal("-u", "ingerod", "--catalog")
    assert f"Subject: Tracing has started on {started['INGERO_NODE']}" in text, text


# Who sees what


@check
def a_user_sees_her_own_processes_only(host):
    host.wait_traced(host.alice, host.bob)
    assert set(host.traced("alice")) == {host.alice}
    assert set(host.traced("bob")) == {host.bob}
    for user, pid in (("alice", host.alice), ("bob", host.bob)):
        wait_until(f"calls of {user}", lambda user=user: host.ask("stats", "--since", "20s", user=user)["ops"])
        assert {op["pid"] for op in host.ask("stats", "--since", "20s", user=user)["ops"]} == {pid}
        text = host.system.run("ingeroctl", "--json", "explain", "--since", "20s", user=user).stdout
        assert f'"pid":{host.bob if user == "alice" else host.alice},' not in text.replace(" ", ""), text
    assert host.ask("stats", "--since", "20s", "--pid", str(host.bob), user="alice")["ops"] == []
    figure(f"alice {host.alice}, bob {host.bob}")


@check
def an_assistant_sees_what_its_user_does(host):
    messages = [{"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {},
                                                             "clientInfo": {"name": "test", "version": "1"}}},
                {"id": 1, "method": "tools/call", "params": {"name": "get_trace_stats",
                                                             "arguments": {"since": "20s", "limit": 1000}}},
                {"id": 2, "method": "tools/call", "params": {"name": "get_check"}}]
    lines = [json.dumps({"jsonrpc": "2.0", **message}) for message in messages]
    begin = time.monotonic()
    said = host.system.run("sh", "-c", 'printf "%s\\n" "$@" | ingeroctl mcp', "sh", *lines, user="alice").stdout
    figure(f"a session of three questions: {time.monotonic() - begin:.2f} s")
    answers = [json.loads(line)["result"] for line in said.splitlines()]
    assert answers[0]["serverInfo"]["name"] == "ingero", said
    assert {op["pid"] for op in answers[1]["structuredContent"]["ops"]} == {host.alice}, said
    assert answers[2]["structuredContent"]["state"] == "tracing", said


@check
def root_and_group_ingero_see_all(host):
    host.system.run("usermod", "-aG", "ingero", "carol")
    both = {host.alice, host.bob}
    assert both <= set(host.traced("root"))
    assert both <= set(host.traced("carol"))
    assert both <= {op["pid"] for op in host.ask("stats", "--since", "20s", user="carol")["ops"]}


@check
def a_refusal_says_how_to_get_in(host):
    refused = host.system.run("ingeroctl", "reload", user="carol", check=False)
    figure(refused.stderr.strip().replace("\n", " / "))
    assert refused.returncode != 0 and "hint:" in refused.stderr and "root" in refused.stderr, refused
    shown = host.system.run("ingeroctl", "processes", user="carol")
    assert "standin" in shown.stdout
