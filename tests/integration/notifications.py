"""The notifications of a desktop, on the session bus: prints each as "urgency summary: body"."""

from gi.repository import Gio, GLib

INTERFACE = """<node><interface name="org.freedesktop.Notifications"><method name="Notify">
<arg type="s" direction="in"/><arg type="u" direction="in"/><arg type="s" direction="in"/><arg type="s" direction="in"/>
<arg type="s" direction="in"/><arg type="as" direction="in"/><arg type="a{sv}" direction="in"/>
<arg type="i" direction="in"/><arg type="u" direction="out"/></method></interface></node>"""


def on_call(_bus, _sender, _path, _interface, _method, arguments, invocation):
    _application, _replaces, _icon, summary, body, _actions, hints, _timeout = arguments.unpack()
    print(f"{hints['urgency']} {summary}: {body}", flush=True)
    invocation.return_value(GLib.Variant("(u)", (1,)))


bus = Gio.bus_get_sync(Gio.BusType.SESSION)
bus.register_object("/org/freedesktop/Notifications", Gio.DBusNodeInfo.new_for_xml(INTERFACE).interfaces[0], on_call)
Gio.bus_own_name_on_connection(bus, "org.freedesktop.Notifications", Gio.BusNameOwnerFlags.NONE,
                               lambda *_: print("ready", flush=True), None)
GLib.MainLoop().run()
