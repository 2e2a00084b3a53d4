"""An inference server as vLLM is built: this process answers clients and has the plug-in, its child calls CUDA.

serve.py RUNTIME_LIBRARY REQUESTS SOURCE_FOLDER COMPLETIONS [BATCH]: prints the child's pid, and after a line on standard input serves the
requests, which overlap, and prints one line of JSON: which of them one call held up. The twentieth request has so many
completions: more than one, and each is long. With BATCH one thread makes all calls, as an engine with continuous batching does, for
so many clients, each of which asks again once it was answered; otherwise each request has a thread.
The child is the same program with `--engine`."""

import concurrent.futures
import ctypes
import itertools
import json
import subprocess
import sys
import threading
import time
import types

ITERATIONS, LAUNCHES, IN_FLIGHT, ARRIVAL_SECONDS, HELD_UP_SECONDS = 6, 3, 12, 0.004, 0.39
HEAVY, HEAVY_ITERATIONS = 20, 300


def load(library):
    runtime = ctypes.CDLL(library)
    runtime.cudaMalloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t]
    runtime.cudaFree.argtypes = [ctypes.c_void_p]
    runtime.cudaStreamSynchronize.argtypes = [ctypes.c_void_p]
    runtime.cudaLaunchKernel.argtypes = [ctypes.c_void_p] + 2 * [Dim3] + [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    runtime.cudaStreamCreate.argtypes = [ctypes.POINTER(ctypes.c_void_p)]
    return runtime


def result_of(number, arrived, scheduled, first, held_up):
    end = time.monotonic()
    return {"id": f"request-{number}", "timestamp": time.time(), "latency": end - arrived, "queued": scheduled - arrived,
            "prefill": first - scheduled, "decode": end - first, "held_up": held_up}


def batches(runtime, requests, clients):
    """Each turn makes one token of every request of the batch; whoever was answered asks again and joins it."""
    memory, stream, batch = ctypes.c_void_p(), ctypes.c_void_p(), []
    runtime.cudaStreamCreate(ctypes.byref(stream))
    numbers = iter(range(requests))
    while True:
        arrived = time.monotonic()
        for number in itertools.islice(numbers, clients - len(batch)):
            scheduled = time.monotonic()
            runtime.cudaMalloc(ctypes.byref(memory), 1 << 20)
            batch.append(types.SimpleNamespace(
                memory=ctypes.c_void_p(memory.value), left=ITERATIONS, number=number, arrived=arrived, scheduled=scheduled,
                first=None, held_up=time.monotonic() - scheduled > HELD_UP_SECONDS))
        if not batch:
            return
        for _ in range(LAUNCHES):
            runtime.cudaLaunchKernel(0x1000, Dim3(8, 1, 1), Dim3(32, 1, 1), None, 0, stream)
        runtime.cudaStreamSynchronize(stream)
        for one in batch:
            one.first = one.first or time.monotonic()
            one.left -= 1
            if one.left == 0:
                runtime.cudaFree(one.memory)
                print(json.dumps(result_of(one.number, one.arrived, one.scheduled, one.first, one.held_up)), flush=True)
        batch = [one for one in batch if one.left > 0]


def engine(library, requests, completions, batch):
    runtime = load(library)
    output = threading.Lock()

    def serve(number, arrived, iterations):
        scheduled = time.monotonic()
        memory, stream = ctypes.c_void_p(), ctypes.c_void_p()
        runtime.cudaStreamCreate(ctypes.byref(stream))
        begin = time.monotonic()
        runtime.cudaMalloc(ctypes.byref(memory), 1 << 20)
        held_up = time.monotonic() - begin > HELD_UP_SECONDS
        first = None
        for _ in range(iterations):
            for _ in range(LAUNCHES):
                runtime.cudaLaunchKernel(0x1000, Dim3(8, 1, 1), Dim3(32, 1, 1), None, 0, stream)
            runtime.cudaStreamSynchronize(stream)
            first = first or time.monotonic()
        runtime.cudaFree(memory)
        with output:
            print(json.dumps(result_of(number, arrived, scheduled, first, held_up)), flush=True)

    print("loaded", flush=True)
    sys.stdin.readline()
    if batch:
        batches(runtime, requests, batch)
        return
    with concurrent.futures.ThreadPoolExecutor(IN_FLIGHT) as pool:
        for number in range(requests):
            heavy = number == HEAVY and completions > 1
            arrived = time.monotonic()
            for _ in range(completions if heavy else 1):
                pool.submit(serve, number, arrived, HEAVY_ITERATIONS if heavy else ITERATIONS)
            time.sleep(ARRIVAL_SECONDS)


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


def vllm_interface():
    """As vLLM has it: the plug-in derives from its base class."""
    for name in ("vllm", "vllm.v1", "vllm.v1.metrics", "vllm.v1.metrics.loggers"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["vllm.v1.metrics.loggers"].StatLoggerBase = type("StatLoggerBase", (), {})


def serve(library, requests, source, completions, batch="0"):
    sys.path.insert(0, source)
    vllm_interface()
    from ingero.vllm import StatLogger
    from ingero.writer import default_writer

    child = subprocess.Popen([sys.executable, "-B", __file__, "--engine", library, requests, completions, batch],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "loaded\n"
    print(child.pid, flush=True)
    sys.stdin.readline()
    config = types.SimpleNamespace(model_config=types.SimpleNamespace(served_model_name="stand-in"))
    logger = StatLogger(config, 0)
    print("go", file=child.stdin, flush=True)
    held_up = []
    for line in child.stdout:
        result = json.loads(line)
        if result["held_up"]:
            held_up.append(result["id"])
        finished = types.SimpleNamespace(
            request_id=result["id"], e2e_latency=result["latency"], queued_time=result["queued"],
            prefill_time=result["prefill"], decode_time=result["decode"],
            # Lies of an emitter: they change no order.
            num_prompt_tokens=1_000_000 if result["id"] == "request-1" else 8, num_generation_tokens=ITERATIONS)
        logger.record(types.SimpleNamespace(num_running_reqs=1, num_waiting_reqs=0, kv_cache_usage=0.5),
                      types.SimpleNamespace(finished_requests=[finished], num_preempted_reqs=0,
                                            iteration_timestamp=result["timestamp"]))
    assert child.wait() == 0
    if not default_writer().flush(30):
        sys.exit("serve.py: after 30 s ingerod has not taken all that was told of the requests")
    print(json.dumps({"held_up": held_up, "stats": default_writer().stats()}), flush=True)


if sys.argv[1] == "--engine":
    engine(sys.argv[2], *map(int, sys.argv[3:]))
else:
    serve(*sys.argv[1:])
