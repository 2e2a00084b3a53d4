"""The Python emitter, from a program's call to the bytes on the socket.  usage: emitter_test.py SOURCES [TEST...]"""

import errno
import gc
import logging
import logging.handlers
import os
import queue
import random
import resource
import socket
import statistics
import sys
import threading
import time
import types
import unittest
import unittest.mock

from emitter_support import WithListener, namespace  # before what it makes importable

import msgpack

import ingero.vllm
from ingero import messagepack
from ingero.writer import MAX_SPAN_BYTES, Writer, hash_id


def interrupt_everywhere(prepare, call):
    """Runs prepare() and call() again and again, each time with another call() between two other instructions of the
    first, as a signal's handler runs. How many there were; None where one waits for ever.
    """
    count = 0

    def run():
        nonlocal count
        is_over = False

        def trace(frame, event, argument):
            nonlocal is_over, left
            frame.f_trace_opcodes = True
            if left == 0:
                sys.settrace(None)
                is_over = False
                call()
            left -= 1
            return trace

        while not is_over:
            left, is_over = count, True
            prepare()
            sys.settrace(trace)
            call()
            sys.settrace(None)
            count += 1

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    return None if thread.is_alive() else count


class Delivery(WithListener):
    def test_spans_come_as_they_were_sent_and_are_known_to_be_stored(self):
        writer = self.writer()
        wanted = [{"id": f"request-{i}", "start": i, "end": i + 1, "labels": {"é": "ü"}} for i in range(5_000)]
        for span in wanted:
            self.assertTrue(writer.send(span))
        self.assertTrue(writer.flush(20))
        self.assertEqual(self.sent(len(wanted)), wanted)
        stats = writer.stats()
        self.assertEqual((stats["accepted"], stats["waiting"], stats["dropped"]), (5_000, 0, {}))
        for frame in self.listener.frames:
            self.assertLessEqual(len(msgpack.packb(frame)), 64 * 1024)
            self.assertEqual([i for i, span in enumerate(frame) if "ack" in span], [0])

    def test_what_is_being_framed_is_not_flushed(self):
        writer = self.writer()
        pack, framing, release = writer._pack, threading.Event(), threading.Event()

        def pack_later(span, ack):
            framing.set()
            release.wait(20)
            return pack(span, ack)

        writer._pack = pack_later
        writer.send({"id": "last", "start": 1, "end": 2})
        self.assertTrue(framing.wait(20))
        self.assertFalse(writer.flush(0.05))
        release.set()
        self.assertTrue(writer.flush(20))
        self.assertEqual([span["id"] for span in self.sent(1)], ["last"])

    def test_what_was_not_acknowledged_is_sent_again_to_the_next_daemon(self):
        self.listener.answer = False
        writer = self.writer()
        for i in range(100):
            writer.send({"id": str(i), "start": 1, "end": 2})
        self.sent(100)
        self.listener.stop()
        for i in range(100, 200):
            writer.send({"id": str(i), "start": 1, "end": 2})
        self.listener.spans.clear()
        self.listener.answer = True
        self.listener.listen()
        self.assertTrue(writer.flush(20))
        self.assertEqual(sorted(int(span["id"]) for span in self.listener.spans), list(range(200)))
        self.assertEqual(writer.stats()["accepted"], 200)
        self.assertGreaterEqual(writer.stats()["connections"], 2)

    def test_a_frame_that_ends_every_connection_is_given_up(self):
        listener = self.listener
        listener.hang_up = True
        writer = self.writer()
        writer.send({"id": "poison", "start": 1, "end": 2})
        self.assertTrue(listener.wait(lambda: len(listener.spans) >= 5), "tried five times")
        listener.hang_up = False
        writer.send({"id": "good", "start": 1, "end": 2})
        self.assertTrue(writer.flush(20))
        self.assertEqual(writer.stats()["dropped"], {"unanswered": 1})
        self.assertEqual([span["id"] for span in listener.spans], 5 * ["poison"] + ["good"])

    def test_nothing_is_given_up_where_the_daemon_is_restarted_again_and_again(self):
        listener = self.listener
        listener.answer = False
        writer = self.writer()
        forgive, looked = writer._forgive, threading.Semaphore(0)

        def forgive_and_tell():
            forgive()
            looked.release()

        writer._forgive = forgive_and_tell
        writer.send({"id": "innocent", "start": 1, "end": 2})
        for restart in range(1, 8):
            self.assertTrue(listener.wait(lambda: len(listener.spans) >= restart), "sent again")
            listener.stop()
            while writer._unacked[0].restarts < restart:
                self.assertTrue(looked.acquire(timeout=20), "it does not see that the daemon is gone")
            listener.listen()
        listener.answer = True
        self.assertTrue(writer.flush(20))
        self.assertEqual((writer.stats()["dropped"], writer.stats()["accepted"]), ({}, 1))

    def test_a_daemon_that_no_frame_gets_past_is_not_stopped_for_ever(self):
        writer = self.writer()
        frame = types.SimpleNamespace(sent_at=1.0, tries=1, restarts=0, spans=1)
        writer._unacked.append(frame)
        for _ in range(30):
            frame.sent_at, frame.tries = 1.0, frame.tries + 1
            writer._forgive()
        self.assertEqual((frame.restarts, frame.tries), (20, 11))
        writer._unacked.clear()

    def test_what_cannot_be_sent_is_counted_and_harms_nothing_else(self):
        writer = self.writer()
        writer.send({"id": "a", "start": object(), "end": 2})
        writer.send({"id": "b", "kind": "nonsense", "start": 1, "end": 2})
        writer.send(["no", "span"])
        writer.send({"id": "c", "start": 1, "end": 2, "labels": {"x": "y" * MAX_SPAN_BYTES}})
        writer.send({"id": "d", "start": 1, "end": 2})
        self.assertTrue(writer.flush(20))
        self.assertEqual([span["id"] for span in self.listener.spans], ["d"])
        self.assertEqual(writer.stats()["dropped"], {"bad-field": 3, "too-large": 1})

    def test_a_reply_that_is_none_ends_the_connection_and_not_the_thread(self):
        writer = self.writer()
        listener = self.listener
        listener.answer = False
        writer.send({"id": "a", "start": 1, "end": 2})
        self.sent(1)
        with listener.changed:
            listener._open[0].sendall(b"\xc1garbage")
        listener.answer = True
        self.assertTrue(writer.flush(20))
        self.assertEqual(writer.stats()["connections"], 2)

    def test_ids_of_requests_leave_the_process_only_as_keyed_hashes_where_there_is_a_salt(self):
        writer = self.writer(salt=b"pepper")
        kinds = ("request", "step", "phase", "label", "sample", "scope")
        for kind in kinds:
            writer.send({"kind": kind, "id": "user-17", "start": 1, "end": 2})
        writer.send({"id": 17, "start": 1, "end": 2})
        writer.send({"kind": "phase", "start": 1, "end": 2, "labels": {"request_id": "user-17", "tenant": "a"}})
        self.assertTrue(writer.flush(20))
        *spans_of_kinds, number, phase = self.sent(len(kinds) + 2)
        hashed = hash_id("user-17", b"pepper")
        self.assertRegex(hashed, "^[0-9a-f]{16}$")
        self.assertNotEqual(hashed, hash_id("user-17", b"salt"))
        self.assertEqual([span["id"] for span in spans_of_kinds], [hashed] + 5 * ["user-17"])
        self.assertEqual(number["id"], hash_id("17", b"pepper"))
        self.assertEqual(phase["labels"], {"request_id": hashed, "tenant": "a"})

    def test_replies_are_read_where_the_program_has_more_than_1024_descriptors(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < 1_200:
            self.skipTest("a process may have too few descriptors here")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1_200), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        taken = [os.open("/dev/null", os.O_RDONLY)]
        self.addCleanup(lambda: [os.close(descriptor) for descriptor in taken])
        while taken[-1] < 1_024:
            taken.append(os.open("/dev/null", os.O_RDONLY))
        writer = self.writer()
        writer.send({"id": "a", "start": 1, "end": 2})
        self.assertTrue(writer.flush(20))
        stats = writer.stats()
        self.assertEqual((stats["sent"], stats["accepted"], stats["connections"], stats["dropped"]), (1, 1, 1, {}))

    def test_where_no_descriptor_is_left_it_connects_later(self):
        failed = threading.Event()

        def fail_once(*arguments):
            if not failed.is_set():
                failed.set()
                raise OSError(errno.EMFILE, "Too many open files")
            return socket.socket(*arguments)

        self.constant("socket", types.SimpleNamespace(**{**vars(socket), "socket": fail_once}))
        writer = self.writer()
        writer.send({"id": "a", "start": 1, "end": 2})
        self.assertTrue(failed.wait(20))
        writer.send({"id": "b", "start": 1, "end": 2})
        self.assertTrue(writer.flush(20))
        self.assertEqual([span["id"] for span in self.sent(2)], ["a", "b"])

    def test_no_error_ends_the_thread(self):
        for step in ("_rest", "_connect", "_exchange"):
            with self.subTest(step):
                writer = self.writer()
                work, failed = getattr(writer, step), threading.Event()

                def fail_once():
                    if not failed.is_set():
                        failed.set()
                        raise MemoryError
                    return work()

                setattr(writer, step, fail_once)
                writer.send({"id": "a", "start": 1, "end": 2})
                self.assertTrue(failed.wait(20))
                writer.send({"id": "b", "start": 1, "end": 2})
                self.assertTrue(writer.flush(20))
                self.assertEqual(writer.stats()["accepted"], 2)

    def test_a_thread_that_was_ended_is_started_again_by_a_span_though_the_queue_is_full(self):
        writer = self.writer(queue_spans=1)
        ended = queue.Queue()

        def end():
            del writer._exchange
            ended.put(threading.current_thread())
            raise SystemExit

        writer._exchange = end
        writer.send({"id": "a", "start": 1, "end": 2})
        ended.get(timeout=20).join(20)
        self.assertFalse(writer.send({"id": "b", "start": 1, "end": 2}))
        self.assertTrue(writer.flush(20))
        self.assertEqual([span["id"] for span in self.sent(1)], ["a"])
        self.assertEqual(writer.stats()["dropped"], {"queue-full": 1})

    def test_a_descriptor_that_the_program_closed_is_no_connection_any_more(self):
        writer = self.writer()
        writer._socket = types.SimpleNamespace(close=unittest.mock.Mock(side_effect=OSError))
        writer._disconnect()
        self.assertFalse(writer.stats()["connected"])

    def test_a_frame_that_is_acknowledged_while_others_are_sent_again_is_not_sent(self):
        writer = self.writer()
        for number in (1, 2, 3):
            writer._unacked.append(types.SimpleNamespace(number=number, sent_at=None, spans=1))
        transmitted = []

        def transmit(frame):
            transmitted.append(frame.number)
            frame.sent_at = time.monotonic()
            if frame.number == 1:
                writer._take(self.listener.reply(2, 2, {}))

        with unittest.mock.patch.multiple(writer, _transmit=transmit, _receive=lambda seconds: None):
            writer._exchange()
        self.assertEqual(transmitted, [1, 3])
        writer._unacked.clear()

    def turned_away_writer(self, times, is_sent):
        """A writer that waits for nothing, and how long it would have waited."""
        listener = self.listener
        listener.turn_away, listener.turn_away_sent, listener.turned_away = times, is_sent, 0
        writer, waits = self.writer(), []
        transmit = writer._transmit

        def transmit_after_the_answer(frame):
            listener.wait(lambda: listener.turned_away in (times, writer.stats()["connections"]))
            transmit(frame)

        writer._wait = waits.append
        if not is_sent:
            writer._transmit = transmit_after_the_answer
        writer.send({"id": "a", "start": 1, "end": 2})
        self.assertTrue(writer.flush(20))
        return writer, waits

    def test_a_connection_that_is_one_too_many_is_no_frames_fault(self):
        for is_sent in (False, True):
            with self.subTest(is_sent=is_sent):
                writer, waits = self.turned_away_writer(8, is_sent)
                stats = writer.stats()
                self.assertEqual((stats["dropped"], stats["accepted"]), ({}, 1))
                self.assertEqual(stats["rejected"], {"connection-limit": 8})
                self.assertEqual(len(waits), 8)
                self.assertLess(10 * waits[0], waits[-1])

    def test_a_frame_is_given_up_where_no_connection_is_ever_taken(self):
        writer, _ = self.turned_away_writer(100, True)
        self.assertEqual(writer.stats()["dropped"], {"unanswered": 1})
        self.assertEqual(writer.stats()["rejected"]["connection-limit"], 25)

    def test_a_connection_that_is_not_used_is_closed_and_made_anew_for_the_next_span(self):
        self.constant("IDLE_SECONDS", 0.05)
        writer = self.writer()
        for connection in (1, 2):
            writer.send({"id": str(connection), "start": 1, "end": 2})
            self.assertTrue(self.listener.wait(lambda: self.listener.ended == connection), "it is closed")
            self.assertFalse(writer.stats()["connected"])
        stats = writer.stats()
        self.assertEqual((stats["connections"], stats["accepted"], stats["dropped"]), (2, 2, {}))

    def test_a_span_may_interrupt_another_that_wakes_the_thread(self):
        writer = self.writer()
        sent = []

        def send():
            writer._idle = True
            sent.append(writer.send({"id": str(len(sent)), "start": 1, "end": 2}))

        self.assertIsNotNone(interrupt_everywhere(send, send), "it waits for ever")
        self.assertTrue(writer.flush(20))
        self.assertTrue(all(sent))
        self.assertEqual(len(self.sent(len(sent))), len(sent))


