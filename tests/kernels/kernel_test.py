#!/usr/bin/python3
"""Capture on other kernels than the host's: the tests of tests/integration, run in a virtual machine.

    kernel_test.py list                                  "KERNEL LABEL CHECK" a line: a CTest test each
    kernel_test.py fetch SOURCE KERNEL                   its image, from Debian's archive
    kernel_test.py build SOURCE                          everything for arm64, below build/arm64
    kernel_test.py run SOURCE KERNEL RESULTS [CHECK...]  boots it, runs the checks, notes the results
    kernel_test.py report RESULTS CHECK                  tells one check's result

What is fetched and made is kept below build/kernels; remove that folder to have newer kernels.
"""

import argparse
import json
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from guest import MACHINES, Broken, Image, boot
from kernels import CASES, KERNELS, MODULE_FOLDERS, MODULES, PROGRAMS, SINCE, checks_of
from packages import Archive, Unavailable, unpack

SKIPPED = 77
GUEST_LIMIT_S = 900
CHECK_LIMIT_S = 60
CROSS_PACKAGES = ["libbpf-dev", "libcap-dev", "libelf-dev", "libgcrypt20-dev", "liblmdb-dev", "libsdbus-c++-dev", "libseccomp-dev",
                  "libspdlog-dev", "libsqlite3-dev", "libsystemd-dev", "libxxhash-dev", "libzstd-dev",
                  "libgtest-dev", "libgmock-dev", "libc6-dev", "libstdc++6", "zlib1g-dev", "libcli11-dev", "libexpected-dev",
                  "libmsgpack-cxx-dev", "libncurses-dev", "libtomlplusplus-dev", "nlohmann-json3-dev"]
PROGRAM_TARGETS = ["ingerod", "ingero-worker", "ingeroctl", "standin-workload", "standin-hog",
                   "standin-collectives", "footprint-program", "footprint-library", "host-program", "late-nfs"]


def cache_of(source):
    cache = source / "build/kernels"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


# What is fetched


def look_around():
    if os.uname().machine != "x86_64":
        raise Unavailable(f"the emulator is fetched for x86-64 hosts, and this is {os.uname().machine}")
    for program in ("cpio", "dpkg-deb", "llvm-strip", "readelf"):
        if not shutil.which(program):
            raise Unavailable(f"{program} is missing: scripts/install-dependencies test")


def fetched(cache, name, fetch):
    """The file or folder of that name below `cache`, made by fetch(path) where it is not there yet."""
    path = cache / name
    if not path.exists():
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=cache) as place:
            making = pathlib.Path(place) / name
            fetch(making)
            making.rename(path)
    return path


def dependencies_of(module):
    """Names of the modules that a module's file says it needs."""
    said = re.search(rb"(?:^|\0)depends=([^\0]*)\0", module.read_bytes())
    return [name for name in (said.group(1).decode() if said else "").split(",") if name]


def keep_modules(unpacked, folder, wanted):
    """Those modules with all that they need, numbered as they are to be loaded. What has no file is built in."""
    files = {path.name.split(".")[0].replace("-", "_"): path for path in unpacked.rglob("*.ko*")}
    done = []

    def keep(name):
        if name in done or name not in files:
            return
        if files[name].suffix == ".xz":
            plain = files[name].with_suffix("")
            plain.write_bytes(lzma.decompress(files[name].read_bytes()))
            files[name] = plain
        for needed in dependencies_of(files[name]):
            keep(needed)
        files[name].rename(folder / f"{len(done):02}-{name}.ko")
        done.append(name)

    for name in wanted:
        if name not in files:
            raise Unavailable(f"{unpacked} has no module {name}")
        keep(name)


def fetch_kernel(cache, name):
    """A folder with `vmlinuz` and the modules that the checks need."""
    kernel = KERNELS[name]

    def fetch(making):
        archive = Archive(cache, kernel.suite, kernel.architecture)
        package = archive.depends_of(kernel.metapackage, r"linux-image-[^ ,]+")
        deb = archive.download(package, making.parent)
        unpacked = making.parent / "unpacked"
        unpacked.mkdir()
        unpack(deb, unpacked, "./boot/vmlinuz-*", *(f"./lib/modules/*/kernel/{path}/*" for path in MODULE_FOLDERS))
        making.mkdir()
        [image] = unpacked.glob("boot/vmlinuz-*")
        image.rename(making / "vmlinuz")
        keep_modules(unpacked, making, MODULES)
        print(f"{package}: {(making / 'vmlinuz').stat().st_size >> 20} MiB")
    return fetched(cache, "-".join(["kernel", name, *MODULES]), fetch)


