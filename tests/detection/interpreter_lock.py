"""Feeds a device from Python while, for the middle third of the time, another thread has the interpreter:

    interpreter_lock.py LIBRARIES SECONDS

Prints `ready` and waits for a line; at its end what it lost, in seconds: {"lost": ..., "steps": ...}."""

import ctypes
import json
import statistics
import sys
import threading
import time

LAUNCHES = 20
stopping = False


def compute() -> None:
    count = 0
    while not stopping:
        count += 1


def main() -> None:
    global stopping
    libraries, seconds = sys.argv[1], float(sys.argv[2])
    ctypes.CDLL(f"{libraries}/libcuda.so.1", ctypes.RTLD_GLOBAL)
    cudart = ctypes.CDLL(f"{libraries}/libcudart.so.12", ctypes.RTLD_GLOBAL)
    memory, size = ctypes.c_void_p(), ctypes.c_size_t(4096)
    assert cudart.cudaMalloc(ctypes.byref(memory), size) == 0
    print("ready", flush=True)
    sys.stdin.readline()

    # Each of these calls gives the interpreter away, and waits for it when it returns.
    def step() -> float:
        begin = time.monotonic()
        for _ in range(LAUNCHES):
            cudart.cudaMemsetAsync(memory, 0, size, None)
        cudart.cudaStreamSynchronize(None)
        until = begin + 0.005
        while time.monotonic() < until:
            pass
        return time.monotonic() - begin

    computing = threading.Thread(target=compute)
    begin = time.monotonic()
    steps, at_fault = [], []
    for part in range(3):
        if part == 1:
            computing.start()
        while time.monotonic() < begin + seconds * (part + 1) / 3:
            (at_fault if part == 1 else steps).append(step())
        if part == 1:
            stopping = True
            computing.join()
    usual = statistics.median(steps)
    print(json.dumps({"lost": sum(took - usual for took in at_fault), "steps": len(steps) + len(at_fault)}), flush=True)


main()
