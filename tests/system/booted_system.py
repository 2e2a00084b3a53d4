"""A Debian booted by systemd-nspawn, for tests that need a real systemd: 12 (bookworm), or another suite.

Its tree is made once with debootstrap, kept below the build, and copied for each run. Commands run in it as services,
since what merely enters the container's namespaces is not under its system call filter.
"""

import contextlib
import hashlib
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PACKAGES = ["systemd", "systemd-sysv", "dbus", "libpam-systemd", "polkitd", "procps", "python3", "python3-dbus",
            "python3-venv", "libglib2.0-bin"]
MIRROR = "http://deb.debian.org/debian"
BOOT_LIMIT_S = 60
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


class Unavailable(Exception):
    """Why no system can be booted here."""


def wait_until(what, condition, limit_s=20.0, step_s=0.05):
    """Polls until `condition` gives something true, which is returned."""
    end = time.monotonic() + limit_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f"after {limit_s:g} s there is still not: {what}"
        time.sleep(step_s)


def look_around():
    """Raises Unavailable where it is known from the start that no system can be booted."""
    if os.geteuid() != 0:
        raise Unavailable("booting a system needs root")
    for program in ("debootstrap", "systemd-nspawn"):
        if not shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin"):
            raise Unavailable(f"{program} is missing: scripts/install-dependencies test")


def mirror():
    """Where this host takes its own packages from."""
    for path in [pathlib.Path("/etc/apt/sources.list"), *sorted(pathlib.Path("/etc/apt/sources.list.d").glob("*"))]:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if found := re.search(r"^[^#\n]*(https?://\S+/debian)/?(?:\s|$)", path.read_text(), re.MULTILINE):
                return found.group(1)
    return MIRROR


def logged(log, *command):
    """Whether it succeeded."""
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive", LC_ALL="C.UTF-8")
    return subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment,
                          check=False).returncode == 0


def make_base(cache, packages, suite):
    """The tree of the suite with these packages, below `cache`."""
    key = hashlib.sha256(" ".join([suite, *PACKAGES, *sorted(packages)]).encode()).hexdigest()[:12]
    base = cache / f"base-{key}"
    if base.exists():
        return base
    making = pathlib.Path(tempfile.mkdtemp(prefix="tree-", dir=cache))
    making.chmod(0o755)
    log_path = cache / "base.log"
    with open(log_path, "w", encoding="utf-8") as log:
        included = ",".join(PACKAGES)
        if not logged(log, "debootstrap", "--variant=minbase", f"--include={included}", suite, making, mirror()):
            last = log_path.read_text(encoding="utf-8").strip().splitlines()[-1:]
            raise Unavailable(f"debootstrap failed: {' '.join(last)}")
        # debootstrap has left its lists, and knows nothing of virtual packages.
        shutil.copy("/etc/resolv.conf", making / "etc/resolv.conf")
        inside = ["chroot", making, "apt-get", "--quiet", "--quiet", "--yes", "--no-install-recommends"]
        installed = logged(log, *inside, "update") and logged(log, *inside, "install", *packages)
        assert installed, log_path.read_text(encoding="utf-8")
        logged(log, *inside, "clean")
    for old in cache.glob("base-*"):
        shutil.rmtree(old)
    making.rename(base)
    return base


