"""Makes spans of what vLLM's statistics say of finished requests.

Neither class of statistics is a stable interface: a field that is missing, or is no number, is left out.
"""

import functools
import itertools
import operator
import os
import time

from ingero.writer import MAX_ID_BYTES, bounded, bounded_id

MAX_LABEL_BYTES = 256
# ingerod joins spans of one id whose starts are not further apart: completions of one request.
SAME_START_NS = 1_000_000

_MAX_LATENCY_SECONDS = 24 * 3600.0
_MAX_AGE_NS = 60 * 1_000_000_000
_CLOSE_NS = 50_000
_READINGS = 3

# Names by version, newest first.
_REQUEST_ID = ("request_id", "external_req_id", "req_id")
_PROMPT_TOKENS = ("num_prompt_tokens", "prompt_tokens")
_OUTPUT_TOKENS = ("num_generation_tokens", "generation_tokens")
_LATENCY = ("e2e_latency", "e2e_latency_s")

_MERGED = {"scheduled": min, "first_token": min, "prompt_tokens": max, "output_tokens": operator.add}


def number(source, *names):
    """The first of these fields that is a number which a span can carry; None where there is none."""
    for name in names:
        value = getattr(source, name, None)
        if isinstance(value, (int, float)) and type(value) is not bool and -(2**63) < value < 2**63:
            return value
    return None


def count(source, *names):
    value = number(source, *names)
    return value if isinstance(value, int) and value >= 0 else None


def _seconds(source, *names):
    """A duration of the statistics; None where it is missing or cannot be one."""
    value = number(source, *names)
    return value if value is not None and 0 <= value < _MAX_LATENCY_SECONDS else None


