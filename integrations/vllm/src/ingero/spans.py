"""Spans around a piece of a program.

    from ingero import spans

    with spans.request(request_id, model="llama") as request:
        ...
        request.first_token()

    with spans.step(number, epoch=epoch):
        ...

Times are CLOCK_MONOTONIC of this host. An exception goes on as it came, and leaves the label `error`.
"""

import contextlib
import time

from ingero.writer import MAX_ID_BYTES, bounded, bounded_id, default_writer

_MAX_VALUE_BYTES = 256


def _labels(labels):
    return {str(key): bounded(value, _MAX_VALUE_BYTES) for key, value in labels.items() if value is not None}


class Span:
    """An interval that ends with the block. Its fields can be added to until then."""

    def __init__(self, kind, identifier, labels, writer=None, model=None):
        self._writer = writer
        self._span = {"kind": kind}
        self._labels = labels
        self._values = {}
        self._is_sound = True
        try:
            if identifier is not None:
                self._span["id"] = bounded_id(identifier)
            if model is not None:
                self._span["model"] = bounded(model, MAX_ID_BYTES)
        except Exception:  # an id's __str__ is the caller's code
            self._is_sound = False

    def __enter__(self):
        self._span["start"] = time.monotonic_ns()
        return self

    def __exit__(self, kind, error, traceback):
        self.end(None if kind is None else kind.__name__)
        return False

    def scheduled(self):
        """The work on it begins now: before that it waited."""
        self._span["scheduled"] = time.monotonic_ns()

    def first_token(self):
        self._span["first_token"] = time.monotonic_ns()

    def tokens(self, prompt=None, output=None):
        """Advisory: shown beside the request, and never used to rank it."""
        for field, count in (("prompt_tokens", prompt), ("output_tokens", output)):
            with contextlib.suppress(Exception):  # a count that is none is left out
                if count is not None:
                    self._span[field] = int(count)

    def label(self, **labels):
        self._labels.update(labels)

    def value(self, **values):
        """Named numbers, such as a step's loss."""
        self._values.update(values)

    def end(self, error=None):
        """What leaving the block does. Never raises."""
        try:
            span = self._span
            if "end" in span or "start" not in span:
                return
            span["end"] = time.monotonic_ns()
            if not self._is_sound:
                raise ValueError
            if error is not None:
                self._labels["error"] = error
            if self._labels:
                span["labels"] = _labels(self._labels)
            if self._values:
                span["values"] = {str(name): float(number) for name, number in self._values.items()}
            (self._writer or default_writer()).send(span)
        except Exception:  # so is a label's
            (self._writer or default_writer())._dropped["bad-field"] += 1


def request(identifier, *, model=None, writer=None, **labels):
    """A request, from its arrival to its last token."""
    return Span("request", identifier, labels, writer, model=model)


def step(number, *, writer=None, **labels):
    """A step of a training loop, or of any loop that works on the GPU."""
    return Span("step", number, labels, writer)


def phase(name, *, writer=None, **labels):
    """A named stretch of a program: loading, warming up, evaluating."""
    return Span("phase", name, labels, writer)


def label(name, *, writer=None, **labels):
    """A moment with labels."""
    now = time.monotonic_ns()
    writer = writer or default_writer()
    try:
        writer.send({"kind": "label", "id": bounded_id(name), "start": now, "end": now, "labels": _labels(labels)})
    except Exception:
        writer._dropped["bad-field"] += 1


def sample(name, *, writer=None, **values):
    """Numbers at a moment, such as a scheduler's queue."""
    now = time.monotonic_ns()
    writer = writer or default_writer()
    try:
        numbers = {str(key): float(value) for key, value in values.items() if value is not None}
        writer.send({"kind": "sample", "id": bounded_id(name), "start": now, "end": now, "values": numbers})
    except Exception:
        writer._dropped["bad-field"] += 1