def fetch_busybox(cache, architecture):
    def fetch(making):
        deb = Archive(cache, "bookworm", architecture).download("busybox-static", making.parent)
        unpack(deb, making.parent, "./bin/busybox")
        (making.parent / "bin/busybox").rename(making)
    return fetched(cache, f"busybox-{architecture}", fetch)


def merged_usr(root):
    """The links that every Debian has, before packages are unpacked over them."""
    for folder in ("bin", "lib", "lib64", "sbin"):
        (root / "usr" / folder).mkdir(parents=True)
        (root / folder).symlink_to(f"usr/{folder}")


def fetch_emulator(cache):
    """Newer than Debian 12's own, under which newer kernels crash at times."""
    def fetch(making):
        merged_usr(making)
        Archive(cache, "bookworm bookworm-backports", "amd64").unpack_with_dependencies(
            ["qemu-system-arm", "qemu-system-x86"], making, "bookworm-backports")
    return fetched(cache, "emulator", fetch)


def fetch_sysroot(cache):
    """What programs for arm64 are linked with, and run with in the guest."""
    wanted = "\n".join(CROSS_PACKAGES)

    def fetch(making):
        merged_usr(making)
        Archive(cache, "bookworm", "arm64").unpack_with_dependencies(CROSS_PACKAGES, making)
        (making / "packages").write_text(wanted, encoding="utf-8")

    has = cache / "sysroot-arm64/packages"
    if not has.is_file() or has.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(cache / "sysroot-arm64", ignore_errors=True)
    return fetched(cache, "sysroot-arm64", fetch)


# What is built


def build_for_arm64(source):
    if not shutil.which("aarch64-linux-gnu-g++"):
        raise Unavailable("aarch64-linux-gnu-g++ is missing: scripts/install-dependencies test")
    fetch_sysroot(cache_of(source))
    subprocess.run(["nice", source / "scripts/build", "arm64", *PROGRAM_TARGETS, *PROGRAMS], check=True,
                   stdin=subprocess.DEVNULL)


def image_of(source, architecture, modules, checks, archive):
    cache = cache_of(source)
    build = source / ("build/arm64" if architecture == "arm64" else "build/release")
    root = fetch_sysroot(cache) if architecture == "arm64" else "/"
    image = Image(root, MACHINES[architecture].triplet, fetch_busybox(cache, architecture))
    image.add(build / "daemon/ingerod/ingerod")
    image.add(build / "daemon/worker/ingero-worker")
    image.add(build / "ctl/ingeroctl")
    for program in PROGRAMS:
        image.add(build / "tests/integration" / program)
    for program in ("footprint-program", "libfootprint-library.so", "host-program", "late-nfs"):
        image.add(build / "tests/integration" / program)
    standin = build / "tests/standin"
    for path in (standin / "standin-workload", standin / "standin-hog", standin / "standin-collectives", *sorted(standin.glob("lib/*.so*"))):
        image.add(path)
    for module in modules:
        image.add_module(module)
    commands = []
    for check in checks:
        if check == "features":
            commands.append((check, CHECK_LIMIT_S, build / "daemon/ingerod/ingerod", "--check"))
        else:
            program, case = CASES[check]
            commands.append((check, CHECK_LIMIT_S, build / "tests/integration" / program, f"--gtest_filter={case}",
                             "--gtest_color=no"))
    image.write(archive, commands)


# What came of it


def judge_features(output):
    """What `ingerod --check` said, against what Linux of the release that runs in the guest has."""
    rows = {name: (state, detail) for state, name, detail in
            re.findall(r"^(pass|note|FAIL) +(\S+) +(.*)$", output, re.MULTILINE)}
    wrong = [f"{name}: {rows[name]}" for name in rows if rows[name][0] == "FAIL"]
    release = re.match(r"Linux (\d+)\.(\d+)", rows.get("kernel", ("", ""))[1])
    if not release:
        return [*wrong, f"kernel: {rows.get('kernel')}, wanted a release"]
    has = [name for name, since in SINCE.items() if tuple(map(int, release.groups())) >= since]
    for name in SINCE:
        wanted = "pass" if name in has else "note"
        if rows.get(name, ("", ""))[0] != wanted:
            wrong.append(f"{name}: {rows.get(name)}, wanted {wanted}")
    # Where perf uprobes are all there is, it is also said that the service lacks the right that most kernels require.
    attach = [("pass", has[0])]
    if has[0] == "perf-uprobe":
        attach.append(("note", "perf-uprobe, but not for a service without CAP_SYS_ADMIN"))
    if rows.get("attach") not in attach:
        wrong.append(f"attach: {rows.get('attach')}, wanted {has[0]}")
    return wrong


