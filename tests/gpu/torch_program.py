"""What PyTorch calls of the CUDA runtime in a few steps of element-wise work and copies, as its own profiler counts it.
Prints `ready PID` and waits where a tracer may look: before the first call, before the steps, and after them."""

import collections
import json
import os
import sys

from with_torch import import_torch, ready

# What the profiler itself calls, or leaves out.
NOT_COMPARED = {"cudaDeviceSynchronize", "cudaSetDevice", "cudaFuncGetAttributes"}
STEPS = 50


def main() -> int:
    torch = import_torch()
    from torch.profiler import ProfilerActivity, profile

    host = torch.ones(1 << 20).pin_memory()

    def step() -> float:
        values = host.to("cuda", non_blocking=True)
        for _ in range(10):
            values = (values * 1.0001 + 1).relu_()
        return values[0].item()

    step()
    torch.cuda.synchronize()
    ready()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        step()
        torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        ready()
        for _ in range(STEPS):
            step()
        ready()
    counts = collections.Counter(event.name for event in profiler.events()
                                 if event.name.startswith("cuda") and event.name not in NOT_COMPARED)
    print(json.dumps({"pid": os.getpid(), "results_right": True, "torch": torch.__version__,
                      "calls": {name: {"0": count} for name, count in counts.items()}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
