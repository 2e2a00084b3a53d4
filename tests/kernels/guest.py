"""A virtual machine that boots another kernel into an initial RAM disk of ours, runs commands there, and tells how each
ended.

Programs lie in it where they lie here, so that paths compiled into tests hold: nothing is mounted on /tmp, where a checkout
may lie, and which is in memory as all of the root is.
"""

import collections
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import time

Machine = collections.namedtuple("Machine", "qemu options console triplet")

# Without la57 the emulator's page tables have four levels, as those of most hosts.
MACHINES = {
    "amd64": Machine("qemu-system-x86_64", ["-cpu", "max,la57=off"], "ttyS0", "x86_64-linux-gnu"),
    "arm64": Machine("qemu-system-aarch64", ["-machine", "virt,gic-version=3", "-cpu", "max,pauth-impdef=on"], "ttyAMA0",
                     "aarch64-linux-gnu"),
}

INIT = r"""#!/bin/busybox sh
export PATH=/bin HOME=/tmp INGERO_EMULATED=1
for at in "proc /proc" "sysfs /sys" "devtmpfs /dev" "bpf /sys/fs/bpf" "cgroup2 /sys/fs/cgroup"; do
    set -- $at
    mount -t "$1" "$1" "$2"
done
chmod 1777 /tmp /var/tmp
ip link set lo up
for module in /modules/*.ko; do
    [ ! -e "$module" ] || insmod "$module"
done
dmesg -n 4
echo "@up $(cut -d' ' -f1 /proc/uptime)"
check() {
    name=$1 limit=$2
    shift 2
    echo "@begin $name $(cut -d' ' -f1 /proc/uptime)"
    timeout -s KILL "$limit" "$@" </dev/null 2>&1
    echo "@end $name $? $(cut -d' ' -f1 /proc/uptime)"
}
"""

Ended = collections.namedtuple("Ended", "status seconds output")


class Broken(Exception):
    """The guest did not come up, or not to its end."""


def elf_facts(path):
    """What the loader must find for an ELF file: ({library}, [folder], interpreter or None); None where it is no ELF
    file."""
    done = subprocess.run(["readelf", "--dynamic", "--program-headers", "--wide", path], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0 or "Program Headers" not in done.stdout:
        return None
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", done.stdout))
    found = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", done.stdout)
    folders = [one.replace("$ORIGIN", str(path.parent)) for one in ":".join(found).split(":") if one]
    interpreter = re.search(r"Requesting program interpreter: (\S+)\]", done.stdout)
    return needed, folders, interpreter.group(1) if interpreter else None


class Image:
    """An initial RAM disk. Libraries that a program needs come from `root`, where they are not of the build."""

    def __init__(self, root, triplet, busybox):
        self.root = pathlib.Path(root)
        self.library_folders = [f"/lib/{triplet}", f"/usr/lib/{triplet}"]
        self.files = {"/bin/busybox": pathlib.Path(busybox)}

    def add(self, path, at=None):
        """A file with all that it needs to run."""
        waiting = [(pathlib.Path(path), str(at or path))]
        while waiting:
            file, place = waiting.pop()
            if place in self.files:
                continue
            self.files[place] = file
            facts = elf_facts(file)
            if facts is None:
                continue
            needed, folders, interpreter = facts
            if interpreter:
                waiting.append((self._in_root(interpreter), interpreter))
            for library in needed:
                waiting.append(self._find(library, folders, file))

    def add_module(self, path):
        """Modules are loaded in the order of their names, before all commands."""
        self.files[f"/modules/{path.name}"] = path

    def _in_root(self, path):
        """Links in the root are the root's own."""
        at = self.root / path.lstrip("/")
        while at.is_symlink():
            target = os.readlink(at)
            at = self.root / target.lstrip("/") if target.startswith("/") else at.parent / target
        return at

    def _find(self, library, folders, needed_by):
        for folder in folders:
            if (pathlib.Path(folder) / library).exists():
                return pathlib.Path(folder) / library, f"{folder}/{library}"
        for folder in self.library_folders:
            at = self._in_root(f"{folder}/{library}")
            if at.exists():
                return at, f"{folder}/{library}"
        raise Broken(f"{needed_by} needs {library}, which is nowhere below {self.root}")

    def write(self, archive, commands):
        """`commands`: [(name, limit in s, argument, ...)]."""
        with tempfile.TemporaryDirectory(dir=archive.parent) as place:
            tree = pathlib.Path(place)
            for folder in ("bin", "dev", "proc", "sys", "tmp", "var/tmp", "etc"):
                (tree / folder).mkdir(parents=True)
            for at, file in self.files.items():
                to = tree / at.lstrip("/")
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, to)
                to.chmod(0o755)
                if elf_facts(file) and not at.startswith("/modules/"):
                    subprocess.run(["llvm-strip", "--strip-debug", to], check=True)
            for applet in ("sh", "mount", "chmod", "insmod", "ip", "dmesg", "cut", "timeout", "poweroff", "cat", "uname"):
                (tree / "bin" / applet).symlink_to("busybox")
            (tree / "etc/passwd").write_text("root:x:0:0::/tmp:/bin/sh\n", encoding="utf-8")
            lines = [" ".join(["check", *(f"'{one}'" for one in map(str, command))]) for command in commands]
            (tree / "init").write_text(INIT + "\n".join([*lines, "echo '@done'", "poweroff -f", ""]), encoding="utf-8")
            (tree / "init").chmod(0o755)
            names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
            with open(archive, "wb") as packed:
                subprocess.run(["cpio", "--create", "--format=newc", "--owner=0:0", "--quiet"], cwd=tree,
                               input=names.encode(), stdout=packed, check=True)


