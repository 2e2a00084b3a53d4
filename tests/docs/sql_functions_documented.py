"""ingeroctl(1) names the functions that a statement may call, all that core/sql/functions.cpp allows and no other."""

import re
import sys

from tracked import ROOT, report

MAN = ROOT / "docs" / "man" / "ingeroctl.1"
SOURCE = ROOT / "core" / "sql" / "functions.cpp"


def of_list(name: str, pattern: str) -> set[str]:
    text = SOURCE.read_text()
    text = re.sub(r"//[^\n]*", "", text[text.index(f" {name} = "):])
    return set(re.findall(pattern, text[:text.index("});")]))


def main() -> int:
    own = of_list("functions", r'\{"(\w+)\(')
    allowed = own | of_list("functions_of_sqlite", r'"([^"]+)"')
    page = MAN.read_text()
    about = page[page.index('.BR "percentile(x, p)"'):]
    about = about[:about.index("No other can be called.")]
    listed = about[about.index("as far as its version has them:") + 31:].replace("\\-", "-").rstrip(" .\n")
    named = set(re.findall(r"^\.BR? \"?(\w+)\(", about, re.MULTILINE)) | set(re.split(r",\s+", listed.strip()))
    return report([f"{SOURCE.name} allows {name}, which {MAN.name} does not name" for name in sorted(allowed - named)] +
                  [f"{MAN.name} names {name}, which {SOURCE.name} does not allow" for name in sorted(named - allowed)])


sys.exit(main())
