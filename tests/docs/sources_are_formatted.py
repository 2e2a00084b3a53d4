"""clang-format has nothing to change in the C++ sources. The kernel side is C, in the kernel's manner, and left out."""

import re
import shutil
import subprocess
import sys

from tracked import ROOT, report, skip, tracked


def main() -> int:
    clang_format = shutil.which("clang-format")
    if clang_format is None:
        return skip("clang-format is missing")
    files = [path for path in tracked("*.h", "*.cpp") if path.parent != ROOT / "bpf"]
    checked = subprocess.run([clang_format, "--dry-run", "-Werror", *files], cwd=ROOT, capture_output=True, text=True,
                             check=False)
    if checked.returncode == 0:
        return 0
    # A message begins with its place; what clang-format quotes does not.
    places = re.findall(rf"^{re.escape(str(ROOT))}/(\S+?):\d+:\d+: error:", checked.stderr, re.MULTILINE)
    return report([f"{name}: {places.count(name)} places; run clang-format -i {name}" for name in sorted(set(places))]
                  or [checked.stderr[-2000:]])


if __name__ == "__main__":
    sys.exit(main())
