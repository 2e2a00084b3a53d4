"""Removing the package follows no link that the service left in its own folder: deb_postrm_test.py POSTRM."""

import os
import pathlib
import subprocess
import sys
import tempfile


def remove(script: str, root: pathlib.Path, what: str) -> str:
    done = subprocess.run(["/bin/sh", script, what], env={"PATH": os.environ["PATH"], "DPKG_ROOT": str(root)},
                          stderr=subprocess.PIPE, text=True, timeout=60, check=True)
    return done.stderr


def main() -> int:
    script = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "root"
        state = root / "var/lib/ingero"
        mark = state / ".store-elsewhere"
        (root / "etc/ingero").mkdir(parents=True)
        state.mkdir(parents=True)
        (root / "etc/ingero/ingerod.conf").write_text("[store]\npath = /srv/ingero\n")
        made = pathlib.Path(folder) / "made"
        there = pathlib.Path(folder) / "there"
        there.write_text("kept")
        os.utime(there, (1, 1))
        for target in (made, there):
            mark.unlink(missing_ok=True)
            mark.symlink_to(target)
            remove(script, root, "remove")
            assert mark.is_file() and not mark.is_symlink(), "no mark that the store was moved"
        mark.unlink()
        (mark / "full").mkdir(parents=True)
        remove(script, root, "remove")
        assert mark.is_file(), "a folder in place of the mark stayed"
        assert not made.exists(), "a file was made where the link points to"
        assert there.stat().st_mtime == 1 and there.read_text() == "kept", "what the link points to was changed"
        assert [entry.name for entry in state.iterdir()] == [mark.name], "something was left behind"

        (state / "outside").symlink_to(folder)
        assert "the user ingero stays" in remove(script, root, "purge")
        assert not state.exists() and there.read_text() == "kept"
    return 0


if __name__ == "__main__":
    sys.exit(main())
