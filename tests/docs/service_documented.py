"""ingerod(8) lists what the service is made of, no more and no less: units, sockets, capabilities, and the message ids
and fields of its journal entries; each service outlives a process of its own: service_documented.py PAGE."""

import pathlib
import re
import sys

from man_page import ManPage
from tracked import ROOT, report

SYSTEMD = ROOT / "systemd"
DAEMON = ROOT / "daemon" / "ingerod"


def text_of_files(folder: pathlib.Path, pattern: str) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob(pattern)))


def compare(what: str, known: set[str], documented: set[str], page: str) -> list[str]:
    if not known:
        return [f"{what}: none found: have the sources changed?"]
    return [f"{page}: {what} {name} is missing" for name in sorted(known - documented)] + [
        f"{page}: there is no {what} {name}" for name in sorted(documented - known)]


def words_of(page: ManPage, section: str, pattern: str) -> set[str]:
    return {word for tag in page.section(section).all_tags() for word in re.findall(pattern, tag)}


def main() -> int:
    page = ManPage(pathlib.Path(sys.argv[1]))
    service = (SYSTEMD / "ingerod.service").read_text(encoding="utf-8")
    units = {path.name for path in SYSTEMD.iterdir() if path.suffix in (".service", ".socket", ".target")}
    units |= {name for line in re.findall(r"^Alias=(.*)", service, re.MULTILINE) for name in line.split()}
    sockets = set(re.findall(r"^ListenStream=(.*)", text_of_files(SYSTEMD, "*.socket"), re.MULTILINE))
    rights = {name for line in re.findall(r"^AmbientCapabilities=(.*)", service, re.MULTILINE) for name in line.split()}
    ids = set(re.findall(r'"([0-9a-f]{32})"', (DAEMON / "loop" / "journal_ids.h").read_text(encoding="utf-8")))
    fields = set(re.findall(r'"(INGERO_[A-Z_]+)=?"', text_of_files(DAEMON, "**/*.cpp")))
    problems = (compare("unit", units, words_of(page, "UNITS", r"[\w.-]+\.(?:service|socket|target)"), page.name) +
                compare("socket", sockets, words_of(page, "SOCKETS", r"/run/[\w./-]+"), page.name) +
                compare("capability", rights, words_of(page, "RIGHTS", r"CAP_\w+"), page.name) +
                compare("message id", ids, words_of(page, "JOURNAL", r"[0-9a-f]{32}"), page.name) +
                compare("journal field", fields, words_of(page, "JOURNAL", r"INGERO_[A-Z_]+"), page.name))
    catalogued = set(re.findall(r"^-- ([0-9a-f]{32})$", text_of_files(SYSTEMD, "*.catalog"), re.MULTILINE))
    problems += compare("message id", ids, catalogued, "systemd/ingero.catalog")
    # Each has processes of its own that it can do without: the kernel may kill one, systemd is not to stop them all.
    problems += [f"{path.name}: no OOMPolicy=continue" for path in sorted(SYSTEMD.glob("*.service"))
                 if "OOMPolicy=continue" not in path.read_text(encoding="utf-8").splitlines()]
    drop_in = [line for line in (SYSTEMD / "cap-sys-admin.conf").read_text(encoding="utf-8").splitlines()
               if line and not line.startswith("#")]
    shown = "\n".join(page.section("RIGHTS").examples())
    problems += [f"{page.name}: the drop-in lacks {line}" for line in drop_in if line not in shown.splitlines()]
    return report(problems)


if __name__ == "__main__":
    sys.exit(main())
