"""What programs send with the emitter: spans of blocks, of frameworks, of processes that fork and end.
usage: emitter_programs_test.py SOURCES [TEST...]"""

import asyncio
import functools
import inspect
import os
import time
import unittest

from emitter_support import WithListener, namespace  # before what it makes importable

import ingero.lightning
import ingero.ray
from ingero import spans


class Processes(WithListener):
    def test_a_forked_child_sends_its_own_spans_and_not_its_parents(self):
        self.listener.answer = False
        writer = self.writer()
        writer.send({"id": "parent", "start": 1, "end": 2})
        self.sent(1)
        self.listener.answer = True
        child = os.fork()
        if child == 0:
            writer.send({"id": "child", "start": 1, "end": 2})
            os._exit(0 if writer.flush(20) else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual([span["id"] for span in self.sent(2)], ["parent", "child"])
        self.assertEqual(self.listener.connections, 2)

    def test_a_program_that_ends_has_sent_what_it_queued(self):
        program = (
            "from ingero import spans\n"
            "with spans.request('last', model='m') as request:\n"
            "    request.tokens(prompt=3, output=4)\n"
        )
        self.run_program(program)
        (span,) = self.sent(1)
        self.assertEqual((span["kind"], span["id"], span["model"]), ("request", "last", "m"))
        self.assertEqual((span["prompt_tokens"], span["output_tokens"]), (3, 4))

    def test_children_of_multiprocessing_have_sent_what_they_queued_when_they_end(self):
        child = (
            "import atexit, ingero.writer\n"
            "atexit.register(ingero.spans.label, '{method}, at exit')\n"
            "ingero.writer.CLOSE_SECONDS = 20\n"
            "for _ in range(2_000):\n"
            "    ingero.spans.label({method!r})\n"
        )
        program = (
            "import multiprocessing, sys\n"
            "from ingero import spans\n"
            "spans.label('parent')\n"
            "for method in ('fork', 'forkserver', 'spawn'):\n"
            "    run = sys.argv[1].format(method=method)\n"
            "    process = multiprocessing.get_context(method).Process(target=exec, args=(run,))\n"
            "    process.start()\n"
            "    process.join()\n"
        )
        self.run_program(program, child, timeout=100)
        ids = [span["id"] for span in self.sent(1)]
        counts = {"parent": 1, "fork": 2_000, "forkserver": 2_000, "spawn": 2_000, "spawn, at exit": 1}
        self.assertEqual({identifier: ids.count(identifier) for identifier in counts}, counts)

    def test_a_program_that_a_broken_pipe_ends_is_not_ended_by_the_daemons(self):
        program = (
            "import signal, socket\n"
            "from ingero.writer import Writer, _Frame\n"
            "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
            "writer = Writer('/nonexistent/spans.sock')\n"
            "writer._socket, daemon = socket.socketpair()\n"
            "daemon.close()\n"
            "try:\n"
            "    writer._transmit(_Frame(1, b'frame', 1))\n"
            "except BrokenPipeError:\n"
            "    pass\n"
        )
        self.run_program(program)

    def test_a_program_ends_though_no_daemon_answers(self):
        program = "from ingero import spans\nspans.label('a')\n"
        self.run_program(program, timeout=20, INGERO_SPANS_SOCKET="/nonexistent/spans.sock")


class Spans(WithListener):
    def test_a_block_is_an_interval_of_the_monotonic_clock(self):
        writer = self.writer()
        before = time.monotonic_ns()
        with spans.request("r", model="m", writer=writer, tenant="t") as request:
            request.scheduled()
            request.first_token()
        after = time.monotonic_ns()
        writer.flush(20)
        (span,) = self.sent(1)
        moments = [before, span["start"], span["scheduled"], span["first_token"], span["end"], after]
        self.assertEqual(moments, sorted(moments))
        self.assertEqual(span["labels"], {"tenant": "t"})

    def test_an_exception_goes_on_and_leaves_its_name(self):
        writer = self.writer()
        with self.assertRaises(KeyError):
            with spans.step(7, epoch=2, writer=writer) as step:
                step.value(loss=2.5)
                raise KeyError
        writer.flush(20)
        (span,) = self.sent(1)
        self.assertEqual((span["kind"], span["id"], span["values"]), ("step", "7", {"loss": 2.5}))
        self.assertEqual(span["labels"], {"epoch": "2", "error": "KeyError"})

    def test_labels_are_cut_to_what_the_daemon_takes(self):
        writer = self.writer()
        spans.label("l", writer=writer, long="ä" * 300, none=None)
        spans.sample("s", writer=writer, waiting=3, missing=None)
        writer.flush(20)
        label, sample = self.sent(2)
        self.assertEqual(label["labels"], {"long": "ä" * 128})
        self.assertEqual(sample["values"], {"waiting": 3.0})

    def test_ids_and_models_are_cut_to_what_the_daemon_takes(self):
        writer = self.writer()
        for end in "ab":
            with spans.request("ä" * 99 + end, model="ü" * 99, writer=writer):
                pass
        with spans.step(10**200, writer=writer):
            pass
        with spans.phase(b"p" * 200, writer=writer):
            pass
        spans.label("l" * 200, writer=writer)
        spans.sample("s" * 200, writer=writer)
        writer.flush(20)
        sent = self.sent(6)
        for span in sent:
            size = len(span["id"] if isinstance(span["id"], bytes) else span["id"].encode())
            self.assertTrue(100 < size <= 128, span)
        self.assertEqual(len({span["id"] for span in sent}), 6, "an id that is cut stays its own")
        self.assertEqual([span.get("model") for span in sent], 2 * ["ü" * 64] + 4 * [None])

    def test_what_the_ids_and_counts_of_a_program_do_is_not_raised(self):
        class Hostile:
            def __str__(self):
                raise RuntimeError

            __int__ = __str__

        writer = self.writer()
        with spans.request(Hostile(), writer=writer), spans.request("r", model=Hostile(), writer=writer):
            pass
        with spans.request("counted", writer=writer) as request:
            request.tokens(prompt=Hostile(), output=4)
        writer.flush(20)
        (span,) = self.sent(1)
        self.assertEqual((span["id"], span.get("prompt_tokens"), span["output_tokens"]), ("counted", None, 4))
        self.assertEqual(writer.stats()["dropped"], {"bad-field": 2})

    def test_a_hostile_label_is_counted_and_not_raised(self):
        class Hostile:
            def __str__(self):
                raise RuntimeError

        writer = self.writer()
        with spans.phase("p", writer=writer, bad=Hostile()):
            pass
        spans.label("l", writer=writer, bad=Hostile())
        spans.sample("s", writer=writer, bad="no number")
        self.assertEqual(writer.stats()["dropped"], {"bad-field": 3})


class Frameworks(WithListener):
    def test_each_training_step_is_a_span_of_its_epoch(self):
        writer = self.writer()
        callback = ingero.lightning.StepSpans(loss=True, writer=writer)
        trainer = namespace(current_epoch=3, global_step=40, global_rank=1)
        callback.on_train_epoch_start(trainer, None)
        for index in range(3):
            callback.on_train_batch_start(trainer, None, None, index)
            trainer.global_step += 1
            callback.on_train_batch_end(trainer, None, {"loss": 0.5 - index / 10}, None, index)
        callback.on_train_batch_start(trainer, None, None, 3)
        callback.on_exception(trainer, None, ValueError())
        writer.flush(20)
        sent = self.sent(5)
        steps = [span for span in sent if span["kind"] == "step"]
        self.assertEqual([span["id"] for span in steps], ["40", "41", "42", "43"])
        self.assertEqual([span.get("values", {}).get("loss") for span in steps], [0.5, 0.4, 0.3, None])
        self.assertEqual(steps[3]["labels"], {"epoch": "3", "rank": "1", "error": "ValueError"})
        (phase,) = [span for span in sent if span["kind"] == "phase"]
        self.assertEqual(phase["id"], "epoch-3")
        self.assertLessEqual(phase["start"], steps[0]["start"])
        self.assertGreaterEqual(phase["end"], steps[3]["end"])

    def test_a_task_is_a_phase_and_works_as_before(self):
        writer = self.writer()

        @ingero.ray.traced(name="load", writer=writer, shard=7)
        def load(a, *, b):
            return a + b

        self.assertEqual(load(1, b=2), 3)
        self.assertEqual(load.__name__, "load")
        writer.flush(20)
        (span,) = self.sent(1)
        self.assertEqual((span["kind"], span["id"], span["labels"]), ("phase", "load", {"shard": "7"}))

    def test_a_task_of_any_kind_stays_of_its_kind_and_its_phase_lasts_until_it_has_run(self):
        writer, ended = self.writer(), {}

        async def wait():
            ended["wait"] = time.monotonic_ns()
            return 1

        def count():
            sent = yield 1
            ended["count"] = time.monotonic_ns()
            return sent

        async def each():
            try:
                yield 1
                yield 2
            finally:
                ended["each"] = time.monotonic_ns()

        async def take_one(items):
            async for item in items:
                break
            await items.aclose()
            return item

        kinds = inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction
        traced = [ingero.ray.traced(function, name=function.__name__, writer=writer)
                  for function in (wait, count, each)]
        for i, function in enumerate(traced):
            self.assertEqual([kind(function) for kind in kinds], [i == 0, i == 1, i == 2])
        self.assertEqual(asyncio.run(traced[0]()), 1)
        counting = traced[1]()
        self.assertEqual(next(counting), 1)
        with self.assertRaises(StopIteration) as end:
            counting.send(7)
        self.assertEqual(end.exception.value, 7)
        self.assertEqual(asyncio.run(take_one(traced[2]())), 1)
        writer.flush(20)
        found = {span["id"]: span for span in self.sent(3)}
        self.assertEqual(found.keys(), ended.keys())
        for name, ns in ended.items():
            self.assertLessEqual(found[name]["start"], ns)
            self.assertGreaterEqual(found[name]["end"], ns)

    def test_what_has_no_name_can_be_traced(self):
        writer = self.writer()
        self.assertEqual(ingero.ray.traced(functools.partial(max, 1), writer=writer)(2), 2)
        writer.flush(20)
        self.assertEqual([span["id"] for span in self.sent(1)], ["partial"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