class WithoutMsgpack(Delivery):
    """Where there is no msgpack the package's own module stands in for it: the listener's msgpack is the judge."""

    def setUp(self):
        super().setUp()
        used = ingero.writer.msgpack
        self.assertIs(used, msgpack)
        self.addCleanup(setattr, ingero.writer, "msgpack", used)
        ingero.writer.msgpack = messagepack

    def value(self, chance, depth=0):
        simple = (lambda: None, lambda: chance.random() < 0.5, lambda: chance.choice((1, -1)) * chance.getrandbits(
            chance.randrange(64)), lambda: chance.gauss(0, 1e9), lambda: "ü" * chance.choice((0, 15, 16, 130, 33_000)),
            lambda: b"x" * chance.choice((0, 31, 300, 66_000)))
        nested = (lambda: [self.value(chance, depth + 1) for _ in range(chance.choice((0, 2, 17)))],
                  lambda: {str(i): self.value(chance, depth + 1) for i in range(chance.choice((0, 2, 17)))})
        return chance.choice(simple + nested if depth < 3 else simple)()

    def test_values_are_packed_and_read_as_by_msgpack_wherever_the_stream_is_cut(self):
        chance = random.Random(1)
        for _ in range(500):
            value = self.value(chance)
            data = messagepack.packb(value)
            self.assertEqual(data, msgpack.packb(value))
            unpacker = messagepack.Unpacker(max_buffer_size=2 * len(data))
            cut = chance.randrange(len(data) + 1)
            unpacker.feed(data[:cut])
            got = list(unpacker)
            unpacker.feed(data[cut:] + data[:cut])
            self.assertEqual(got + list(unpacker), [value] if cut < len(data) else [value, value])
        for length in (0, 15, 16, 65_535, 65_536):
            self.assertEqual(messagepack.array_header(length), msgpack.Packer().pack_array_header(length))
        for edge in (-129, -128, -33, -32, -1, 127, 128, 255, 256, 2**16, 2**32, 2**64 - 1, -(2**31) - 1, -(2**63)):
            self.assertEqual(messagepack.packb(edge), msgpack.packb(edge))

    def test_what_cannot_be_sent_or_is_no_reply_is_an_error(self):
        deep = []
        for _ in range(20):
            deep = [deep]
        for value, error in ((2**64, OverflowError), (-(2**63) - 1, OverflowError), (object(), TypeError),
                             ({1: {2}}, TypeError), (deep, ValueError)):
            with self.assertRaises(error):
                messagepack.packb(value)
        for data in (b"\xc1", b"\x81\x01\x02", b"\x91" * 20, b"\xc7\x01\x01x", b"\xa1\xff"):
            unpacker = messagepack.Unpacker(max_buffer_size=64)
            unpacker.feed(data)
            with self.assertRaises(ValueError):
                list(unpacker)
        with self.assertRaises(ValueError):
            messagepack.Unpacker(max_buffer_size=4).feed(b"\xdb\xff\xff\xff\xff")

