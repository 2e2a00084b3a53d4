"""Callers of the control socket at once, each of which reads an answer and looks at nothing but its length:
callers.py SOCKET UID COUNT REQUESTS. REQUESTS are the bytes to send, in hexadecimal. Prints how many bytes each read."""

import os
import selectors
import socket
import sys

FULL = (b"\xa4busy", b"\xa5limit")


class Caller:
    def __init__(self, path, requests):
        self.bytes = 0
        self.start = b""
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        try:
            self.socket.sendall(requests)
            self.socket.shutdown(socket.SHUT_WR)  # so that the answer's end is the connection's
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before it was read: the answer says so

    def read(self):
        """False at the end."""
        data = self.socket.recv(1 << 16)
        self.bytes += len(data)
        self.start = (self.start + data[:1024])[:1024]
        if not data:
            self.socket.close()
        return bool(data)


def main():
    path, uid, count, requests = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), bytes.fromhex(sys.argv[4])
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    with selectors.DefaultSelector() as waiting:
        def call():
            caller = Caller(path, requests)
            waiting.register(caller.socket, selectors.EVENT_READ, caller)
        refused = 0
        for _ in range(count):
            call()
        while waiting.get_map():
            for key, _ in waiting.select():
                caller = key.data
                try:
                    if caller.read():
                        continue
                except ConnectionResetError:
                    caller.start = FULL[0]
                waiting.unregister(key.fileobj)
                if any(code in caller.start for code in FULL):
                    refused += 1  # more wait, or are connected, than may be: again when another has its answer
                else:
                    print(caller.bytes, flush=True)
                    if refused:
                        refused -= 1
                        call()
            if refused and not waiting.get_map():
                refused -= 1
                call()


main()
