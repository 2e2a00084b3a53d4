"""Reads a Perfetto trace as Perfetto's trace processor does, with the protobuf library and the field numbers of the
published schema (perfetto.dev/docs/reference/trace-packet-proto): perfetto_trace.py FILE. Prints one JSON object:
{"slices": [{"name", "category", "ts", "dur", "depth", "track", "args"}], "flows": [[n, n]], "packets": n}. A track is
{"name", "pid", "tid", "process"}, from the descriptors; a flow leads from the slice of one number to that of another. A field that the schema does not have, a slice without an end, and a number that
stands for nothing are errors."""

import json
import pathlib
import sys

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except ImportError:
    print("SKIPPED: no python3-protobuf")
    sys.exit(77)

TYPES = {"u64": 4, "f64": 6, "i32": 5, "i64": 3, "bool": 8, "string": 9, "u32": 13, "enum": 5}
# Name: (number, type); a type in brackets is repeated, a name of a message embeds it.
SCHEMA = {
    "Trace": {"packet": (1, ["TracePacket"])},
    "TracePacket": {
        "clock_snapshot": (6, "ClockSnapshot"), "timestamp": (8, "u64"), "trusted_packet_sequence_id": (10, "u32"),
        "track_event": (11, "TrackEvent"), "interned_data": (12, "InternedData"), "sequence_flags": (13, "u32"),
        "timestamp_clock_id": (58, "u32"), "trace_packet_defaults": (59, "TracePacketDefaults"),
        "track_descriptor": (60, "TrackDescriptor"), "first_packet_on_sequence": (87, "bool")},
    "TracePacketDefaults": {"timestamp_clock_id": (58, "u32")},
    "ClockSnapshot": {"clocks": (1, ["Clock"]), "primary_trace_clock": (2, "enum")},
    "Clock": {"clock_id": (1, "u32"), "timestamp": (2, "u64"), "is_incremental": (3, "bool"),
              "unit_multiplier_ns": (4, "u64")},
    "TrackDescriptor": {"uuid": (1, "u64"), "name": (2, "string"), "process": (3, "ProcessDescriptor"),
                        "thread": (4, "ThreadDescriptor"), "parent_uuid": (5, "u64")},
    "ProcessDescriptor": {"pid": (1, "i32"), "cmdline": (2, ["string"]), "process_name": (6, "string"),
                          "start_timestamp_ns": (7, "i64")},
    "ThreadDescriptor": {"pid": (1, "i32"), "tid": (2, "i32"), "thread_name": (5, "string")},
    "TrackEvent": {"category_iids": (3, ["u64"]), "debug_annotations": (4, ["DebugAnnotation"]), "type": (9, "enum"),
                   "name_iid": (10, "u64"), "track_uuid": (11, "u64"), "categories": (22, ["string"]),
                   "name": (23, "string"), "flow_ids": (47, ["f64"]), "terminating_flow_ids": (48, ["f64"])},
    "DebugAnnotation": {"name_iid": (1, "u64"), "bool_value": (2, "bool"), "uint_value": (3, "u64"),
                        "int_value": (4, "i64"), "string_value": (6, "string"), "name": (10, "string")},
    "InternedData": {"event_categories": (1, ["Interned"]), "event_names": (2, ["Interned"]),
                     "debug_annotation_names": (3, ["Interned"])},
    # EventCategory, EventName and DebugAnnotationName are alike.
    "Interned": {"iid": (1, "u64"), "name": (2, "string")},
}
REALTIME = 1
BEGIN, END, INSTANT = 1, 2, 3
CLEARED, NEEDS_STATE = 1, 2


def trace_class():
    file = descriptor_pb2.FileDescriptorProto(name="trace.proto", package="p", syntax="proto2")
    for message, fields in SCHEMA.items():
        description = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            repeated = isinstance(kind, list)
            kind = kind[0] if repeated else kind
            field = description.field.add(name=name, number=number, label=3 if repeated else 1)
            if kind in TYPES:
                field.type = TYPES[kind]
            else:
                field.type, field.type_name = 11, f".p.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.MessageFactory(pool).GetPrototype(pool.FindMessageTypeByName("p.Trace"))


def check_known(message) -> None:
    unknown = message.UnknownFields()
    if len(unknown):
        raise SystemExit(f"{message.DESCRIPTOR.name} has an unknown field {unknown[0].field_number}")
    for field, value in message.ListFields():
        if field.message_type:
            for one in value if field.label == field.LABEL_REPEATED else [value]:
                check_known(one)


