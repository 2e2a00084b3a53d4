"""A decorator for Ray tasks and actor methods: each run is a phase with the task's ids."""

import functools

from ingero import spans


def _task_labels():
    try:
        import ray

        context = ray.get_runtime_context()
        return {"task_id": context.get_task_id(), "job_id": context.get_job_id(), "node_id": context.get_node_id()}
    except Exception:
        return {}


def traced(function=None, *, name=None, writer=None, **labels):
    """Below @ray.remote, with or without arguments:

    @ray.remote
    @traced
    def preprocess(shard): ...
    """
    if function is None:
        return functools.partial(traced, name=name, writer=writer, **labels)

    phase = name or getattr(function, "__qualname__", type(function).__name__)

    @functools.wraps(function)
    def run(*arguments, **named):
        with spans.phase(phase, writer=writer, **{**_task_labels(), **labels}):
            return function(*arguments, **named)

    return run
