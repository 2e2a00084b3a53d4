#!/usr/bin/python3
"""Prints each signal of ingerod as a line of JSON: its name and its arguments. Needs python3-gi."""

import json

from gi.repository import Gio, GLib


def on_signal(_bus, _sender, _path, _interface, signal, arguments):
    print(json.dumps({"signal": signal, "arguments": arguments.unpack()}), flush=True)


system = Gio.bus_get_sync(Gio.BusType.SYSTEM)
system.signal_subscribe("io.ingero.Ingero1", "io.ingero.Ingero1", None, None, None, Gio.DBusSignalFlags.NONE, on_signal)
GLib.MainLoop().run()
