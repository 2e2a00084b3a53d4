"""The span socket's client: a bounded queue, one background thread, and counters of all that was not delivered.

Protocol: docs/spans.md. A span is kept until the daemon says that it is stored, and sent again over a new connection
where that was not said: the daemon takes the same span twice for one.
"""

import atexit
import collections
import contextlib
import hashlib
import os
import queue
import random
import select
import socket
import sys
import threading
import time
import weakref

try:
    import msgpack
except ImportError:  # nothing but this package is needed: a virtual environment without a network has no more
    from ingero import messagepack as msgpack

from ingero.messagepack import array_header

DEFAULT_SOCKET = "/run/ingero/spans.sock"
FRAME_BYTES = 60 * 1024  # the daemon takes 64 KiB
MAX_SPAN_BYTES = 16 * 1024
MAX_ID_BYTES = 128  # of an id and of a model's name, as the daemon takes them
FRAMES_IN_FLIGHT = 8
BATCH_SECONDS = 0.02
FIRST_BACK_OFF_SECONDS = 0.1
MAX_BACK_OFF_SECONDS = 5.0
ACK_SECONDS = 15.0
CONNECT_SECONDS = 2.0
CLOSE_SECONDS = 1.0
IDLE_SECONDS = 5.0  # a user has few connections: one that is not used so long is closed
MAX_TRIES = 5
MAX_RESTARTS = 20  # of the daemon, and connections that it does not take, each of which is no try
REPLY_BYTES = 64 * 1024
MAX_REASONS = 64

_KINDS = frozenset(("request", "step", "phase", "label", "sample", "scope"))
_TURNED_AWAY = frozenset(("connection-limit", "no-such-process"))  # with ack 0: of a connection, before it is read


def hash_id(identifier, salt):
    """16 hexadecimal digits of a keyed hash: the same for the same salt and id, and nobody's without the salt."""
    if not isinstance(identifier, (bytes, bytearray)):
        identifier = str(identifier).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(identifier, key=salt[:64], digest_size=8).hexdigest()


def bounded(value, limit):
    """The value's text, at most `limit` bytes of UTF-8."""
    text = str(value).encode("utf-8", "replace")
    return text[:limit].decode("utf-8", "ignore")


def bounded_id(identifier):
    """The id's text or bytes, at most MAX_ID_BYTES. Of a longer one the start and a hash of the whole."""
    is_bytes = isinstance(identifier, bytes)
    whole = identifier if is_bytes else str(identifier).encode("utf-8", "replace")
    if len(whole) > MAX_ID_BYTES:
        digest = b"~" + hashlib.blake2b(whole, digest_size=8).hexdigest().encode()
        whole = whole[: MAX_ID_BYTES - len(digest)] + digest
    return whole if is_bytes else whole.decode("utf-8", "ignore")


