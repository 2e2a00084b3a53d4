"""ingerod in a booted system: what the checks of booted_checks.py do with it and ask of it."""

import contextlib
import json
import os
import pathlib
import subprocess

from booted_system import wait_until

SOCKETS = {"spans": "/run/ingero/spans.sock", "annotate": "/run/ingero/annotate.sock",
           "control": "/run/ingerod/control.sock", "mcp": "/run/ingerod/mcp.sock",
           "relay": "/run/ingerod/relay.sock"}
DROP_INS = "/etc/systemd/system/ingerod.service.d"
OVERLAY = "/etc/ingero/ingerod.conf.d/50-test.conf"


class Host:
    """The booted system, and what is done with ingerod in it."""

    def __init__(self, system, deb, source, standin):
        self.system = system
        self.deb = deb
        self.source = pathlib.Path(source)
        self.standin = pathlib.Path(standin)
        self.previous = None  # the commit whose package is /srv/ingero-previous.deb
        self.cpus = sorted(os.sched_getaffinity(0))
        self.alice = self.bob = 0  # pids of their workloads
        self.installed_at = 0.0

    # Preparation

    def add_people(self):
        for name in ("alice", "bob", "carol"):
            self.system.run("useradd", "--create-home", "--shell=/bin/sh", name)

    def home(self, user):
        return self.system.run("getent", "passwd", user).stdout.split(":")[5]

    def copy_standin(self, folder, owner, mode):
        """The stand-in libraries and programs, with files of `owner` that others may use as `mode` says."""
        to = self.system.path(folder)
        (to / "lib").mkdir(parents=True)
        libraries = [f"lib/{path.name}" for path in self.standin.glob("lib/*.so*")]
        for name in ("standin-workload", "standin-hog", *libraries):
            subprocess.run(["objcopy", "--strip-debug", self.standin / name, to / name], check=True)
        self.system.run("chown", "-R", f"{owner}:", folder)
        self.system.run("chmod", "-R", mode, folder)

    def start_workload(self, user, folder):
        """Calls now and then, for as long as the test lasts. Returns the pid."""
        unit = f"work-{user}"
        self.system.start_service(unit, f"{folder}/standin-workload", "--orphan", "--pace", "sleep", "calls", "--count",
                                  "100000000", "--rate", "300", user=user)
        return int(self.system.show(f"{unit}.service", "MainPID")["MainPID"])

    # Questions

    def ask(self, *arguments, user="root"):
        answer = self.system.run("ingeroctl", "--json", *arguments, user=user, check=False)
        starting = arguments == ("status",) and answer.returncode == 4 and answer.stdout
        assert answer.returncode == 0 or starting, f"ingeroctl {' '.join(arguments)}: {answer}"
        return json.loads(answer.stdout)

    def main_pid(self):
        return int(self.system.show("ingerod.service", "MainPID")["MainPID"])

    def proc_status(self, pid):
        text = self.system.path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)

    def inodes(self):
        return {name: self.system.path(path).stat().st_ino for name, path in SOCKETS.items()}

    def state(self, unit="ingerod.service"):
        return self.system.show(unit, "ActiveState")["ActiveState"]

    def socket_states(self):
        return {name: self.state(f"ingerod-{name}.socket") for name in SOCKETS}

    def traced(self, user="root"):
        """{pid: state} of what `user` is shown."""
        return {one["pid"]: one["state"] for one in self.ask("processes", user=user)["processes"]}

    def wait_traced(self, *pids):
        def all_traced():
            states = self.traced()
            return all(states.get(pid) == "tracing" for pid in pids)
        wait_until(f"tracing of {pids}", all_traced)

    def messages(self, cursor):
        """About the service since then. Matches are made here: with a cursor, journalctl leaves out the first."""
        lines = map(json.loads, self.system.journal("-o", "json", f"--after-cursor={cursor}").splitlines())
        return [one for one in lines if "ingerod.service" in (one.get("_SYSTEMD_UNIT"), one.get("UNIT"))]

    def cursor(self):
        """Where the journal ends now."""
        return json.loads(self.system.journal("-n", "1", "-o", "json"))["__CURSOR"]

    # Changes

    @contextlib.contextmanager
    def drop_in(self, text):
        self.system.write(f"{DROP_INS}/90-test.conf", text)
        self.system.systemctl("daemon-reload")
        try:
            yield
        finally:
            self.system.path(f"{DROP_INS}/90-test.conf").unlink()
            self.system.path(DROP_INS).rmdir()
            self.system.systemctl("daemon-reload")

    @contextlib.contextmanager
    def overlay(self, text):
        self.system.write(OVERLAY, text)
        try:
            yield
        finally:
            self.system.path(OVERLAY).unlink()
            self.system.path(OVERLAY).parent.rmdir()

    def restore(self):
        """Runs as installed, whatever a check has left."""
        for path, folder in ((f"{DROP_INS}/90-test.conf", DROP_INS), (OVERLAY, str(pathlib.Path(OVERLAY).parent))):
            if self.system.path(path).exists():
                self.system.path(path).unlink()
                self.system.path(folder).rmdir()
                self.system.systemctl("daemon-reload")
        self.system.systemctl("reset-failed", check=False)
        if self.state() != "active":
            self.system.systemctl("start", "ingerod.service")