def judge(check, ended):
    """{status, text}. What skips itself in the guest has failed: here it is asked for."""
    if ended is None:
        return {"status": "failed", "text": "the guest did not get there"}
    wrong = []
    if ended.status is None:
        wrong.append("did not end")
    elif ended.status != 0:
        wrong.append("killed: took too long" if ended.status == 137 else f"exit {ended.status}")
    elif check == "features":
        wrong = judge_features(ended.output)
    elif "[  SKIPPED ]" in ended.output or not re.search(r"^\[  PASSED  \] [1-9]\d* tests?\.$", ended.output,
                                                        re.MULTILINE):
        wrong.append("ran no test, or skipped one")
    status = "failed" if wrong else "passed"
    return {"status": status, "text": "\n".join([f"{ended.seconds:.1f} s", ended.output.strip(), *wrong])}


def run(source, name, results_file, only, accelerator):
    begin = time.monotonic()
    kernel = KERNELS[name]
    checks = [check for check in checks_of(kernel) if not only or check in only]
    results_file.unlink(missing_ok=True)
    try:
        look_around()
        cache = cache_of(source)
        folder = fetch_kernel(cache, name)
        with tempfile.TemporaryDirectory(prefix="guest-", dir=cache) as place:
            image = pathlib.Path(place) / "initramfs.cpio"
            image_of(source, kernel.architecture, sorted(folder.glob("*.ko")), checks, image)
            print(f"image of {image.stat().st_size >> 20} MiB after {time.monotonic() - begin:.1f} s", flush=True)
            ended = boot(fetch_emulator(cache), folder / "vmlinuz", image, kernel.architecture,
                         cache / f"console-{name}.log", GUEST_LIMIT_S, accelerator)
        results = {check: judge(check, ended.get(check)) for check in checks}
    except Unavailable as why:
        print(f"SKIPPED: {why}")
        results = {check: {"status": "skipped", "text": str(why)} for check in checks}
    except Broken as why:
        print(why)
        return 1
    results_file.parent.mkdir(parents=True, exist_ok=True)
    results_file.write_text(json.dumps(results, indent=1), encoding="utf-8")
    for check, result in results.items():
        print(f"{result['status']}: {check}, {result['text'].splitlines()[0]}")
    print(f"{time.monotonic() - begin:.1f} s")
    return SKIPPED if any(result["status"] == "skipped" for result in results.values()) else 0


def report(results_file, name):
    if not results_file.exists():
        print("the guest was not run to its end")
        return 1
    result = json.loads(results_file.read_text(encoding="utf-8")).get(name)
    if result is None:
        print("not run")
        return 1
    print(("SKIPPED: " if result["status"] == "skipped" else "") + result["text"])
    return {"passed": 0, "failed": 1, "skipped": SKIPPED}[result["status"]]


def list_checks():
    for name, kernel in KERNELS.items():
        for check in checks_of(kernel):
            print(name, "system-long" if kernel.long else "system", check)
    return 0


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list")
    for name in ("fetch", "build", "run"):
        command = commands.add_parser(name)
        command.add_argument("source", type=lambda text: pathlib.Path(text).resolve())
        if name != "build":
            command.add_argument("kernel", choices=KERNELS)
        if name == "run":
            command.add_argument("results", type=lambda text: pathlib.Path(text).resolve())
            command.add_argument("only", nargs="*", help="only these checks")
            command.add_argument("--accelerator", default="tcg,thread=multi", help="as qemu's -accel takes it")
    command = commands.add_parser("report")
    command.add_argument("results", type=pathlib.Path)
    command.add_argument("check")
    options = parser.parse_args()
    try:
        if options.command == "list":
            return list_checks()
        if options.command == "fetch":
            look_around()
            fetch_emulator(cache_of(options.source))
            fetch_kernel(cache_of(options.source), options.kernel)
            fetch_busybox(cache_of(options.source), KERNELS[options.kernel].architecture)
            return 0
        if options.command == "build":
            build_for_arm64(options.source)
            return 0
    except Unavailable as why:
        print(f"SKIPPED: {why}")
        return SKIPPED
    if options.command == "report":
        return report(options.results, options.check)
    return run(options.source, options.kernel, options.results, options.only, options.accelerator)


if __name__ == "__main__":
    sys.exit(main())
