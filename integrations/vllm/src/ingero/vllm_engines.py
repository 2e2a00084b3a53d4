"""Registers vLLM's engine processes with ingerod: they call CUDA, the process that knows the requests does not."""

import multiprocessing
import os
import threading
import time
import weakref

from ingero.writer import start_time_ticks

CHILDREN_SECONDS = 1.0
# Longer, since it reads /proc.
RELATIVES_SECONDS = 10.0
# ingerod forgets registrations with other old spans, and what it keeps in memory when it restarts.
AGAIN_SECONDS = 600.0
# ingerod looks up 200 processes a second for one user, and many API servers start at once.
_PAUSE_SECONDS = 0.05
_MAX_RELATIVES = 256

_by_writer = weakref.WeakKeyDictionary()


def engines_of(writer):
    """The one object that all loggers with this writer share, so that each process is registered once."""
    return _by_writer.setdefault(writer, Engines())


class Engines:
    """A single API server started the engines, so they are its children. Several API servers (--api-server-count)
    and the engines are all children of one launcher, which started this process with multiprocessing too."""

    def __init__(self):
        self._due_ns = {}  # when to register a process again, by pid and start
        self._next_children_ns = 0
        self._next_relatives_ns = 0
        self._thread = None

    def register(self, writer, now, soon=False):
        """Registers processes that it has not registered of late. Returns at once where it looked a moment ago, except
        with `soon`."""
        if now < self._next_children_ns and not soon:
            return
        self._next_children_ns = now + int(CHILDREN_SECONDS * 1e9)
        for child in multiprocessing.active_children():
            self._register(writer, child.pid)
        parent = multiprocessing.parent_process()
        if parent is None or (now < self._next_relatives_ns and not soon):
            return
        if self._thread is not None and self._thread.is_alive():
            return
        self._next_relatives_ns = now + int(RELATIVES_SECONDS * 1e9)
        if parent.is_alive():
            # Many files of /proc: not in vLLM's loop.
            self._thread = threading.Thread(
                target=self._register_relatives, args=(writer, parent.pid), name="ingero-engines", daemon=True
            )
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter ends, or there can be no more threads
                self._thread = None

    def _register(self, writer, pid):
        """True where it sent a registration."""
        ticks = start_time_ticks(pid) if pid else None
        now = time.monotonic_ns()
        if ticks is None or now < self._due_ns.get((pid, ticks), 0):
            return False
        scope = {"kind": "scope", "id": "vllm", "start": now, "end": now, "pid": pid, "start_time": ticks}
        if not writer.send(scope):
            return False
        self._due_ns[pid, ticks] = now + int(AGAIN_SECONDS * 1e9)
        return True

    def _register_relatives(self, writer, launcher):
        try:
            for pid in descendants(launcher, leave_out=os.getpid()):
                if not _is_resource_tracker(pid) and self._register(writer, pid):
                    time.sleep(_PAUSE_SECONDS)
        except Exception:  # it is tried again
            pass


def descendants(root, leave_out=None, proc="/proc"):
    """The pids of a process's descendants that run as this user, without `leave_out` and its descendants. An engine's
    children count too: with tensor parallelism they call CUDA."""
    # Linux without CONFIG_PROC_CHILDREN has no such files.
    are_listed = os.path.exists(f"{proc}/thread-self/children")
    by_parent = {} if are_listed else _children_by_parent(proc)
    found, to_visit = [], [root]
    while to_visit and len(found) < _MAX_RELATIVES:
        parent = to_visit.pop(0)
        for pid in _children_listed(parent, proc) if are_listed else by_parent.get(parent, ()):
            if pid != leave_out and pid != root and pid not in found and _is_ours(pid, proc):
                found.append(pid)
                to_visit.append(pid)
    return found[:_MAX_RELATIVES]


def _children_listed(pid, proc):
    """Each thread lists the children that it started."""
    children = []
    try:
        for thread in os.listdir(f"{proc}/{pid}/task"):
            try:
                with open(f"{proc}/{pid}/task/{thread}/children", "rb") as listed:
                    children.extend(int(child) for child in listed.read().split())
            except OSError:  # the thread ended
                pass
    except OSError:  # the process ended
        pass
    return children


def _children_by_parent(proc):
    children = {}
    for pid in filter(str.isdigit, os.listdir(proc)):
        try:
            with open(f"{proc}/{pid}/stat", "rb") as stat:
                # The name before, in parentheses, may have any character.
                parent = int(stat.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(int(pid))
    return children


def _is_ours(pid, proc):
    """ingerod refuses what a user says of another user's process."""
    try:
        return os.stat(f"{proc}/{pid}").st_uid == os.geteuid()
    except OSError:
        return False


def _is_resource_tracker(pid):
    """multiprocessing's own helper."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as command:
            return b"multiprocessing.resource_tracker" in command.read(4096)
    except OSError:
        return False