class WithoutADaemon(unittest.TestCase):
    def test_memory_is_bounded_and_drops_are_counted(self):
        writer = Writer("/nonexistent/spans.sock", queue_spans=100)
        taken = sum(writer.send({"id": str(i), "start": 1, "end": 2}) for i in range(1_000))
        self.assertGreaterEqual(taken, 100)
        self.assertEqual(taken + writer.stats()["dropped"]["queue-full"], 1_000)
        self.assertLessEqual(writer.stats()["waiting"], 100)
        begin = time.monotonic()
        self.assertFalse(writer.close(0.2))
        self.assertLess(time.monotonic() - begin, 5)
        self.assertEqual(sum(writer.stats()["dropped"].values()), 1_000)

    def test_it_can_be_turned_off(self):
        os.environ["INGERO_DISABLE"] = "1"
        self.addCleanup(os.environ.pop, "INGERO_DISABLE")
        writer = Writer("/nonexistent/spans.sock")
        self.assertFalse(writer.send({"id": "a", "start": 1, "end": 2}))
        self.assertIsNone(writer._thread)

    def test_a_span_may_interrupt_another_that_starts_the_thread(self):
        writers, runs = [], []

        def prepare():
            writers.append(Writer("/nonexistent/spans.sock"))
            writers[-1]._run = lambda number=len(writers): runs.append(number)

        def send():
            writers[-1].send({"id": "a", "start": 1, "end": 2})

        self.assertIsNotNone(interrupt_everywhere(prepare, send), "it waits for ever")
        for writer in writers:
            writer._thread.join(20)
        self.assertEqual(sorted(runs), list(range(1, len(writers) + 1)), "one thread each")
        self.assertEqual({len(writer._queue) for writer in writers[:-1]}, {2})

    def test_who_makes_the_default_writer_may_be_interrupted_by_who_needs_it(self):
        before, found = ingero.writer._default.copy(), []
        self.addCleanup(ingero.writer._default.update, before)

        def prepare():
            ingero.writer._default.clear()
            found.append([])

        def find():
            found[-1].append(ingero.writer.default_writer())

        self.assertIsNotNone(interrupt_everywhere(prepare, find), "it waits for ever")
        self.assertEqual({(len(writers), len(set(writers))) for writers in found[:-1]}, {(2, 1)}, "both have the same")

    def test_the_programs_random_numbers_stay_its_own(self):
        writer = Writer("/nonexistent/spans.sock")
        self.addCleanup(writer.close, 0)
        waited, is_over = threading.Event(), threading.Event()
        self.addCleanup(is_over.set)
        writer._wait = lambda seconds: waited.set() or is_over.wait(20)
        before = random.getstate()
        writer.send({"id": "a", "start": 1, "end": 2})
        self.assertTrue(waited.wait(20))
        self.assertEqual(random.getstate(), before)