def start_time_ticks(pid):
    """Start of a process in clock ticks since boot, or None: with the pid it names one process for ever."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


class _Frame:
    __slots__ = ("number", "data", "spans", "sent_at", "tries", "restarts")

    def __init__(self, number, data, spans):
        self.number = number
        self.data = data
        self.spans = spans
        self.sent_at = None
        self.tries = self.restarts = 0


class Writer:
    """Sends spans to ingerod. send() may be called from any thread and any signal's handler, costs some microseconds,
    and never raises.

    path: of the socket; default INGERO_SPANS_SOCKET, else /run/ingero/spans.sock.
    queue_spans: that wait to be sent at the most; those beyond are dropped and counted.
    salt: bytes; ids of requests are sent only as hashes keyed with it. Default: INGERO_HASH_SALT, else as they are.
    """

    def __init__(self, path=None, queue_spans=20_000, salt=None):
        self.path = path or os.environ.get("INGERO_SPANS_SOCKET") or DEFAULT_SOCKET
        if salt is None:
            salt = os.environ.get("INGERO_HASH_SALT", "").encode("utf-8", "surrogateescape") or None
        self._salt = salt
        self._queue_spans = queue_spans
        self._enabled = os.environ.get("INGERO_DISABLE", "") not in ("1", "true", "yes")
        self._reset()
        _writers.add(self)

    def _reset(self):
        """Of a new object, and in a forked child: what the parent queued is the parent's to send."""
        self._queue = collections.deque()
        self._framing = False  # spans are in neither queue
        self._wake = queue.SimpleQueue()  # a signal's handler may interrupt its put(), not an Event's set()
        self._start_lock = threading.Lock()
        self._thread = None
        self._closing = False
        self._idle = False
        self._socket = None
        self._unpacker = None
        self._used_at = 0.0
        self._unacked = collections.deque()
        self._frame_number = 0
        self._sent = 0
        self._accepted = 0
        self._dropped = collections.Counter()
        self._rejected = collections.Counter()
        self._connections = 0
        self._in_vain = 0  # connections without an answer, one after the other
        self._back_off = FIRST_BACK_OFF_SECONDS
        self._chance = random.Random()  # the program's own numbers stay as they are

    def send(self, span):
        """Queues a span, a dict with the fields of docs/spans.md that is not changed afterwards. False where dropped."""
        if not self._enabled or self._closing:
            return False
        has_room = len(self._queue) < self._queue_spans
        if has_room:
            self._queue.append(span)
        else:
            self._dropped["queue-full"] += 1
        if self._thread is None:
            self._start()
        elif self._idle:
            self._idle = False
            self._wake.put(None)
        return has_room

    def stats(self):
        """Counts since the start: sent, accepted, rejected and dropped by reason, waiting, connections."""
        return {
            "sent": self._sent,
            "accepted": self._accepted,
            "rejected": dict(self._rejected),
            "dropped": dict(self._dropped),
            "waiting": len(self._queue) + sum(frame.spans for frame in list(self._unacked)),
            "connections": self._connections,
            "connected": self._socket is not None,
        }

    def flush(self, timeout=CLOSE_SECONDS):
        """Waits until all that was queued is stored, or the time is over. True where it is."""
        until = time.monotonic() + timeout
        # In this order: what leaves the queue is being framed before, and unacknowledged after.
        while self._queue or self._framing or self._unacked:
            if self._thread is None or time.monotonic() >= until:
                return False
            time.sleep(0.005)
        return True

    def close(self, timeout=CLOSE_SECONDS):
        """Flushes, and ends the thread. What is left is dropped. Later spans are dropped too."""
        done = self.flush(timeout)
        self._closing = True
        self._wake.put(None)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread() and thread.is_alive():
            thread.join(timeout)
        return done

    def _start(self):
        lock = self._start_lock
        if not lock.acquire(blocking=False):
            return  # another thread starts it, or the code that a signal's handler interrupted
        thread = None
        try:
            if self._thread is None:
                thread = self._thread = threading.Thread(target=self._run, name="ingero-spans", daemon=True)
                thread.start()
        except Exception:  # the interpreter ends, or there can be no more threads
            self._dropped["no-thread"] += len(self._queue)
            self._queue.clear()
        finally:
            if thread is not None and thread.ident is None:
                self._thread = None
            lock.release()
        if thread is not None:
            with contextlib.suppress(Exception):
                _flush_with_multiprocessing()

    # The rest runs in the background thread.

    def _run(self):
        own = threading.current_thread()
        try:
            while not self._closing and self._thread is own:
                try:
                    self._turn()
                except Exception:  # the socket's, a reply's that is none, or a lack of memory or descriptors
                    self._break_off()
        finally:
            if self._thread is own:
                self._disconnect()
                if self._closing:
                    self._dropped["closed"] += len(self._queue) + sum(frame.spans for frame in self._unacked)
                    self._queue.clear()
                    self._unacked.clear()
                self._thread = None  # else the next span starts another

    def _turn(self):
        if not self._queue and not self._unacked:
            self._rest()
        elif self._socket is None:
            self._reconnect()
        else:
            self._exchange()

    def _break_off(self):
        """After an error: ends the connection. Its frames are sent again over the next."""
        if self._socket is None:
            time.sleep(FIRST_BACK_OFF_SECONDS)
        with contextlib.suppress(Exception):
            self._receive(0)  # a daemon that takes no connection says so before it closes it
        self._disconnect()
        self._in_vain += 1

    def _sleep(self, seconds):
        """Until the time is over, or something wakes this thread."""
        with contextlib.suppress(queue.Empty):
            self._wake.get(timeout=seconds)
            while True:
                self._wake.get_nowait()

    def _wait(self, seconds):
        """Not cut short by spans, only by the end: a daemon that is not there is not asked more often for them."""
        until = time.monotonic() + seconds
        while not self._closing and (left := until - time.monotonic()) > 0:
            self._sleep(left)

    def _rest(self):
        self._idle = True
        # A span may have come before send() could see that this thread rests.
        if not self._queue and not self._closing:
            self._sleep(1.0 if self._socket is None else min(0.25, IDLE_SECONDS))
        self._idle = False
        if self._socket is not None and not self._queue:
            self._receive(0)
            if time.monotonic() - self._used_at > IDLE_SECONDS:
                self._disconnect()

    def _reconnect(self):
        # The first connection that breaks is made anew at once: where that fails, the daemon is gone.
        if self._in_vain > 1:
            self._in_vain = 1
        elif self._connect():
            if self._in_vain == 0:
                self._back_off = FIRST_BACK_OFF_SECONDS
            return
        else:
            self._forgive()
        self._wait(self._back_off * self._chance.uniform(0.5, 1.5))
        self._back_off = min(2 * self._back_off, MAX_BACK_OFF_SECONDS)

    def _connect(self):
        connection = None
        try:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            connection.settimeout(CONNECT_SECONDS)
            connection.connect(os.fspath(self.path))
            connection.setblocking(False)
        except Exception:
            _close(connection)
            return False
        self._socket = connection
        self._unpacker = msgpack.Unpacker(max_buffer_size=REPLY_BYTES)
        self._connections += 1
        while self._unacked and self._unacked[0].tries >= MAX_TRIES:
            self._dropped["unanswered"] += self._unacked.popleft().spans
        for frame in self._unacked:
            frame.sent_at = None
        return True

    def _forgive(self):
        """The daemon is not there, or takes no connection: so often at most that does not count as a frame's try."""
        self._in_vain = 0
        for frame in self._unacked:
            if frame.sent_at is not None and frame.restarts < MAX_RESTARTS:
                frame.restarts += 1
                frame.tries -= 1
            frame.sent_at = None

    def _disconnect(self):
        connection, self._socket, self._unpacker = self._socket, None, None
        _close(connection)

    def _exchange(self):
        for frame in list(self._unacked):
            if frame.sent_at is None and frame in self._unacked:  # no answer came while another was sent
                self._transmit(frame)
        while self._queue and len(self._unacked) < FRAMES_IN_FLIGHT:
            self._framing = True
            try:
                frame = self._next_frame()
                if frame is None:
                    break
                self._unacked.append(frame)
            finally:
                self._framing = False
            self._transmit(frame)
        self._receive(BATCH_SECONDS)
        self._used_at = time.monotonic()
        if self._unacked and time.monotonic() - self._unacked[0].sent_at > ACK_SECONDS:
            raise OSError("no answer")

    def _next_frame(self):
        packed, size = [], 0
        number = self._frame_number + 1
        while self._queue and size < FRAME_BYTES - MAX_SPAN_BYTES:
            data = self._pack(self._queue.popleft(), number if not packed else None)
            if data is not None:
                packed.append(data)
                size += len(data)
        if not packed:
            return None
        self._frame_number = number
        return _Frame(number, array_header(len(packed)) + b"".join(packed), len(packed))

    def _pack(self, span, ack):
        try:
            span = dict(span)
            kind = span.get("kind", "request")
            if kind not in _KINDS:
                raise ValueError
            if self._salt is not None:
                self._hash_request_ids(span, kind)
            if ack is not None:
                span["ack"] = ack
            data = msgpack.packb(span)
        except Exception:  # whatever a caller's objects do
            self._dropped["bad-field"] += 1
            return None
        if len(data) > MAX_SPAN_BYTES:
            self._dropped["too-large"] += 1
            return None
        return data

    def _hash_request_ids(self, span, kind):
        if kind == "request" and span.get("id") is not None:
            span["id"] = hash_id(span["id"], self._salt)
        labels = span.get("labels") or {}
        if "request_id" in labels:  # as the daemon does with [spans] hash_ids
            span["labels"] = {**labels, "request_id": hash_id(labels["request_id"], self._salt)}

    def _transmit(self, frame):
        frame.tries += 1
        frame.sent_at = time.monotonic()
        view = memoryview(frame.data)
        until = time.monotonic() + ACK_SECONDS
        while view:
            try:
                view = view[self._socket.send(view, socket.MSG_NOSIGNAL) :]
            except BlockingIOError:
                # A daemon that answers is let answer: it may wait for us to read.
                self._receive(0.1, writable=True)
                if self._closing or time.monotonic() > until:
                    raise OSError("the daemon does not read")
        frame.sent_at = time.monotonic()
        self._sent += frame.spans

    def _receive(self, seconds, writable=False):
        poll = select.poll()  # select() takes no descriptor above 1023
        poll.register(self._socket, select.POLLIN | (select.POLLOUT if writable else 0))
        if not any(events & ~select.POLLOUT for _, events in poll.poll(1000 * seconds)):
            return
        try:
            data = self._socket.recv(REPLY_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise OSError("the daemon is gone")
        self._unpacker.feed(data)
        for reply in self._unpacker:
            self._take(reply)

    def _take(self, reply):
        if not isinstance(reply, dict) or not isinstance(reply.get("ack"), int):
            raise ValueError("no reply")
        while self._unacked and self._unacked[0].number <= reply["ack"]:
            self._unacked.popleft()
            self._in_vain = 0
            self._back_off = FIRST_BACK_OFF_SECONDS
        self._accepted += int(reply.get("accepted", 0))
        reasons = reply["reasons"] if isinstance(reply.get("reasons"), dict) else {}
        for reason, count in reasons.items():
            if reason in self._rejected or len(self._rejected) < MAX_REASONS:
                self._rejected[str(reason)] += int(count)
        if reply["ack"] == 0 and reasons and _TURNED_AWAY.issuperset(reasons):
            self._forgive()
            self._in_vain = 1  # and one more for this connection: the next attempt waits
            raise OSError("the daemon takes no connection")


_writers = weakref.WeakSet()
_default = {}


def default_writer():
    """The one Writer that all parts of a program share. Takes no lock, which could hang a signal's handler."""
    return _default.get("writer") or _default.setdefault("writer", Writer())


def _close(connection):
    with contextlib.suppress(OSError):  # the program may have closed all descriptors
        if connection is not None:
            connection.close()


def _after_fork_in_child():
    for writer in list(_writers):
        connection = writer._socket
        writer._reset()
        _close(connection)  # this process's descriptor only: the parent's connection lives on


def _at_exit(end=Writer.close):
    until = time.monotonic() + CLOSE_SECONDS
    for writer in list(_writers):
        end(writer, max(0.0, until - time.monotonic()))


def _flush_with_multiprocessing():
    """Its children do not run atexit, unless they were spawned; they run finalizers, but not those of the fork."""
    library = sys.modules.get("multiprocessing")
    is_child = "multiprocessing.util" in sys.modules and library.parent_process() is not None
    if is_child and library.get_start_method(allow_none=True) != "spawn":
        library.util.Finalize(None, _at_exit, (Writer.flush,), exitpriority=0)  # not close: its threads may still send


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
