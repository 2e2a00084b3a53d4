"""The plug-in for vLLM, from its statistics to bytes on the socket.  usage: vllm_plugin_test.py SOURCES [TEST...]"""

import functools
import json
import os
import queue
import subprocess
import tempfile
import threading
import time
import unittest
from unittest import mock

from emitter_support import SOURCES, WithListener, namespace, strip  # before what it makes importable

import ingero.vllm
from ingero.writer import Writer, start_time_ticks
from vllm_standin import NEW, OLD, IterationStats

SECOND = 1_000_000_000
MILLISECOND = 1_000_000


def finished(identifier="r", latency=1.0, **fields):
    return namespace(request_id=identifier, e2e_latency=latency, **fields)


class Plugin(WithListener):
    def logger(self, model="llama", engine=2):
        self.out = Writer(self.listener.path)
        self.addCleanup(self.out.close, 0)
        return ingero.vllm.StatLogger(
            namespace(model_config=namespace(served_model_name=model)), engine, writer=self.out)

    def sent(self, kind="request"):
        """All spans of this kind that were sent until now."""
        self.assertTrue(self.out.flush(20))
        self.assertEqual(self.out.stats()["dropped"], {})
        return [span for span in map(strip, self.listener.spans) if span.get("kind", "request") == kind]

    def values(self):
        return [span["values"] for span in self.sent("sample")]


