"""Reads the log of the stand-in libraries: tests/standin/ground_truth.h."""

import collections
import pathlib
import struct

MAGIC, VERSION = 0x4854555254474e49, 2


def count_calls(path: pathlib.Path) -> collections.Counter[tuple[str, int]]:
    """How many calls that returned the log has, by function and result."""
    log = path.read_bytes()
    magic, version, record_size, name_size, name_count, names, records, capacity = struct.unpack_from("<QIIIIQQQ", log)
    if (magic, version) != (MAGIC, VERSION):
        raise ValueError(f"{path} is no ground truth of version {VERSION}")
    claimed, = struct.unpack_from("<Q", log, 192 - 64)
    if claimed > capacity:
        raise ValueError(f"{path} was too small for {claimed} calls")
    functions = [log[names + i * name_size:names + (i + 1) * name_size].split(b"\0")[0].decode()
                 for i in range(name_count)]
    calls: collections.Counter[tuple[str, int]] = collections.Counter()
    for i in range(claimed):
        end_ns, = struct.unpack_from("<Q", log, records + i * record_size + 8)
        function, _, _, result = struct.unpack_from("<HBBi", log, records + i * record_size + 40)
        if end_ns != 0:
            calls[functions[function], result] += 1
    return calls