class Clock:
    """Converts time.time(), which the statistics use, to CLOCK_MONOTONIC, which spans use.

    The kernel keeps one difference between both clocks until somebody sets the wall clock. So the difference that was
    read once, in the shortest of some readings, is kept while the clocks agree with it to _CLOSE_NS: completions of one
    request that end in several iterations have the same arrival, and then get the same start to a microsecond. What
    remains: where the wall clock is set between two of them, or where this thread lost its CPU in the middle of every
    reading, their starts are that far apart.
    """

    def __init__(self):
        self._ahead_ns = None  # of the wall clock

    def read(self):
        readings = []
        for _ in range(_READINGS):
            before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
            if self._ahead_ns is not None and -_CLOSE_NS <= self._ahead_ns - (wall - after) <= after - before + _CLOSE_NS:
                return
            readings.append((after - before, wall - (before + after) // 2))
        self._ahead_ns = min(readings)[1]

    def to_monotonic(self, seconds):
        return int(seconds * 1e9) - self._ahead_ns


class Iteration:
    """When an iteration's tokens arrived here: `end`, of CLOCK_MONOTONIC. It is `now` where the statistics do not
    name a time, or one of the future or of more than a minute ago, as after somebody set the wall clock."""

    def __init__(self, clock, stats, now):
        self.end = now
        self._timestamp = number(stats, "iteration_timestamp")
        self._clock = clock
        if self._timestamp is None:
            return
        clock.read()
        end = clock.to_monotonic(self._timestamp)
        if 0 <= now - end <= _MAX_AGE_NS:
            self.end = end
        else:
            self._timestamp = None

    def start(self, latency):
        """The arrival of a request that ended now. vLLM computed the latency as timestamp - arrival, so this
        difference is the arrival again, the same for all completions of a request."""
        if self._timestamp is None:
            return self.end - int(latency * 1e9)
        return min(self._clock.to_monotonic(self._timestamp - latency), self.end)


class Requests:
    """Spans of one engine's finished requests.

    unreadable: requests without a latency between 0 and 24 hours, or with fields that raise; they have no span.
    """

    def __init__(self, engine, model, complain):
        self.unreadable = 0
        self._engine = bounded(engine, MAX_LABEL_BYTES)
        self._model = model
        self._complain = complain
        self._numbers = itertools.count(1)

    def spans(self, finished_requests, iteration):
        """One span for each request. Completions of one request (n > 1) that ended together are one: their spans
        would be equal, and ingerod stores equal spans once."""
        spans = {}
        for finished in finished_requests:
            try:
                span = self._span(finished, iteration)
            except Exception:
                self._complain()
                span = None
            if span is None:
                self.unreadable += 1
                continue
            others = spans.setdefault(span["id"], [])
            for other in others:
                if abs(other["start"] - span["start"]) <= SAME_START_NS:
                    _merge(other, span)
                    break
            else:
                others.append(span)
        return [span for same_id in spans.values() for span in same_id]

    def _span(self, finished, iteration):
        latency = _seconds(finished, *_LATENCY)
        if not latency:
            return None
        start = iteration.start(latency)
        if start < 0:
            return None
        span = {"id": self._id(finished), "start": start, "end": iteration.end}
        _add_inner_points(span, finished, latency)
        for field, names in (("prompt_tokens", _PROMPT_TOKENS), ("output_tokens", _OUTPUT_TOKENS)):
            tokens = count(finished, *names)
            if tokens is not None:
                span[field] = tokens
        if self._model:
            span["model"] = self._model
        span["labels"] = {"engine": self._engine}
        reason = getattr(finished, "finish_reason", None)
        if reason is not None:
            span["labels"]["finish_reason"] = _label(str(getattr(reason, "name", reason)))
        return span

    def _id(self, finished):
        for name in _REQUEST_ID:
            identifier = getattr(finished, name, None)
            if identifier:
                return bounded_id(identifier)
        return f"vllm-{os.getpid()}-{self._engine}-{next(self._numbers)}"


def model_name(vllm_config):
    try:
        name = vllm_config.model_config.served_model_name
        name = name[0] if isinstance(name, (list, tuple)) and name else name
        return bounded(name, MAX_ID_BYTES) if name else None
    except Exception:
        return None


@functools.lru_cache(maxsize=64)
def _label(text):
    return bounded(text.lower(), MAX_LABEL_BYTES)


def _add_inner_points(span, finished, latency):
    """The engine core measured these durations by its own clock, and they end with the last token, not with `end`.
    How long that token took to this process is unknown. No duration accounts for that time, nor for the time between
    arrival and queue: together they are `uncertainty_ns`, and so much earlier at most did the points happen."""
    inference, decode = _seconds(finished, "inference_time"), _seconds(finished, "decode_time")
    if not inference and decode is not None:
        prefill = _seconds(finished, "prefill_time")
        inference = prefill + decode if prefill else None
    if not inference and not decode:
        return
    start, end = span["start"], span["end"]
    if inference:
        span["scheduled"] = min(max(end - int(inference * 1e9), start), end)
    if decode is not None:
        span["first_token"] = min(max(end - int(decode * 1e9), start), end)
    queued = _seconds(finished, "queued_time") or 0
    unaccounted_ns = int((latency - queued - (inference or decode)) * 1e9)
    if unaccounted_ns > 0:
        span["values"] = {"uncertainty_ns": unaccounted_ns}


def _merge(span, other):
    """Adds a completion to the span of its request. Both ended in the same iteration."""
    span["start"] = min(span["start"], other["start"])
    for field, choose in _MERGED.items():
        if field in other:
            span[field] = choose(span[field], other[field]) if field in span else other[field]
    values, others = span.setdefault("values", {}), other.get("values", {})
    values["completions"] = values.get("completions", 1) + 1
    if "uncertainty_ns" in others:
        values["uncertainty_ns"] = max(values.get("uncertainty_ns", 0), others["uncertainty_ns"])
    reason = other["labels"].get("finish_reason")
    reasons = [one for one in span["labels"].get("finish_reason", "").split(",") if one]
    if reason is not None and reason not in reasons:
        span["labels"]["finish_reason"] = bounded(",".join([*reasons, reason]), MAX_LABEL_BYTES)