class Requests(Plugin):
    def test_a_finished_request_is_a_span_that_ends_now(self):
        logger = self.logger()
        before = time.monotonic_ns()
        logger.record(None, namespace(finished_requests=[finished(
            "cmpl-1", 2.0, finish_reason=namespace(name="STOP"), num_prompt_tokens=11, num_generation_tokens=5,
            queued_time=0.5, prefill_time=0.25, decode_time=1.0)], num_preempted_reqs=0), None, 2)
        (span,) = self.sent()
        self.assertEqual(span["end"] - span["start"], 2 * SECOND)
        self.assertGreaterEqual(span["end"], before)
        self.assertEqual(span["end"] - span["first_token"], SECOND)
        self.assertEqual(span["first_token"] - span["scheduled"], SECOND // 4)
        self.assertEqual((span["id"], span["model"]), ("cmpl-1", "llama"))
        self.assertEqual((span["prompt_tokens"], span["output_tokens"]), (11, 5))
        self.assertEqual(span["labels"], {"engine": "2", "finish_reason": "stop"})

    def test_both_versions_of_the_statistics_are_read(self):
        for version in (OLD, NEW):
            with self.subTest(version.base.__name__):
                self.listener.spans.clear()
                logger = self.logger()
                iteration = IterationStats(num_preempted_reqs=2)
                for i in range(3):
                    version.request(iteration, iteration.iteration_timestamp - 2, f"cmpl-{i}", num_prompt_tokens=1,
                                    num_generation_tokens=2, queued_time=0.25, prefill_time=0.5, inference_time=1.5,
                                    decode_time=1.0)
                version.record(logger, version.scheduler(3, 1, 0.5), iteration)
                requests = self.sent()
                self.assertEqual(len({span["id"] for span in requests}), 3)
                if version.has_ids:
                    self.assertEqual([span["id"] for span in requests], ["cmpl-0", "cmpl-1", "cmpl-2"])
                for span in requests:
                    self.assertEqual(span["end"] - span["first_token"], SECOND)
                    self.assertEqual(span["end"] - span["scheduled"], 3 * SECOND // 2)
                    self.assertEqual((span["prompt_tokens"], span["output_tokens"]), (1, 2))
                self.assertEqual(self.values(), [{"running": 3, "waiting": 1, "kv_cache_use": 0.5, "preempted": 2}])

    def test_inner_points_stay_inside_the_span(self):
        self.logger().record(None, namespace(finished_requests=[finished(prefill_time=3.0, decode_time=2.0)]))
        (span,) = self.sent()
        self.assertEqual((span["scheduled"], span["first_token"]), (span["start"], span["start"]))
        self.assertNotIn("values", span)

    def test_durations_that_are_missing_give_no_inner_points(self):
        self.logger().record(None, namespace(finished_requests=[
            finished("a"), finished("b", decode_time=0.0, prefill_time=0.0, inference_time=0.0)]))
        for span in self.sent():
            self.assertFalse({"scheduled", "first_token", "values"} & set(span), span)

    def test_a_span_says_how_uncertain_its_inner_points_are(self):
        whole = {"queued_time": 0.25, "inference_time": 1.0, "prefill_time": 0.25, "decode_time": 0.75}
        cases = [
            (whole, 0.75),
            ({**whole, "inference_time": None}, 0.75),
            ({**whole, "queued_time": None}, 1.0),
            ({"inference_time": 1.0}, 1.0),
            ({"decode_time": 0.5}, 1.5),
            ({**whole, "queued_time": 1.0}, None),
            ({**whole, "queued_time": 1.5}, None),
            ({"queued_time": 0.25}, None),
        ]
        self.logger().record(None, namespace(finished_requests=[
            finished(f"r{i}", 2.0, **{name: value for name, value in fields.items() if value is not None})
            for i, (fields, _) in enumerate(cases)]))
        spans = self.sent()
        self.assertEqual(len(spans), len(cases))
        for (fields, seconds), span in zip(cases, spans):
            with self.subTest(fields):
                expected = {} if seconds is None else {"uncertainty_ns": seconds * SECOND}
                self.assertEqual(span.get("values", {}), expected)

    def test_an_id_and_a_model_s_name_are_cut_by_bytes(self):
        model, start = "ü" * 100, "é" * 80
        self.logger(model=[model, "other"]).record(
            None, namespace(finished_requests=[finished(start + "1"), finished(start + "2"), finished(b"\xff")]))
        spans = self.sent()
        self.assertEqual([span["model"] for span in spans], 3 * ["ü" * 64])
        self.assertEqual(len({span["id"] for span in spans}), 3)
        for span in spans[:2]:
            self.assertLessEqual(len(span["id"].encode()), 128)
        self.assertEqual(spans[2]["id"], b"\xff")

    def test_a_label_is_cut_by_bytes(self):
        self.logger().record(None, namespace(finished_requests=[finished(finish_reason="ü" * 200)]))
        self.assertEqual(self.sent()[0]["labels"]["finish_reason"], "ü" * 128)


class Completions(Plugin):
    """n > 1: vLLM hands over each completion with the id of its request."""

    def test_those_that_end_in_one_iteration_are_one_span(self):
        logger = self.logger()
        iteration = IterationStats()
        arrival = iteration.iteration_timestamp - 2
        for reason, tokens, decode in (("STOP", 5, 1.0), ("LENGTH", 7, 1.25), ("STOP", 11, 1.0)):
            NEW.request(iteration, arrival, "cmpl-1", reason, num_prompt_tokens=10, num_generation_tokens=tokens,
                        queued_time=0.25, prefill_time=0.25, inference_time=decode + 0.25, decode_time=decode)
        NEW.request(iteration, arrival, "cmpl-2", num_prompt_tokens=3, num_generation_tokens=4)
        NEW.record(logger, None, iteration)
        one, other = self.sent()
        self.assertEqual((one["id"], one["prompt_tokens"], one["output_tokens"]), ("cmpl-1", 10, 23))
        self.assertEqual(one["values"], {"completions": 3, "uncertainty_ns": SECOND // 2})
        self.assertEqual(one["labels"], {"engine": "2", "finish_reason": "stop,length"})
        self.assertEqual(one["end"] - one["first_token"], 5 * SECOND // 4)
        self.assertEqual(one["end"] - one["scheduled"], 3 * SECOND // 2)
        self.assertEqual((other["id"], other["output_tokens"]), ("cmpl-2", 4))
        self.assertNotIn("values", other)

    def test_those_of_several_iterations_have_one_start(self):
        logger = self.logger()
        arrival = time.time() - 3
        for ago in (0.03, 0.02, 0.0):  # this process had other work since
            iteration = IterationStats()
            iteration.iteration_timestamp -= ago
            NEW.request(iteration, arrival, "cmpl-1")
            NEW.record(logger, None, iteration)
        spans = self.sent()
        starts = [span["start"] for span in spans]
        self.assertLess(max(starts) - min(starts), 1_000, "a microsecond")
        self.assertEqual(len({span["end"] for span in spans}), 3)

    def test_a_pause_while_the_clocks_are_read_does_not_part_them(self):
        wall, monotonic, pauses, paused_ns = time.time_ns, time.monotonic_ns, [], 0

        def wall_after_a_pause():
            nonlocal paused_ns
            paused_ns += pauses.pop() if pauses else 0
            return wall() + paused_ns

        for pause_ns in (20 * MILLISECOND, 30_000):
            with self.subTest(pause_ns):
                logger = self.logger()
                arrival = time.time() - 3
                with mock.patch.object(time, "time_ns", wall_after_a_pause), \
                        mock.patch.object(time, "monotonic_ns", lambda: monotonic() + paused_ns):
                    for pause in ([pause_ns], [], [pause_ns]):
                        pauses[:] = pause
                        iteration = IterationStats()
                        NEW.request(iteration, arrival, "cmpl-1")
                        NEW.record(logger, None, iteration)
                starts = [span["start"] for span in self.sent()[-3:]]
                self.assertLess(max(starts) - min(starts), 1_000, "a microsecond")

    def test_requests_that_a_client_gave_one_id_stay_two(self):
        logger = self.logger()
        iteration = IterationStats()
        for seconds in (2.0, 1.9):
            NEW.request(iteration, iteration.iteration_timestamp - seconds, "mine", num_generation_tokens=5)
        NEW.record(logger, None, iteration)
        self.assertEqual([span["output_tokens"] for span in self.sent()], [5, 5])


class Moments(Plugin):
    def test_a_request_and_a_sample_end_when_the_iteration_did(self):
        logger = self.logger()
        before = time.monotonic_ns()
        iteration = IterationStats()
        after = time.monotonic_ns()
        iteration.iteration_timestamp -= 0.2
        NEW.request(iteration, iteration.iteration_timestamp - 2, "r")
        NEW.record(logger, NEW.scheduler(1), iteration)
        (request,), (sample,) = self.sent(), self.sent("sample")
        ended = request["end"] + SECOND // 5
        self.assertTrue(before - MILLISECOND < ended < after + MILLISECOND)
        self.assertLess(abs(request["end"] - request["start"] - 2 * SECOND), 1_000)
        self.assertEqual((sample["start"], sample["end"]), (request["end"], request["end"]))

    def test_a_timestamp_that_cannot_be_is_not_taken(self):
        logger = self.logger()
        strange = [time.time() - 61, time.time() + 3600, 0.0, float("nan"), float("inf"), 10**400, "x", True, None]
        before = time.monotonic_ns()
        for timestamp in strange:
            logger.record(None, namespace(iteration_timestamp=timestamp, finished_requests=[finished()]))
        after = time.monotonic_ns()
        spans = self.sent()
        self.assertEqual(len(spans), len(strange))
        for span in spans:
            self.assertTrue(before <= span["end"] <= after, span)
            self.assertEqual(span["end"] - span["start"], SECOND)

    def test_it_sees_that_somebody_set_the_wall_clock(self):
        logger = self.logger()
        logger.record(None, namespace(iteration_timestamp=time.time(), finished_requests=[finished()]))
        wall = time.time_ns
        with mock.patch.object(time, "time_ns", lambda: wall() + 3600 * SECOND), \
                mock.patch.object(time, "time", lambda: (wall() + 3600 * SECOND) / 1e9):
            before = time.monotonic_ns()
            logger.record(None, namespace(iteration_timestamp=time.time() - 0.5, finished_requests=[finished()]))
            after = time.monotonic_ns()
        end = self.sent()[1]["end"] + SECOND // 2
        self.assertTrue(before - MILLISECOND < end < after + MILLISECOND)


class Samples(Plugin):
    def setUp(self):
        super().setUp()
        self.now = time.monotonic_ns()
        clock = mock.patch.object(time, "monotonic_ns", lambda: self.now)
        clock.start()
        self.addCleanup(clock.stop)

    def test_one_sample_a_second(self):
        logger = self.logger()
        for _ in range(1_000):
            logger.record(namespace(num_running_reqs=1, num_waiting_reqs=0, kv_cache_usage=0.1), None)
            self.now += 10 * MILLISECOND
        self.assertEqual(len(self.values()), 10)

    def test_requests_without_a_latency_are_counted(self):
        logger = self.logger()

        class Hostile:
            e2e_latency = 1.0

            @property
            def request_id(self):
                raise RuntimeError

        bad = [namespace(request_id="none"), Hostile()] + [
            finished(latency=latency) for latency in (None, 0.0, -1.0, 86_401.0, float("nan"), "1", True)]
        with self.assertLogs("ingero.vllm", "WARNING"):
            logger.record(namespace(num_running_reqs=1), namespace(finished_requests=[*bad, finished("good")]))
        logger.record(namespace(num_running_reqs=1), namespace(finished_requests=[finished(latency=0.0)]))
        self.now += SECOND
        logger.record(namespace(num_running_reqs=1), None)
        self.now += SECOND
        logger.record(namespace(num_running_reqs=1), None)
        self.assertEqual([span["id"] for span in self.sent()], ["good"])
        self.assertEqual([values.get("unreadable") for values in self.values()], [len(bad), 1, None])

    def test_preemptions_are_sent_where_no_scheduler_statistics_come(self):
        logger = self.logger()
        preempted = functools.partial(namespace, finished_requests=[], num_preempted_reqs=2)
        logger.record(None, preempted())
        self.now += SECOND // 2
        logger.record(None, preempted())
        self.assertEqual(self.values(), [], "the scheduler's may still come")
        self.now += SECOND // 2
        logger.record(None, preempted())
        self.now += SECOND // 2
        logger.record(None, preempted())
        self.assertEqual(self.values(), [{"preempted": 6}])
        logger.log()
        self.assertEqual(len(self.values()), 1, "one a second")
        self.now += SECOND
        logger.log()
        self.now += 5 * SECOND
        logger.log()
        logger.record(None, namespace(finished_requests=[], num_preempted_reqs=0))
        self.assertEqual(self.values(), [{"preempted": 6}, {"preempted": 2}], "nothing more is left")

    def test_preemptions_go_with_the_scheduler_statistics_where_those_come(self):
        logger = self.logger()
        for _ in range(4):
            logger.record(namespace(num_running_reqs=1), namespace(finished_requests=[], num_preempted_reqs=1))
            self.now += SECOND // 2
            logger.record(None, namespace(finished_requests=[], num_preempted_reqs=1))
            self.now += SECOND // 2
        self.assertEqual(self.values(), [{"running": 1, "preempted": count} for count in (1, 2, 2, 2)])

    def test_unreadable_requests_are_counted_without_scheduler_statistics_too(self):
        logger = self.logger()
        self.now += SECOND
        logger.record(None, namespace(finished_requests=[finished(latency=0.0)]))
        self.assertEqual(self.values(), [{"unreadable": 1}])


class Interface(Plugin):
    """Programs of their own: the module looks for vLLM when it is read."""

    def test_it_is_a_subclass_of_the_interface_and_found_by_its_entry_point(self):
        program = (
            "import importlib, sys, vllm_standin\n"
            "base = getattr(vllm_standin, sys.argv[2])\n"
            "vllm_standin.install(base)\n"
            "group = open(sys.argv[1]).read().partition('\"vllm.stat_logger_plugins\"]')[2].partition('\\n\\n')[0]\n"
            "module, _, name = group.partition('\"')[2].partition('\"')[0].partition(':')\n"
            "found = getattr(importlib.import_module(module), name)\n"
            "assert issubclass(found, base)\n"
            "found(None, 0).record(None, None)\n"
        )
        project = os.path.join(os.path.dirname(SOURCES), "pyproject.toml")
        for base in (OLD.base, NEW.base):
            self.run_program(program, project, base.__name__)

    def test_a_further_abstract_method_does_not_stop_the_server(self):
        self.run_program(
            "import asyncio, vllm_standin\n"
            "vllm_standin.install(vllm_standin.LaterStatLoggerBase)\n"
            "from ingero.vllm import StatLogger\n"
            "logger = StatLogger(None, 0, 'what a later version hands over', more=True)\n"
            "logger.record(None, vllm_standin.IterationStats())\n"
            "assert logger.record_something_else(1) is None\n"
            "assert asyncio.run(logger.flush()) is None\n")

    def test_nothing_that_it_is_given_is_raised_back(self):
        logger = self.logger()

        class Hostile:
            def __getattr__(self, name):
                raise RuntimeError(name)

        strange = [
            (None, None),
            (Hostile(), Hostile()),
            (namespace(), namespace(finished_requests=7)),
            (namespace(num_running_reqs="x"), namespace(finished_requests=[None, namespace(e2e_latency="1")])),
            (None, namespace(finished_requests=[namespace(e2e_latency=float("nan")), namespace(e2e_latency=-1)])),
            (None, namespace(finished_requests=[namespace(e2e_latency=1e12), namespace(e2e_latency=True)])),
            (namespace(kv_cache_usage=10**400), namespace(num_preempted_reqs=10**400, finished_requests=[
                finished(num_prompt_tokens=2**70, num_generation_tokens=-1)])),
        ]
        with self.assertLogs("ingero.vllm", "WARNING") as logs:
            for scheduler, iteration in strange:
                logger.record(scheduler, iteration)
                logger.record(scheduler_stats=scheduler, iteration_stats=iteration, mm_cache_stats=None, engine_idx=1)
            logger.log()
            logger.log_engine_initialized()
            logger.record_sleep_state(1, 0)
        self.assertEqual(len(logs.records), 1, "it complains once")
        for span in self.sent():
            self.assertFalse({"prompt_tokens", "output_tokens"} & set(span))

    def test_a_request_that_cannot_be_read_harms_no_other(self):
        logger = self.logger()

        class Hostile:
            def __getattr__(self, name):
                raise RuntimeError(name)

        with self.assertLogs("ingero.vllm", "WARNING"):
            logger.record(Hostile(), namespace(finished_requests=[Hostile(), finished("good")]))
        self.assertEqual([span["id"] for span in self.sent()], ["good"])


class Engines(Plugin):
    def test_engines_that_are_siblings_are_registered(self):
        """Several API servers: the launcher starts them and the engines, and an engine its workers."""
        program = (
            "import json, multiprocessing, os, threading\n"
            "from multiprocessing import resource_tracker\n"
            "context = multiprocessing.get_context('fork')\n"
            "until, end = os.pipe()\n"
            "def worker():\n"
            "    os.read(until, 1)\n"
            "def engine(say):\n"
            "    os.close(end)\n"
            "    one = context.Process(target=worker)\n"
            "    one.start()\n"
            "    say.send([os.getpid(), one.pid])\n"
            "    os.read(until, 1)\n"
            "def server():\n"
            "    import vllm_standin\n"
            "    vllm_standin.install(vllm_standin.NewStatLoggerBase)\n"
            "    from ingero.vllm import StatLogger\n"
            "    from ingero.writer import default_writer\n"
            "    loggers = [StatLogger(None, i) for i in range(2)]\n"
            "    for logger in loggers:\n"
            "        logger.log_engine_initialized()\n"
            "        logger.record(None, vllm_standin.IterationStats())\n"
            "    for thread in threading.enumerate():\n"
            "        if thread.name == 'ingero-engines':\n"
            "            thread.join()\n"
            "    for logger in loggers:\n"
            "        logger.record(None, vllm_standin.IterationStats())\n"
            "    default_writer().flush(20)\n"
            "resource_tracker.ensure_running()\n"
            "hear, say = context.Pipe()\n"
            "started = context.Process(target=engine, args=(say,))\n"
            "started.start()\n"
            "pids = hear.recv()\n"
            "api = context.Process(target=server)\n"
            "api.start()\n"
            "api.join()\n"
            "os.close(end)\n"
            "started.join()\n"
            "print(json.dumps(pids))\n"
        )
        pids = json.loads(self.run_program(program))
        scopes = [span for span in self.listener.spans if span.get("kind") == "scope"]
        self.assertEqual(sorted(span["pid"] for span in scopes), sorted(pids), "each once, and nothing else")
        self.assertTrue(all(span["start_time"] > 0 for span in scopes))

    def child(self):
        child = subprocess.Popen(["/bin/sleep", "600"])
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child

    def test_engines_that_are_children_are_registered_without_scheduler_statistics(self):
        child, logger = self.child(), self.logger()
        with mock.patch("multiprocessing.active_children", lambda: [child]):
            for _ in range(3):
                logger.record(None, IterationStats())
        (scope,) = self.sent("scope")
        self.assertEqual((scope["pid"], scope["start_time"]), (child.pid, start_time_ticks(child.pid)))

    def test_engines_are_registered_again_after_a_while(self):
        child, logger = self.child(), self.logger()
        with mock.patch("multiprocessing.active_children", lambda: [child]):
            logger.log_engine_initialized()
            logger.log_engine_initialized()
            with mock.patch("ingero.vllm_engines.AGAIN_SECONDS", 0.0):
                logger._engines._due_ns.clear()
                logger.log_engine_initialized()
                logger.log_engine_initialized()
        self.assertEqual([scope["pid"] for scope in self.sent("scope")], [child.pid] * 3)

    def test_record_does_not_wait_for_what_is_read_of_proc(self):
        asked, answer = queue.SimpleQueue(), threading.Event()
        self.addCleanup(answer.set)

        def descendants(root, **_):
            asked.put(root)
            answer.wait(20)
            return []

        parent = namespace(pid=4711, is_alive=lambda: True)
        with mock.patch("multiprocessing.parent_process", lambda: parent), \
                mock.patch("ingero.vllm_engines.descendants", descendants):
            logger = self.logger()
            for _ in range(3):
                logger.log_engine_initialized()
                logger.record(None, IterationStats())
            self.assertEqual(asked.get(timeout=20), 4711)
        self.assertTrue(asked.empty(), "one at a time")

    def test_descendants_are_found_with_and_without_the_kernel_s_lists(self):
        from ingero.vllm_engines import descendants

        # 1 is init; 10 the launcher with two threads; 22 another user's; 23 this process.
        parents = {1: 0, 10: 1, 20: 10, 21: 10, 22: 10, 23: 10, 30: 20, 31: 23, 32: 22, 40: 30, 50: 1}
        with tempfile.TemporaryDirectory() as proc:
            for pid, parent in parents.items():
                os.makedirs(f"{proc}/{pid}/task/{pid}")
                with open(f"{proc}/{pid}/stat", "w") as stat:
                    stat.write(f"{pid} (a) S 99 b) S {parent} {pid} {pid} 0 -1\n")
            os.makedirs(f"{proc}/10/task/11")
            os.makedirs(f"{proc}/40/task/41")  # and its `children` are gone
            others = os.stat(f"{proc}/22").st_ino
            real = os.stat

            def stat(path):
                facts = real(path)
                return namespace(st_uid=facts.st_uid + 1) if facts.st_ino == others else facts

            for has_lists in (False, True):
                if has_lists:
                    os.makedirs(f"{proc}/thread-self")
                    open(f"{proc}/thread-self/children", "w").close()
                    for pid in parents:
                        below = [child for child, parent in parents.items() if parent == pid]
                        threads = {pid: below} if pid != 10 else {10: [20, 22], 11: [21, 23]}
                        for thread, started in threads.items():
                            with open(f"{proc}/{pid}/task/{thread}/children", "w") as listed:
                                listed.write("".join(f"{child} " for child in started))
                with self.subTest(has_lists=has_lists), mock.patch("os.stat", stat):
                    self.assertEqual(sorted(descendants(10, leave_out=23, proc=proc)), [20, 21, 30, 40])


if __name__ == "__main__":
    unittest.main(verbosity=2)
