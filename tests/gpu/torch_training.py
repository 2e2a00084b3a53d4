"""Trains a small model in PyTorch, and for the middle third of the time does something to itself that costs time.

    torch_training.py none|hogs|interpreter SECONDS [--small] [--steps] [--gate]

hogs: two other processes want its CPU. interpreter: another of its threads computes in Python. Prints `ready PID` and waits
for a line where --gate is given; at its end, as JSON, what it lost, `lost_s`, by the steps' own times."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time

from with_torch import import_torch, ready

HOGS = 2


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("fault", choices=["none", "hogs", "interpreter"])
    parser.add_argument("seconds", type=float)
    parser.add_argument("--small", action="store_true", help="steps that the CPU is longer with than the device")
    parser.add_argument("--steps", action="store_true", help="print when each step ended, and how long it took")
    parser.add_argument("--gate", action="store_true")
    return parser.parse_args()


def make_step(torch, small: bool):
    torch.manual_seed(0)
    width, batch, layers = (256, 64, 4) if small else (2048, 4096, 6)
    model = torch.nn.Sequential(*[module for _ in range(layers)
                                  for module in (torch.nn.Linear(width, width), torch.nn.GELU())]).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch_in_memory = torch.randn(batch, width).pin_memory()

    def step() -> float:
        loss = model(batch_in_memory.to("cuda", non_blocking=True)).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


class Fault:
    """Between start() and stop()."""

    def __init__(self, kind: str, cpu: int) -> None:
        self.kind, self.cpu = kind, cpu
        self.hogs: list[subprocess.Popen] = []
        self.thread: threading.Thread | None = None
        self.stopping = False

    def start(self) -> None:
        if self.kind == "hogs":
            self.hogs = [subprocess.Popen(["taskset", "-c", str(self.cpu), "sh", "-c", "while :; do :; done"])
                         for _ in range(HOGS)]
        elif self.kind == "interpreter":
            self.thread = threading.Thread(target=self.compute)
            self.thread.start()

    def compute(self) -> None:
        count = 0
        while not self.stopping:
            count += 1

    def stop(self) -> None:
        self.stopping = True
        for hog in self.hogs:
            hog.kill()
            hog.wait()
        if self.thread:
            self.thread.join()


def main() -> int:
    options = parse()
    torch = import_torch()
    cpu = max(os.sched_getaffinity(0))
    if options.fault == "hogs":
        os.sched_setaffinity(0, {cpu})
    step = make_step(torch, options.small)
    step()
    ready()
    for _ in range(20):
        step()

    fault = Fault(options.fault, cpu)
    steps: list[tuple[float, float, bool]] = []  # end, length, whether at fault
    begin = time.time()
    for part in range(3):
        if part == 1:
            fault.start()
        while (started := time.time()) < begin + options.seconds * (part + 1) / 3:
            step()
            ended = time.time()
            steps.append((ended, ended - started, part == 1))
        if part == 1:
            fault.stop()
    calm_s = statistics.median(took for _, took, at_fault in steps if not at_fault)
    answer = {"pid": os.getpid(), "results_right": True, "torch": torch.__version__, "steps": len(steps),
              "calm_step_ms": round(calm_s * 1e3, 3), "hogs": [hog.pid for hog in fault.hogs],
              "lost_s": round(sum(took - calm_s for _, took, _ in steps), 3)}
    if options.steps:
        answer["each_step"] = [(ended, took) for ended, took, _ in steps]
    print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
