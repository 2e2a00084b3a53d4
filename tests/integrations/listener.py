"""A listener in the daemon's place: takes frames, answers as it is told, and keeps what came."""

import contextlib
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
        self.turn_away = 0  # so many connections, with the daemon's answer to one too many
        self.turn_away_sent = False  # only after something was sent, which is not read
        self.turned_away = 0
        self.spans = []
        self.frames = []
        self.connections = 0
        self.ended = 0  # connections, by who connected
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

    @staticmethod
    def reply(ack, accepted, reasons):
        return {"ack": ack, "accepted": accepted, "rejected": sum(reasons.values()), "reasons": reasons}

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
            with self.changed:
                is_one_too_many = self.turn_away > 0
                self.turn_away -= is_one_too_many
            if is_one_too_many:
                with contextlib.suppress(OSError):
                    if self.turn_away_sent:
                        connection.recv(1, socket.MSG_PEEK)
                    connection.sendall(msgpack.packb(self.reply(0, 0, {"connection-limit": 1})))
                connection.close()
                with self.changed:
                    self.turned_away += 1
                    self.changed.notify_all()
                return
            while True:
                try:
                    data = connection.recv(65536)
                except OSError:
                    return
                if not data:
                    with self.changed:
                        self.ended += 1
                        self.changed.notify_all()
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
                        try:
                            connection.sendall(msgpack.packb(self.reply(number, len(frame), {})))
                        except OSError:
                            return
