#!/usr/bin/python3
"""A client that knows the interface by its XML alone: bus_client.py DIRECTORY with the XML files of dbus/.

Compares them with what ingerod says of itself, then reads every property and calls every method by python3-dbus. The
daemon behind the bus is the stand-in of bus_test.cpp. Exit codes: 0 done, 1 failed, 77 python3-dbus is missing.
"""

import fcntl
import json
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ET

try:
    import dbus
except ImportError:
    print("python3-dbus is missing", file=sys.stderr)
    sys.exit(77)

NAME = "io.ingero.Ingero1"
PATH = "/io/ingero/Ingero1"
CHANGES = "org.freedesktop.DBus.Property.EmitsChangedSignal"
PROCESS = PATH + "/process/100_100000"
INCIDENT = PATH + "/incident/00000000000000aa"


def members(interface: ET.Element) -> set:
    found = set()
    for method in interface.findall("method"):
        arguments = [(arg.get("direction", "in"), arg.get("type"), arg.get("name")) for arg in method.findall("arg")]
        found.add(("method", method.get("name"), tuple(sorted(arguments, key=lambda one: one[0]))))
    for signal in interface.findall("signal"):
        found.add(("signal", signal.get("name"), tuple((arg.get("type"), arg.get("name")) for arg in signal.findall("arg"))))
    for one in interface.findall("property"):
        changes = [note.get("value") for note in one.findall("annotation") if note.get("name") == CHANGES] or ["true"]
        found.add(("property", one.get("name"), one.get("type"), one.get("access"), changes[0]))
    return found


def interfaces_of(text: str) -> dict:
    return {one.get("name"): members(one) for one in ET.fromstring(text).findall("interface")}


def check_introspection(directory: pathlib.Path) -> None:
    for file, path in {"": PATH, ".Process": PROCESS, ".Incident": INCIDENT}.items():
        source = interfaces_of((directory / f"{NAME}{file}.xml").read_text(encoding="utf-8"))
        said = interfaces_of(subprocess.run(["busctl", "--system", "introspect", "--xml-interface", NAME, path],
                                            check=True, capture_output=True, text=True).stdout)
        for name, wanted in source.items():
            assert said[name] == wanted, f"{name}: {said[name] ^ wanted}"
        ours = {name for name in said if name.startswith(NAME)}
        assert ours == set(source), f"{path}: {ours}"


def check_properties(bus) -> None:
    manager = dbus.Interface(bus.get_object(NAME, PATH), dbus.PROPERTIES_IFACE).GetAll(NAME)
    expected = {"Version": "1.2.3", "State": "tracing", "Node": "test-node", "UptimeUSec": 5000, "EventsRecorded": 7,
                "EventsLost": 0, "OverheadPermille": 5, "StoreBytes": 4096,
                "Probes": [("/usr/lib/libcudart.so", "launch", True)]}
    assert manager == expected, manager
    process = dbus.Interface(bus.get_object(NAME, PROCESS), dbus.PROPERTIES_IFACE).GetAll(NAME + ".Process")
    assert process == {"Pid": 100, "StartTime": 100000, "Comm": "python", "Unit": "train.service", "Container": "",
                       "State": "tracing"}, process
    incident = dbus.Interface(bus.get_object(NAME, INCIDENT), dbus.PROPERTIES_IFACE).GetAll(NAME + ".Incident")
    assert incident == {"Id": "00000000000000aa", "Kind": "cpu-contention", "Severity": "high", "Verdict": "proven",
                        "Summary": "lost 1 ms", "LostUSec": 1000, "Explained": 0.5, "OpenedUSec": 1700000000000000,
                        "Culprits": [("hog", 42, 900)]}, incident


def read_sealed(descriptor) -> dict:
    fd = descriptor.take()
    seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    wanted = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    assert seals == wanted, seals
    with os.fdopen(fd, "rb") as file:
        return json.loads(file.read())


def check_methods(bus) -> None:
    manager = dbus.Interface(bus.get_object(NAME, PATH), NAME)
    status = manager.GetStatus()
    assert status["state"] == "tracing" and status["events"]["recorded"] == 7 and status["missing_probes"] == [], status
    assert "measured_permille" not in status["overhead"], "null is absent"
    assert manager.ListProcesses() == [(100, 100000, PROCESS), (200, 200000, PATH + "/process/200_200000")]
    assert manager.GetProcess(PROCESS) == {"rank": 4, "calls_per_s": 12.5}, manager.GetProcess(PROCESS)
    assert manager.ListIncidents() == [("00000000000000aa", "cpu-contention", "high", 1700000000000000, INCIDENT)]
    assert json.loads(manager.Explain(0, 0, dbus.Dictionary({}, signature="sv")))["schema"] == "ingero/explain/1"
    requests = json.loads(manager.GetRequests(0, 0, dbus.Dictionary({}, signature="sv")))
    assert requests["schema"] == "ingero/requests/1" and requests["echo"]["method"] == "requests", requests
    assert requests["echo"]["params"] == {}, requests
    for what in ("status", "processes", "incidents", "probes"):
        dump = read_sealed(manager.DumpByFileDescriptor(what))
        assert dump["schema"] == f"ingero/{what}/1", dump
        assert what == "status" or len(dump[what]) >= 1, dump
    manager.SetProbe("launch", False)
    manager.Reload()
    probes = dbus.Interface(manager, dbus.PROPERTIES_IFACE).Get(NAME, "Probes")
    assert probes == [("/usr/lib/libcudart.so", "launch", False)], probes
    objects = dbus.Interface(manager, "org.freedesktop.DBus.ObjectManager").GetManagedObjects()
    assert objects[PROCESS][NAME + ".Process"]["Pid"] == 100 and INCIDENT in objects, objects


def main() -> int:
    bus = dbus.SystemBus()
    check_introspection(pathlib.Path(sys.argv[1]))
    check_properties(bus)
    check_methods(bus)
    return 0


if __name__ == "__main__":
    sys.exit(main())