class Reader:
    def __init__(self):
        self.tracks, self.interned, self.events, self.clocks, self.flows = {}, {}, [], [], []
        self.names = {}  # never to stand for something else
        self.valid = False
        self.default_clock = None

    def intern(self, kind: str, entries) -> None:
        for entry in entries:
            known = self.names.setdefault((kind, entry.iid), entry.name)
            if known != entry.name or entry.iid == 0:
                raise SystemExit(f"{kind} {entry.iid} is {known} and {entry.name}")
            self.interned[kind, entry.iid] = entry.name

    def text(self, kind: str, iid: int) -> str:
        if (kind, iid) not in self.interned:
            raise SystemExit(f"{kind} {iid} was not told")
        return self.interned[kind, iid]

    def read(self, packet) -> None:
        if packet.trusted_packet_sequence_id == 0:
            raise SystemExit("a packet of no sequence")
        if packet.sequence_flags & CLEARED:
            self.interned, self.valid = {}, True
        if packet.sequence_flags & NEEDS_STATE and not self.valid:
            raise SystemExit("a packet needs a state that was not cleared before")
        if packet.HasField("trace_packet_defaults"):
            self.default_clock = packet.trace_packet_defaults.timestamp_clock_id
        for kind in ("event_categories", "event_names", "debug_annotation_names"):
            self.intern(kind, getattr(packet.interned_data, kind))
        if packet.HasField("clock_snapshot"):
            self.clocks.append(packet.clock_snapshot)
        if packet.HasField("track_descriptor"):
            self.describe(packet.track_descriptor)
        if packet.HasField("track_event"):
            if (packet.timestamp_clock_id or self.default_clock) != REALTIME:
                raise SystemExit("a time that is not CLOCK_REALTIME")
            self.events.append((packet.timestamp, len(self.events), self.resolve(packet.track_event)))

    def describe(self, track) -> None:
        if track.uuid == 0 or (track.parent_uuid and track.parent_uuid not in self.tracks):
            raise SystemExit("a track without a number, or before its parent")
        known = self.tracks.setdefault(track.uuid, track)
        if known != track:
            raise SystemExit(f"two tracks have the number {track.uuid}")

    def resolve(self, event) -> dict:
        if event.track_uuid not in self.tracks:
            raise SystemExit("an event on a track that was not described")
        args = {}
        for one in event.debug_annotations:
            name = one.name or self.text("debug_annotation_names", one.name_iid)
            args[name] = one.string_value if one.HasField("string_value") else one.int_value
        categories = list(event.categories) + [self.text("event_categories", iid) for iid in event.category_iids]
        name = event.name or (self.text("event_names", event.name_iid) if event.name_iid else None)
        return {"type": event.type, "track": event.track_uuid, "name": name, "args": args,
                "category": ",".join(categories), "flows": list(event.flow_ids),
                "ends_flows": list(event.terminating_flow_ids)}

    def place(self, uuid: int) -> dict:
        track = self.tracks[uuid]
        place = {"name": track.name or None, "pid": None, "tid": None, "process": None}
        while True:
            if track.HasField("thread"):
                place.update(pid=track.thread.pid, tid=track.thread.tid)
            if track.HasField("process"):
                place["process"] = track.process.process_name or None
                if place["pid"] not in (None, track.process.pid):
                    raise SystemExit("a thread hangs on another process")
            if not track.parent_uuid:
                return place
            track = self.tracks[track.parent_uuid]

    def slices(self) -> list[dict]:
        done, open_slices, open_flows = [], {}, {}
        places = {uuid: self.place(uuid) for uuid in self.tracks}
        for time, _, event in sorted(self.events, key=lambda entry: entry[:2]):
            stack = open_slices.setdefault(event["track"], [])
            if event["type"] in (BEGIN, INSTANT):
                # A flow leads on from the slice that had it before.
                for flow in event["ends_flows"]:
                    if flow not in open_flows:
                        raise SystemExit("a flow ends that has not begun")
                    self.flows.append([open_flows.pop(flow), len(done)])
                for flow in event["flows"]:
                    if flow in open_flows:
                        raise SystemExit("two flows have one number")
                    open_flows[flow] = len(done)
                done.append({"name": event["name"], "category": event["category"], "args": event["args"], "ts": time,
                             "dur": 0, "depth": len(stack), "track": places[event["track"]]})
            if event["type"] == BEGIN:
                stack.append(done[-1])
            elif event["type"] == INSTANT:
                pass
            elif event["type"] == END and stack:
                top = stack.pop()
                top["dur"] = time - top["ts"]
            else:
                raise SystemExit("an end without a begin, or an event that is neither")
        if any(open_slices.values()):
            raise SystemExit("a slice without an end")
        if open_flows:
            raise SystemExit("a flow without an end")
        return done


def main() -> int:
    trace = trace_class()()
    trace.ParseFromString(pathlib.Path(sys.argv[1]).read_bytes())
    check_known(trace)
    reader = Reader()
    for packet in trace.packet:
        reader.read(packet)
    if len(reader.clocks) != 1 or reader.clocks[0].primary_trace_clock != REALTIME:
        raise SystemExit("the trace does not say once which clock it has")
    slices = reader.slices()
    print(json.dumps({"packets": len(trace.packet), "slices": slices, "flows": reader.flows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
