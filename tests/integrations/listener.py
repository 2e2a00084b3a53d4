"""A listener in the daemon's place: takes frames, answers as it is told, and keeps what came."""

import os
import socket
import tempfile
import threading

import msgpack


class Listener:
    def __init__(self, path=None, answer=True):
        self._directory = None
        if path is None:
            self._directory = tempfile.TemporaryDirectory(prefix="ingero-emitter-")
            path = os.path.join(self._directory.name, "spans.sock")
        self.path = path
        self.answer = answer
        self.hang_up = False  # on who sends something
        self.spans = []
        self.frames = []
        self.connections = 0
        self.changed = threading.Condition()
        self._open = []
        self.listen()

    def listen(self):
        if os.path.exists(self.path):
            os.unlink(self.path)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(self.path)
        self._socket.listen(16)
        self._thread = threading.Thread(target=self._accept, args=(self._socket,), daemon=True)
        self._thread.start()

    def stop(self):
        """As when the daemon is killed: nobody listens, and connections end."""
        listening = self._socket
        listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        listening.close()
        os.unlink(self.path)
        with self.changed:
            connections, self._open = self._open, []
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.stop()
        if self._directory is not None:
            self._directory.cleanup()

    def wait(self, condition, timeout=20):
        with self.changed:
            return self.changed.wait_for(condition, timeout)

    def _accept(self, listening):
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with self.changed:
                self.connections += 1
                self._open.append(connection)
                self.changed.notify_all()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        unpacker = msgpack.Unpacker(raw=False)
        with connection:
            while True:
                try:
                    data = connection.recv(65536)
                except OSError:
                    return
                if not data:
                    return
                unpacker.feed(data)
                for frame in unpacker:
                    with self.changed:
                        self.frames.append(frame)
                        self.spans.extend(frame)
                        self.changed.notify_all()
                    if self.hang_up:
                        return
                    number = next((span["ack"] for span in frame if "ack" in span), None)
                    if self.answer and number is not None:
                        reply = {"ack": number, "accepted": len(frame), "rejected": 0, "reasons": {}}
                        try:
                            connection.sendall(msgpack.packb(reply))
                        except OSError:
                            return