class BootedSystem:
    def __init__(self, cache, packages=(), suite="bookworm"):
        self.cache = pathlib.Path(cache) / suite
        self.suite = suite
        self.packages = packages
        self.tree = None
        self.nspawn = None
        self.leader = None

    def __enter__(self):
        self.cache.mkdir(parents=True, exist_ok=True)
        for old in self.cache.glob("tree-*"):  # of a run that was killed
            shutil.rmtree(old)
        base = make_base(self.cache, self.packages, self.suite)
        self.tree = pathlib.Path(tempfile.mkdtemp(prefix="tree-", dir=self.cache))
        subprocess.run(["cp", "-a", "--reflink=auto", f"{base}/.", self.tree], check=True)
        return self

    def boot(self):
        """Returns when systemd says that the system is up."""
        name = f"ingero-test-{os.getpid()}"  # abstract: a path may be too long
        # Killed itself, systemd-nspawn would leave the system running; told to end, it shuts it down.
        # With a network of its own, without which systemd 257 gives no service a PrivateNetwork= here.
        command = ["setpriv", "--pdeathsig", "TERM", "--",
                   "systemd-nspawn", "--quiet", f"--directory={self.tree}", "--boot", "--register=no", "--keep-unit",
                   "--console=pipe", "--notify-ready=yes", "--resolv-conf=off", "--private-network",
                   "--capability=CAP_BPF,CAP_PERFMON,CAP_CHECKPOINT_RESTORE",
                   "--system-call-filter=bpf perf_event_open"]
        if os.path.isdir("/sys/fs/bpf"):
            command.append("--bind=/sys/fs/bpf")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
            notify.bind(f"\0{name}")
            with open(self.cache / "console.log", "wb") as console:
                self.nspawn = subprocess.Popen(command, env=dict(os.environ, NOTIFY_SOCKET=f"@{name}"),
                                               stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT)
            self._wait_ready(notify)

    def _wait_ready(self, notify):
        end = time.monotonic() + BOOT_LIMIT_S
        while True:
            readable, _, _ = select.select([notify], [], [], 0.2)
            if readable:
                message = notify.recv(4096).decode()
                if found := re.search(r"^X_NSPAWN_LEADER_PID=(\d+)$", message, re.MULTILINE):
                    self.leader = int(found.group(1))
                if re.search(r"^READY=1$", message, re.MULTILINE) and self.leader:
                    return
            if self.nspawn.poll() is not None or time.monotonic() > end:
                said = (self.cache / "console.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
                raise Unavailable(f"systemd-nspawn did not boot: {' '.join(said[-2:])}")

    def __exit__(self, *_):
        if self.nspawn and self.nspawn.poll() is None:
            self.nspawn.terminate()  # an orderly shutdown
            try:
                self.nspawn.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.nspawn.kill()
                self.nspawn.wait()
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.leader, signal.SIGKILL)  # and with it all processes inside
        if self.tree:
            shutil.rmtree(self.tree)

    def path(self, inside):
        """A path of the running system, mounts included, as seen from here."""
        return pathlib.Path(f"/proc/{self.leader}/root") / str(inside).lstrip("/")

    def write(self, inside, text, mode=0o644):
        path = self.path(inside)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)

    def _enter(self, command):
        return ["nsenter", "--target", str(self.leader), "--all", "--", *command]

    def popen(self, *command, user="root", properties=(), unit=None, **more):
        """Starts a command as a transient service, its output connected. To end it early, stop its `unit`."""
        service = ["systemd-run", "--quiet", "--pipe", "--wait", "--collect", f"--uid={user}",
                   *([f"--unit={unit}"] if unit else []), *(f"--property={one}" for one in properties), "--",
                   *map(str, command)]
        return subprocess.Popen(self._enter(service), text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                env=ENVIRONMENT, **more)

    def run(self, *command, user="root", check=True, timeout=60, properties=()):
        """Runs a command as a transient service; standard error is apart."""
        process = self.popen(*command, user=user, properties=properties, stderr=subprocess.PIPE)
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise AssertionError(f"after {timeout} s still running: {' '.join(map(str, command))}") from None
        done = subprocess.CompletedProcess(command, process.returncode, stdout, stderr)
        said = f"{' '.join(map(str, command))}: exit {done.returncode}\n{stdout}{stderr}"
        assert not check or done.returncode == 0, said
        return done

    def systemctl(self, *arguments, check=True, timeout=90):
        """Straight from here: it only talks to systemd."""
        done = subprocess.run(self._enter(["systemctl", *arguments]), capture_output=True, text=True, check=False,
                              timeout=timeout, stdin=subprocess.DEVNULL, env=ENVIRONMENT)
        said = f"systemctl {' '.join(arguments)}: exit {done.returncode}\n{done.stderr}"
        assert not check or done.returncode == 0, said
        return done

    def show(self, unit, *properties):
        """{property: value}"""
        text = self.systemctl("show", unit, f"--property={','.join(properties)}").stdout
        return dict(line.split("=", 1) for line in text.splitlines())

    def start_service(self, unit, *command, user="root", properties=()):
        """Starts a command as a service that goes on."""
        subprocess.run(self._enter(["systemd-run", "--quiet", "--collect", f"--unit={unit}", f"--uid={user}",
                                    *(f"--property={one}" for one in properties), "--", *map(str, command)]),
                       check=True, stdin=subprocess.DEVNULL, env=ENVIRONMENT)

    def journal(self, *arguments):
        """With everything that was written before."""
        for command in (["--sync"], ["--no-pager", *arguments]):
            done = subprocess.run(self._enter(["journalctl", *command]), capture_output=True, text=True, check=True,
                                  stdin=subprocess.DEVNULL, env=ENVIRONMENT)
        return done.stdout