def boot(emulator, kernel, image, architecture, console_log, limit_s, accelerator, memory_mib=2048):
    """Runs the guest to its end. `emulator`: the root of qemu's files. Returns {name: Ended} of the commands."""
    machine = MACHINES[architecture]
    command = [emulator / "lib64/ld-linux-x86-64.so.2", "--library-path", emulator / "usr/lib/x86_64-linux-gnu",
               emulator / "usr/bin" / machine.qemu, "-L", emulator / "usr/share/qemu",
               "-L", emulator / "usr/share/seabios", "-accel", accelerator, *machine.options, "-smp", "2", "-m", f"{memory_mib}M", "-display", "none", "-serial", "stdio", "-monitor", "none",
               "-nic", "none", "-no-reboot", "-kernel", str(kernel), "-initrd", str(image),
               "-append", f"console={machine.console} quiet panic=-1 rcupdate.rcu_expedited=1 rdinit=/init"]
    begin = time.monotonic()
    with subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", *command], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=dict(os.environ, QEMU_MODULE_DIR=str(emulator / "usr/lib/x86_64-linux-gnu/qemu"))) as guest:
        late = threading.Timer(limit_s, guest.kill)
        late.start()
        try:
            said = guest.stdout.read().decode(errors="replace").replace("\r", "")
        finally:
            late.cancel()
            guest.kill()
    console_log.write_text(said, encoding="utf-8")
    ended = read_console(said)
    if "\n@done\n" not in said:
        last = "\n".join(said.strip().splitlines()[-15:])
        if not ended:
            raise Broken(f"the guest ended or hung after {time.monotonic() - begin:.0f} s:\n{last}")
        for name in re.findall(r"^@begin (\S+)", said, re.MULTILINE):
            ended.setdefault(name, Ended(None, 0.0, f"the guest ended or hung in it:\n{last}"))
    return ended


def read_console(said):
    """{name: Ended}"""
    pattern = r"^@begin (\S+) ([\d.]+)\n(.*?)^@end \1 (\d+) ([\d.]+)$"
    return {name: Ended(int(status), float(end) - float(begin), output)
            for name, begin, output, status, end in re.findall(pattern, said, re.MULTILINE | re.DOTALL)}
