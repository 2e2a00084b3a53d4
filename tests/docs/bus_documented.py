"""io.ingero.Ingero1(5) has every interface, member and argument of the XML files of dbus/, with its type and how its
changes are told, and no other; and each member is explained below: bus_documented.py PAGE."""

import pathlib
import re
import sys
import xml.etree.ElementTree as ET

from man_page import ManPage
from tracked import ROOT, report

EXPLAINED_IN = {"Process": ["PROCESS OBJECTS"], "Incident": ["INCIDENT OBJECTS"]}
CHANGES = "org.freedesktop.DBus.Property.EmitsChangedSignal"


def arguments(member: ET.Element, with_direction: bool) -> str:
    return ", ".join(" ".join(filter(None, [arg.get("direction", "in") if with_direction else "", arg.get("type"),
                                            arg.get("name")])) for arg in member.findall("arg"))


def members_of_xml(interface: ET.Element) -> set[str]:
    found = {f"method {method.get('name')}({arguments(method, True)})" for method in interface.findall("method")}
    found |= {f"signal {signal.get('name')}({arguments(signal, False)})" for signal in interface.findall("signal")}
    for one in interface.findall("property"):
        changes = [note.get("value") for note in one.findall("annotation") if note.get("name") == CHANGES] or ["true"]
        access = {"read": "readonly", "readwrite": "readwrite", "write": "writeonly"}[one.get("access")]
        found.add(f"property {access} {one.get('type')} {one.get('name')} {changes[0]}")
    return found


def members_of_page(body: str) -> set[str]:
    found = set()
    kind, changes = "", "true"
    for statement in re.findall(rf'(methods|signals|properties):|@{CHANGES}\("([a-z]+)"\)|([^;@:]+);', body):
        heading, annotation, member = (re.sub(r"\s+", " ", part).strip() for part in statement)
        if heading:
            kind = {"methods": "method", "signals": "signal", "properties": "property"}[heading]
        elif annotation:
            changes = annotation
        elif kind == "property":
            found.add(f"property {member} {changes}")
            changes = "true"
        else:
            found.add(f"{kind} {member}")
    return found


def main() -> int:
    page = ManPage(pathlib.Path(sys.argv[1]))
    block = "\n".join(page.section("INTERFACES").examples())
    documented = {name: members_of_page(body)
                  for name, body in re.findall(r"interface ([\w.]+) \{\n(.*?)\n *\};", block, re.DOTALL)}
    files = sorted((ROOT / "dbus").glob("*.xml"))
    interfaces = {one.get("name"): one for file in files for one in ET.parse(file).getroot().iter("interface")}
    problems = [] if interfaces else ["dbus/*.xml: no interface: have the files moved?"]
    problems += [f"{page.name}: there is no interface {name}" for name in sorted(documented.keys() - interfaces.keys())]
    for name, interface in interfaces.items():
        titles = EXPLAINED_IN.get(name.rpartition(".")[2], ["METHODS", "SIGNALS", "PROPERTIES"])
        tags = {word for title in titles for tag in page.section(title).all_tags()
                for word in re.findall(r"[A-Z]\w+", tag)}
        known, found = members_of_xml(interface), documented.get(name, set())
        problems += [f"{page.name}: {name}: missing: {member}" for member in sorted(known - found)]
        problems += [f"{page.name}: {name}: there is no {member}" for member in sorted(found - known)]
        problems += [f"{page.name}: {name}: {member.get('name')} is not explained"
                     for member in interface if member.tag != "annotation" and member.get("name") not in tags]
    return report(problems)


if __name__ == "__main__":
    sys.exit(main())
