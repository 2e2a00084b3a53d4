#!/usr/bin/python3
"""Shows each new incident of ingerod as a notification of the desktop. Needs python3-gi."""

from gi.repository import Gio, GLib


def on_opened(_bus, _sender, _path, _interface, _signal, arguments):
    _id, kind, severity, summary, _incident = arguments.unpack()
    hints = {"urgency": GLib.Variant("y", 2 if severity == "high" else 1)}
    notification = GLib.Variant("(susssasa{sv}i)", ("ingero", 0, "dialog-warning", kind, summary, [], hints, -1))
    desktop.call("org.freedesktop.Notifications", "/org/freedesktop/Notifications", "org.freedesktop.Notifications",
                 "Notify", notification, None, Gio.DBusCallFlags.NONE, -1, None, None)


desktop = Gio.bus_get_sync(Gio.BusType.SESSION)
system = Gio.bus_get_sync(Gio.BusType.SYSTEM)
system.signal_subscribe("io.ingero.Ingero1", "io.ingero.Ingero1", "IncidentOpened", None, None, Gio.DBusSignalFlags.NONE, on_opened)
GLib.MainLoop().run()
