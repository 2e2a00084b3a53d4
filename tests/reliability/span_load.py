"""Programs that tell of spans, for span_load_test.

span_load.py SOCKET rate NAME SECONDS SPANS_PER_S CONNECTIONS: a client of its own, that counts what was acknowledged.
span_load.py SOCKET flood SECONDS: sends as fast as it can and reads nothing.
span_load.py SOCKET emitter NAME SECONDS SPANS_PER_S SOURCE_FOLDER: the package that vLLM uses.
Each waits for a line on standard input first, and prints one line of JSON at its end; an emitter, before it waits for
what is under way, that all are sent."""

import json
import os
import select
import socket
import sys
import time

import msgpack


def connect(path):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    connection.setblocking(False)
    return connection


def span(identifier):
    now = time.monotonic_ns()
    return {"id": identifier, "start": now - 5_000_000, "end": now, "labels": {"load": "1"}}


class Sender:
    def __init__(self, path, name):
        self.socket = connect(path)
        self.name = name
        self.unpacker = msgpack.Unpacker(raw=False)
        self.output = b""
        self.sent = 0
        self.accepted = 0
        self.rejected = 0
        self.reasons = {}

    def queue(self, count):
        frame = [span(f"{self.name}-{self.sent + i}") for i in range(count)]
        self.sent += count
        frame[-1]["ack"] = self.sent
        self.output += msgpack.packb(frame)

    def pump(self):
        if self.output:
            try:
                self.output = self.output[self.socket.send(self.output):]
            except BlockingIOError:
                pass
        try:
            data = self.socket.recv(65536)
            if not data:
                raise SystemExit("the daemon closed the connection")
            self.unpacker.feed(data)
        except BlockingIOError:
            pass
        for reply in self.unpacker:
            self.accepted += reply["accepted"]
            self.rejected += reply["rejected"]
            for why, number in reply["reasons"].items():
                self.reasons[why] = self.reasons.get(why, 0) + number

    def is_done(self):
        return not self.output and self.accepted + self.rejected == self.sent


def send_at_a_rate(path, name, seconds, rate, connections):
    senders = [Sender(path, f"{name}-{i}") for i in range(connections)]
    begin = time.monotonic()
    while (elapsed := time.monotonic() - begin) < seconds:
        due = int(elapsed * rate / connections)
        for sender in senders:
            if due - sender.sent >= 8:
                sender.queue(due - sender.sent)
            sender.pump()
        select.select([one.socket for one in senders], [], [], 0.02)
    deadline = time.monotonic() + 30
    while not all(sender.is_done() for sender in senders) and time.monotonic() < deadline:
        for sender in senders:
            sender.pump()
        select.select([one.socket for one in senders], [], [], 0.02)
    reasons = {}
    for sender in senders:
        for why, number in sender.reasons.items():
            reasons[why] = reasons.get(why, 0) + number
    return {"sent": sum(one.sent for one in senders), "accepted": sum(one.accepted for one in senders),
            "rejected": sum(one.rejected for one in senders), "reasons": reasons}


def flood(path, seconds):
    connection = connect(path)
    frame = msgpack.packb([span("flood") for _ in range(400)])
    begin, rest, sent = time.monotonic(), b"", 0
    while time.monotonic() - begin < seconds:
        rest = rest or frame
        try:
            size = connection.send(rest)
            rest, sent = rest[size:], sent + size
        except BlockingIOError:
            select.select([], [connection], [], 0.1)
    return {"bytes": sent}


def emit(path, name, seconds, rate, source):
    sys.path.insert(0, source)
    from ingero.writer import Writer

    writer = Writer(path=path)
    costs, cpu_costs, sent, begin = [], [], 0, time.monotonic()
    while (elapsed := time.monotonic() - begin) < seconds:
        while sent < elapsed * rate:
            one = span(f"{name}-{sent}")
            before, cpu_before = time.perf_counter_ns(), time.thread_time_ns()
            writer.send(one)
            cpu_costs.append(time.thread_time_ns() - cpu_before)
            costs.append(time.perf_counter_ns() - before)
            sent += 1
        time.sleep(0.002)
    print("all are sent", flush=True)
    writer.flush(timeout=30)
    p99_us, p99_cpu_us = (sorted(values)[len(values) * 99 // 100] / 1000 for values in (costs, cpu_costs))
    return {"sent": sent, "p99_us": p99_us, "p99_cpu_us": p99_cpu_us, "stats": writer.stats()}


def main():
    path, what, *rest = sys.argv[1:]
    sys.stdin.readline()
    if what == "rate":
        result = send_at_a_rate(path, rest[0], float(rest[1]), float(rest[2]), int(rest[3]))
    elif what == "flood":
        result = flood(path, float(rest[0]))
    else:
        result = emit(path, rest[0], float(rest[1]), float(rest[2]), rest[3])
    print(json.dumps(result), flush=True)
    os._exit(0)


main()
