"""The plug-in for vLLM's V1 engine: a span for each request that ends, and a sample of the scheduler each second.

vLLM finds it by the entry-point group `vllm.stat_logger_plugins`. record() runs in vLLM's own loop: it reads, queues
and returns, whatever it is given, since neither class of statistics is a stable interface.
"""

import inspect
import logging
import time

from ingero.vllm_engines import engines_of
from ingero.vllm_requests import Clock, Iteration, Requests, count, model_name, number
from ingero.writer import Writer, default_writer

try:
    from vllm.v1.metrics.loggers import StatLoggerBase
except ImportError:  # read without vLLM: by tests of its own, by documentation
    StatLoggerBase = object

_log = logging.getLogger("ingero.vllm")

SAMPLE_SECONDS = 1.0
_SAMPLE_NS = int(SAMPLE_SECONDS * 1e9)

# Of the scheduler's statistics; names by version, newest first.
_SCHEDULER = {
    "running": ("num_running_reqs", "num_running"),
    "waiting": ("num_waiting_reqs", "num_waiting"),
    "kv_cache_use": ("kv_cache_usage", "gpu_cache_usage", "cache_usage"),
}


class StatLogger(StatLoggerBase):
    """Options are environment variables: INGERO_SPANS_SOCKET, INGERO_HASH_SALT, INGERO_DISABLE."""

    def __init__(self, vllm_config=None, engine_index=0, *_, writer=None, **__):
        self._writer = writer if isinstance(writer, Writer) else default_writer()
        self._engine = engine_index if isinstance(engine_index, int) else 0
        self._complained = False
        self._clock = Clock()
        self._requests = Requests(self._engine, model_name(vllm_config), self._complain)
        self._engines = engines_of(self._writer)
        self._next_sample_ns = 0
        self._scheduler_ns = time.monotonic_ns()  # when its statistics came last
        self._preempted = 0

    def record(self, scheduler_stats=None, iteration_stats=None, *_, **__):
        now = time.monotonic_ns()
        moment = self._guard(self._send_requests, iteration_stats, now) or now
        self._guard(self._send_sample, scheduler_stats, now, moment)
        self._guard(self._engines.register, self._writer, now)

    def log_engine_initialized(self):
        self._guard(self._engines.register, self._writer, time.monotonic_ns(), True)

    def log(self):
        """vLLM calls this every some seconds, also while no request runs."""
        now = time.monotonic_ns()
        self._guard(self._send_sample, None, now, now)

    def record_sleep_state(self, *_, **__):
        pass

    def _guard(self, function, *arguments):
        try:
            return function(*arguments)
        except Exception:
            self._complain()
            return None

    def _send_requests(self, stats, now):
        """Returns when the iteration ended."""
        if stats is None:
            return now
        iteration = Iteration(self._clock, stats, now)
        self._preempted += count(stats, "num_preempted_reqs") or 0
        for span in self._requests.spans(getattr(stats, "finished_requests", None) or (), iteration):
            self._writer.send(span)
        return iteration.end

    def _send_sample(self, stats, now, moment):
        """With several API servers the scheduler's statistics reach any one of them. The others count preemptions of
        their own requests, which nobody else knows, and send these numbers alone."""
        if stats is not None:
            self._scheduler_ns = now
        elif now - self._scheduler_ns < _SAMPLE_NS:
            return
        if now < self._next_sample_ns:
            return
        values = {name: number(stats, *names) for name, names in _SCHEDULER.items()}
        if stats is not None or self._preempted:
            values["preempted"] = self._preempted
        if self._requests.unreadable:
            values["unreadable"] = self._requests.unreadable
        values = {name: float(value) for name, value in values.items() if value is not None}
        if not values:
            return
        self._next_sample_ns = now + _SAMPLE_NS
        sample = {"kind": "sample", "id": f"vllm-{self._engine}", "start": moment, "end": moment, "values": values}
        if self._writer.send(sample):
            self._preempted -= int(values.get("preempted", 0))
            self._requests.unreadable -= int(values.get("unreadable", 0))

    def _complain(self):
        if not self._complained:
            self._complained = True
            _log.warning(
                "ingero: cannot read the statistics of this vLLM version; requests may be missing. "
                "vLLM itself goes on; INGERO_DISABLE=1 turns the plug-in off",
                exc_info=True,
            )


def _ignore(*_, **__):
    return None


# A method that a later vLLM makes abstract must not stop the server: without this, construction raises TypeError. Such
# a method does nothing here.
for _name in getattr(StatLogger, "__abstractmethods__", ()):
    _method = getattr(StatLogger, _name, None)
    if callable(_method) and not inspect.iscoroutinefunction(_method):
        setattr(StatLogger, _name, _ignore)
StatLogger.__abstractmethods__ = frozenset()
