"""A decorator for Ray tasks and actor methods: each run is a phase with the task's ids."""

import functools
import inspect

from ingero import spans


def _task_labels():
    try:
        import ray

        context = ray.get_runtime_context()
        return {"task_id": context.get_task_id(), "job_id": context.get_job_id(), "node_id": context.get_node_id()}
    except Exception:
        return {}


def traced(function=None, *, name=None, writer=None, **labels):
    """Below @ray.remote, with or without arguments; of plain and async functions, and of generators of both kinds:

    @ray.remote
    @traced
    def preprocess(shard): ...
    """
    if function is None:
        return functools.partial(traced, name=name, writer=writer, **labels)

    def phase():
        title = name or getattr(function, "__qualname__", type(function).__name__)
        return spans.phase(title, writer=writer, **{**_task_labels(), **labels})

    # Of the same kind as the function, which Ray goes by; the phase ends with the run and not with the call.
    if inspect.isasyncgenfunction(function):

        async def run(*arguments, **named):
            with phase():
                items = function(*arguments, **named)
                try:
                    async for item in items:
                        yield item
                finally:
                    await items.aclose()

    elif inspect.iscoroutinefunction(function):

        async def run(*arguments, **named):
            with phase():
                return await function(*arguments, **named)

    elif inspect.isgeneratorfunction(function):

        def run(*arguments, **named):
            with phase():
                return (yield from function(*arguments, **named))

    else:

        def run(*arguments, **named):
            with phase():
                return function(*arguments, **named)

    return functools.wraps(function)(run)