class Price(WithListener):
    """CTest runs this alone."""

    def test_record_costs_its_caller_what_is_told(self):
        """Less than it costs to hand a log record to another thread, as the standard library does it."""
        logger = ingero.vllm.StatLogger(None, 0, writer=self.writer())
        records = queue.Queue()
        worker = logging.handlers.QueueListener(records, logging.NullHandler())
        worker.start()
        self.addCleanup(worker.stop)
        rival = logging.Logger("rival")
        rival.addHandler(logging.handlers.QueueHandler(records))
        costs = {"record": [], "rival": []}

        def measure(what, call):
            begin = time.thread_time_ns()
            call()
            costs[what][-1].append(time.thread_time_ns() - begin)

        for _ in range(5):
            for one in costs.values():
                one.append([])
            for i in range(2_000):
                finished = namespace(
                    request_id=f"r{i}", e2e_latency=1.0, prefill_time=0.1, decode_time=0.5, finish_reason="stop",
                    num_prompt_tokens=10, num_generation_tokens=20)
                stats = namespace(num_running_reqs=1, num_waiting_reqs=0, kv_cache_usage=0.5)
                iteration = namespace(finished_requests=[finished], num_preempted_reqs=0)
                measure("record", lambda: logger.record(stats, iteration))
                measure("rival", lambda: rival.warning("%s took %f s", finished.request_id, finished.e2e_latency))
                if i % 20 == 0:
                    self.listener.wait(lambda: False, 0.001)  # an engine's own step: it lets other threads run
        p99 = {what: statistics.median(sorted(run)[len(run) * 99 // 100] for run in runs)
               for what, runs in costs.items()}
        print(f"p99 of record(): {p99['record'] / 1000:.1f} us, of a log record that is queued: "
              f"{p99['rival'] / 1000:.1f} us, medians of five runs of 2,000")
        if os.environ.get("INGERO_FULL"):
            self.assertLess(p99["record"], p99["rival"])


if __name__ == "__main__":
    gc.collect()
    unittest.main(verbosity=2)
