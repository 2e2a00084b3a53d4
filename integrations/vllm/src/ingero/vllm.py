"""The plug-in for vLLM's V1 engine: a span for each request that ends, and a sample of the scheduler each second.

vLLM finds it by the entry-point group `vllm.stat_logger_plugins`. record() runs in vLLM's own loop: it reads, queues
and returns, whatever it is given, since neither class of statistics is a stable interface.
"""

import itertools
import logging
import multiprocessing
import os
import time

from ingero.writer import Writer, default_writer, start_time_ticks

try:
    from vllm.v1.metrics.loggers import StatLoggerBase
except ImportError:  # read without vLLM: by tests of its own, by documentation
    StatLoggerBase = object

_log = logging.getLogger("ingero.vllm")

SAMPLE_SECONDS = 1.0
_MAX_SECONDS = 24 * 3600.0

# Names by version, newest first.
_REQUEST_ID = ("request_id", "external_req_id", "req_id")
_PROMPT_TOKENS = ("num_prompt_tokens", "prompt_tokens")
_OUTPUT_TOKENS = ("num_generation_tokens", "generation_tokens")
_LATENCY = ("e2e_latency", "e2e_latency_s")
_CACHE_USE = ("kv_cache_usage", "gpu_cache_usage", "cache_usage")
_RUNNING = ("num_running_reqs", "num_running")
_WAITING = ("num_waiting_reqs", "num_waiting")


def _first(source, names):
    for name in names:
        value = getattr(source, name, None)
        if value is not None:
            return value
    return None


def _seconds(source, name):
    """A duration of the statistics; None where it is missing or cannot be one."""
    value = getattr(source, name, None)
    return value if isinstance(value, (int, float)) and 0 < value < _MAX_SECONDS else None


def _count(source, names):
    value = _first(source, names)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


class StatLogger(StatLoggerBase):
    """Options are environment variables: INGERO_SPANS_SOCKET, INGERO_HASH_SALT, INGERO_DISABLE."""

    def __init__(self, vllm_config=None, engine_index=0, writer=None):
        self._writer = writer if isinstance(writer, Writer) else default_writer()
        self._engine = engine_index if isinstance(engine_index, int) else 0
        self._model = None
        self._numbers = itertools.count(1)
        self._next_sample_ns = 0
        self._preempted = 0
        self._registered = set()
        self._complained = False
        try:
            name = vllm_config.model_config.served_model_name
            name = name[0] if isinstance(name, (list, tuple)) and name else name
            self._model = str(name)[:128] if name else None
        except Exception:
            pass

    def record(self, scheduler_stats=None, iteration_stats=None, *_, **__):
        try:
            now = time.monotonic_ns()
            if iteration_stats is not None:
                preempted = getattr(iteration_stats, "num_preempted_reqs", 0)
                self._preempted += preempted if isinstance(preempted, int) else 0
                for finished in getattr(iteration_stats, "finished_requests", None) or ():
                    self._send_request(finished, now)
            if scheduler_stats is not None and now >= self._next_sample_ns:
                self._next_sample_ns = now + int(SAMPLE_SECONDS * 1e9)
                self._send_sample(scheduler_stats, now)
                self._register_engines()
        except Exception:
            self._complain()

    def log_engine_initialized(self):
        try:
            self._register_engines()
        except Exception:
            self._complain()

    def log(self):
        pass

    def record_sleep_state(self, *_, **__):
        pass

    def _send_request(self, finished, now):
        latency = None
        for name in _LATENCY:
            latency = latency or _seconds(finished, name)
        if latency is None:
            return  # without a duration there is no span
        identifier = _first(finished, _REQUEST_ID)
        if identifier is None:
            identifier = f"vllm-{os.getpid()}-{self._engine}-{next(self._numbers)}"
        start = now - int(latency * 1e9)
        span = {"id": str(identifier)[:128], "start": start, "end": now}
        # The engine's own clock may differ by what a token's way to the front end takes: held inside the span.
        decode, prefill = _seconds(finished, "decode_time"), _seconds(finished, "prefill_time")
        if prefill is not None:
            first_token = now - int((decode or 0) * 1e9)
            scheduled = first_token - int(prefill * 1e9)
            span["first_token"] = min(max(first_token, start), now)
            span["scheduled"] = min(max(scheduled, start), now)
        for field, names in (("prompt_tokens", _PROMPT_TOKENS), ("output_tokens", _OUTPUT_TOKENS)):
            count = _count(finished, names)
            if count is not None:
                span[field] = count
        if self._model is not None:
            span["model"] = self._model
        reason = getattr(finished, "finish_reason", None)
        span["labels"] = {"engine": str(self._engine)}
        if reason is not None:
            span["labels"]["finish_reason"] = str(getattr(reason, "name", reason)).lower()[:256]
        self._writer.send(span)

    def _send_sample(self, stats, now):
        values = {
            "running": _first(stats, _RUNNING),
            "waiting": _first(stats, _WAITING),
            "kv_cache_use": _first(stats, _CACHE_USE),
            "preempted": self._preempted,
        }
        values = {name: float(value) for name, value in values.items() if isinstance(value, (int, float))}
        self._preempted = 0
        self._writer.send({"kind": "sample", "id": f"vllm-{self._engine}", "start": now, "end": now, "values": values})

    def _register_engines(self):
        """The processes that call CUDA are children of the one that knows the requests."""
        for child in multiprocessing.active_children():
            pid = child.pid
            ticks = start_time_ticks(pid) if pid else None
            if ticks is None or (pid, ticks) in self._registered:
                continue
            now = time.monotonic_ns()
            scope = {"kind": "scope", "id": f"vllm-{self._engine}", "start": now, "end": now}
            if self._writer.send({**scope, "pid": pid, "start_time": ticks}):
                self._registered.add((pid, ticks))

    def _complain(self):
        if not self._complained:
            self._complained = True
            _log.warning(
                "ingero: cannot read the statistics of this vLLM version; requests may be missing. "
                "vLLM itself goes on; INGERO_DISABLE=1 turns the plug-in off",
                exc_info=True,
            )
