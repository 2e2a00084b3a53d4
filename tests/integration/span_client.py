"""Sends spans as whoever runs it: span_client.py SOCKET FRAME..., each a JSON text of a frame. In it "<self>", "<child>"
and "<parent>" stand for pids as this process sees them, and times are seconds before now. Prints each reply as JSON."""

import json
import os
import socket
import subprocess
import sys
import time

import msgpack


def fill(value, pids):
    if isinstance(value, list):
        return [fill(one, pids) for one in value]
    filled = {key: pids.get(one, one) if isinstance(one, str) else one for key, one in value.items()}
    for name in ("start", "end"):
        if isinstance(filled.get(name), (int, float)):
            filled[name] = time.monotonic_ns() - int(filled[name] * 1e9)
    return filled


def main():
    path, frames = sys.argv[1], sys.argv[2:]
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    pids = {"<self>": os.getpid(), "<child>": child.pid, "<parent>": os.getppid()}
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(20)
    connection.connect(path)
    unpacker = msgpack.Unpacker(raw=False)
    for frame in frames:
        connection.sendall(msgpack.packb(fill(json.loads(frame), pids)))
        reply = None
        while reply is None:
            reply = next(iter(unpacker), None)
            if reply is None:
                data = connection.recv(4096)
                if not data:
                    print("closed", flush=True)
                    return
                unpacker.feed(data)
        print(json.dumps(reply), flush=True)
    child.stdin.close()
    child.wait()


main()
