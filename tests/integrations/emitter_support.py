"""What tests of the emitters share. Imported first: it takes the folder of the sources from the command line, and ends
the test as skipped where the package is missing that reads what was sent."""

import os
import subprocess
import sys
import types
import unittest
import unittest.mock

try:
    import msgpack  # of the listener
except ImportError:
    print("SKIPPED: the package python3-msgpack is missing")
    sys.exit(77)

SOURCES = sys.argv.pop(1)
sys.path.insert(0, SOURCES)

import ingero.writer
from listener import Listener

HERE = os.path.dirname(os.path.abspath(__file__))


def strip(span):
    return {key: value for key, value in span.items() if key != "ack"}


def namespace(**fields):
    return types.SimpleNamespace(**fields)


class WithListener(unittest.TestCase):
    def setUp(self):
        self.listener = Listener()
        self.addCleanup(self.listener.close)

    def writer(self, **options):
        writer = ingero.writer.Writer(self.listener.path, **options)
        self.addCleanup(writer.close, 0)
        return writer

    def constant(self, name, value):
        patch = unittest.mock.patch.object(ingero.writer, name, value)
        patch.start()
        self.addCleanup(patch.stop)

    def sent(self, count):
        """The spans that came, once there are so many."""
        self.assertTrue(self.listener.wait(lambda: len(self.listener.spans) >= count), self.listener.spans)
        return [strip(span) for span in self.listener.spans]

    def run_program(self, program, *arguments, timeout=60, **variables):
        """Of Python, with the emitter and this listener's socket; what it printed."""
        environment = {**os.environ, "PYTHONPATH": f"{SOURCES}:{HERE}", "INGERO_SPANS_SOCKET": self.listener.path, **variables}
        return subprocess.run([sys.executable, "-B", "-c", program, *arguments], env=environment, check=True,
                              timeout=timeout, stdout=subprocess.PIPE, text=True).stdout
