"""What the span socket needs of MessagePack, for programs that have no `msgpack`: spans are written, replies are read.

The names are those of `msgpack`, which is used where it is there, and is faster. Format: https://github.com/msgpack/msgpack,
spec.md.
"""

import struct

MAX_DEPTH = 8  # the daemon reads 4


class UnpackError(ValueError):
    """Bytes that are none of what a daemon replies."""


class _Incomplete(Exception):
    pass


def _sized(length, small, forms):
    """The head of something of this length: (limit, first byte) where it fits into the byte, else (format, byte)s."""
    limit, first = small
    if length < limit:
        return bytes((first | length,))
    for form, byte in forms:
        if length < 1 << 8 * struct.calcsize(form):
            return bytes((byte,)) + struct.pack(form, length)
    raise ValueError("too long")


def _pack_integer(value, parts):
    if -32 <= value < 128:
        parts.append(struct.pack("b" if value < 0 else "B", value))
        return
    signed = value < 0
    for form, byte in ((">b", 0xD0), (">h", 0xD1), (">i", 0xD2), (">q", 0xD3)) if signed else (
            (">B", 0xCC), (">H", 0xCD), (">I", 0xCE), (">Q", 0xCF)):
        bits = 8 * struct.calcsize(form)
        if -(1 << (bits - 1)) <= value if signed else value < 1 << bits:
            parts.append(bytes((byte,)) + struct.pack(form, value))
            return
    raise OverflowError("an integer of more than 64 bits")


def _pack(value, parts, depth):
    if depth > MAX_DEPTH:
        raise ValueError("too deep")
    if value is None:
        parts.append(b"\xc0")
    elif isinstance(value, bool):
        parts.append(b"\xc3" if value else b"\xc2")
    elif isinstance(value, int):
        _pack_integer(value, parts)
    elif isinstance(value, float):
        parts.append(b"\xcb" + struct.pack(">d", value))
    elif isinstance(value, str):
        text = value.encode("utf-8")
        parts.append(_sized(len(text), (32, 0xA0), ((">B", 0xD9), (">H", 0xDA), (">I", 0xDB))))
        parts.append(text)
    elif isinstance(value, (bytes, bytearray)):
        parts.append(_sized(len(value), (0, 0), ((">B", 0xC4), (">H", 0xC5), (">I", 0xC6))))
        parts.append(bytes(value))
    elif isinstance(value, dict):
        parts.append(_sized(len(value), (16, 0x80), ((">H", 0xDE), (">I", 0xDF))))
        for key, one in value.items():
            _pack(key, parts, depth + 1)
            _pack(one, parts, depth + 1)
    elif isinstance(value, (list, tuple)):
        parts.append(array_header(len(value)))
        for one in value:
            _pack(one, parts, depth + 1)
    else:
        raise TypeError(f"a {type(value).__name__} cannot be sent")


def packb(value):
    """One value as bytes. TypeError, ValueError, OverflowError: it cannot be sent."""
    parts = []
    _pack(value, parts, 0)
    return b"".join(parts)


def array_header(length):
    """What comes before the values of an array that were packed by themselves."""
    return _sized(length, (16, 0x90), ((">H", 0xDC), (">I", 0xDD)))


# First byte: format of the number, or of the length of text, bytes, an array, a map.
_NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i",
            0xD3: ">q"}
_LENGTHS = {0xC4: (">B", "bytes"), 0xC5: (">H", "bytes"), 0xC6: (">I", "bytes"),
            0xD9: (">B", "text"), 0xDA: (">H", "text"), 0xDB: (">I", "text"),
            0xDC: (">H", "array"), 0xDD: (">I", "array"), 0xDE: (">H", "map"), 0xDF: (">I", "map")}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


class Unpacker:
    """Values out of a stream: feed() it what comes, and iterate over those that are whole."""

    def __init__(self, max_buffer_size):
        self._max = max_buffer_size
        self._data = b""
        self._at = 0

    def feed(self, data):
        if len(self._data) + len(data) > self._max:
            raise UnpackError("a value that is too long")
        self._data += data

    def __iter__(self):
        return self

    def __next__(self):
        self._at = 0
        try:
            value = self._read(0)
        except _Incomplete:
            raise StopIteration from None
        self._data = self._data[self._at :]
        return value

    def _take(self, length):
        end = self._at + length
        if end > len(self._data):
            raise _Incomplete
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _number(self, form):
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _read(self, depth):
        if depth > MAX_DEPTH:
            raise UnpackError("too deep")
        first = self._take(1)[0]
        if first < 0x80:
            return first
        if first >= 0xE0:
            return first - 0x100
        if first in _CONSTANTS:
            return _CONSTANTS[first]
        if first in _NUMBERS:
            return self._number(_NUMBERS[first])
        if first in _LENGTHS:
            form, what = _LENGTHS[first]
            return self._read_sized(what, self._number(form), depth)
        if first < 0x90:
            return self._read_sized("map", first & 0x0F, depth)
        if first < 0xA0:
            return self._read_sized("array", first & 0x0F, depth)
        if first < 0xC0:
            return self._read_sized("text", first & 0x1F, depth)
        raise UnpackError(f"the byte {first:#x}")

    def _read_sized(self, what, length, depth):
        if what == "bytes":
            return self._take(length)
        if what == "text":
            return self._take(length).decode("utf-8")
        if what == "array":
            return [self._read(depth + 1) for _ in range(length)]
        result = {}
        for _ in range(length):
            key = self._read(depth + 1)
            if not isinstance(key, (str, bytes)):
                raise UnpackError("a key that is no text")
            result[key] = self._read(depth + 1)
        return result
