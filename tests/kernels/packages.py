"""Packages of Debian suites and architectures other than the host's: fetched with apt lists of their own, unpacked and
never installed.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "system"))
from booted_system import Unavailable, mirror  # noqa: E402  pylint: disable=wrong-import-position

KEYRING = pathlib.Path("/usr/share/keyrings/debian-archive-keyring.gpg")
APT_LIMIT_S = 300


class Archive:
    """One suite, or more than one with spaces between, for one architecture. All that it keeps is below `cache`."""

    def __init__(self, cache, suite, architecture):
        self.folder = pathlib.Path(cache) / f"apt-{suite.replace(' ', '-')}-{architecture}"
        self.suite = suite
        self.options = [
            "--quiet", "--quiet", "-o", f"APT::Architecture={architecture}",
            "-o", f"APT::Architectures={architecture}", "-o", "APT::Sandbox::User=root",
            "-o", "APT::Install-Recommends=false", "-o", "Dir::Etc::sourcelist=/dev/null",
            "-o", f"Dir::Etc::sourceparts={self.folder}/sources", "-o", "Dir::Etc::preferencesparts=/dev/null",
            "-o", f"Dir::State={self.folder}/state", "-o", f"Dir::State::status={self.folder}/status",
            "-o", f"Dir::Cache={self.folder}/cache"]
        self._updated = False

    def _apt(self, *command, cwd=None):
        try:
            done = subprocess.run([command[0], *self.options, *command[1:]], capture_output=True, text=True,
                                  check=False, stdin=subprocess.DEVNULL, cwd=cwd, timeout=APT_LIMIT_S)
        except FileNotFoundError:
            raise Unavailable(f"{command[0]} is missing: this needs Debian's apt") from None
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{' '.join(command)}: no answer within {APT_LIMIT_S} s") from None
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise Unavailable(f"{' '.join(command[:3])} ({self.suite}): {said[-1] if said else 'failed'}")
        return done.stdout

    def update(self):
        if self._updated:
            return
        if not KEYRING.exists():
            raise Unavailable(f"{KEYRING} is missing: apt-get install debian-archive-keyring")
        for name in ("sources", "state/lists/partial", "cache/archives/partial"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()
        (self.folder / "sources/debian.sources").write_text(
            f"Types: deb\nURIs: {mirror()}\nSuites: {self.suite}\nComponents: main\nSigned-By: {KEYRING}\n",
            encoding="utf-8")
        self._apt("apt-get", "update", "-o", "APT::Update::Error-Mode=any")
        self._updated = True

    def depends_of(self, package, pattern):
        """The first name matching `pattern` that the package depends on: what a metapackage stands for."""
        self.update()
        fields = self._apt("apt-cache", "show", package)
        for line in re.findall(r"^Depends: (.*)$", fields, re.MULTILINE):
            if found := re.search(pattern, line):
                return found.group(0)
        raise Unavailable(f"{package} of {self.suite} does not say which {pattern} it stands for")

    def download(self, package, folder):
        """Returns the package's file, in `folder`."""
        self.update()
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            self._apt("apt-get", "download", package, cwd=place)
            [deb] = pathlib.Path(place).glob("*.deb")
            return pathlib.Path(shutil.move(deb, folder))

    def unpack_with_dependencies(self, packages, root, preferred=None):
        """Unpacks the packages and all that they depend on below `root`, which may hold links as a system's does.
        `preferred`: the suite that is asked first."""
        self.update()
        first = ["--target-release", preferred] if preferred else []
        self._apt("apt-get", "install", "--yes", "--download-only", *first, *packages)
        for deb in sorted((self.folder / "cache/archives").glob("*.deb")):
            unpack(deb, root)
        self._apt("apt-get", "clean")


def unpack(deb, root, *members):
    """Unpacks a package's files, or those that match the patterns."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as packed:
        wanted = ["--wildcards", *members] if members else []
        subprocess.run(["tar", "--extract", "--keep-directory-symlink", "--no-same-owner", f"--directory={root}",
                        *wanted], stdin=packed.stdout, check=True)
        packed.stdout.close()
        if packed.wait() != 0:
            raise Unavailable(f"{deb} cannot be unpacked")
