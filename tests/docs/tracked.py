"""The files of the project, for the checks beside this file."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77
NOT_OURS = {"build", ".git", ".cache", "__pycache__"}


def tracked(*patterns: str) -> list[pathlib.Path]:
    """Paths below ROOT that git tracks and whose name matches; without git, all that are no output of a build."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        files = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    else:
        files = [path for path in ROOT.rglob("*") if not NOT_OURS & set(path.relative_to(ROOT).parts)]
    files = [path for path in files if path.is_file()]
    if patterns:
        files = [path for path in files if any(path.match(pattern) for pattern in patterns)]
    return sorted(files)


def text_of(path: pathlib.Path) -> str | None:
    """None for what is no text."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def report(problems: list[str]) -> int:
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def skip(reason: str) -> int:
    print(f"SKIPPED: {reason}")
    return SKIPPED
