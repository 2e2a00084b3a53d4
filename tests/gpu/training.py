"""A training run in PyTorch to which something is done, and what `ingeroctl explain` says that it cost; and what tracing
itself costs such a run. The daemon runs as shipped."""

from __future__ import annotations

import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

from tracing import Daemon, Failure, Output, Programs, run_program

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = shutil.which("python3") or sys.executable
SECONDS = 9
# Findings of a program that starts, and of what its own threads do to each other on the CPU that it was given.
NOT_OF_A_FAULT = {"cold-start"}
# By fault: the kind that is to be found.
FAULTS = {"none": None, "hogs": "cpu-contention", "interpreter": "lock-wait"}


class Told:
    """What was said of one run."""

    def __init__(self, fault: str, text: str, wrong: list[str], **figures) -> None:
        self.fault, self.text, self.wrong, self.figures = fault, text, wrong, figures


def judge(fault: str, answer: dict, findings: list[dict]) -> Told:
    """The truth has to lie within the bounds that are told, and nothing else may be said to have cost much."""
    wanted = FAULTS[fault]
    found = next((one for one in findings if one["kind"] == wanted), None)
    wrong = [f"{one['kind']} is said to have cost {one['lost_low_ns'] / 1e9:.3f} s or more: {one['summary']}"
             for one in findings
             if one is not found and one["kind"] not in NOT_OF_A_FAULT and one["lost_low_ns"] > 0.02 * SECONDS * 1e9]
    text = f"{answer['steps']} steps of {answer['calm_step_ms']} ms, {answer['lost_s']} s lost"
    if not wanted:
        return Told(fault, text, wrong, lost_s=answer["lost_s"])
    if not found:
        return Told(fault, text, [*wrong, f"no {wanted} was found"], lost_s=answer["lost_s"])
    low_s, high_s = found["lost_low_ns"] / 1e9, found["lost_high_ns"] / 1e9
    text += f"; told {low_s:.2f} to {high_s:.2f} s: {found['summary']}"
    if low_s > answer["lost_s"]:
        wrong.append(f"{low_s:.3f} s at least are told, {answer['lost_s']} s were lost")
    # What the interpreter's lock costs beside sleeping for it, such as caches, is no sleep.
    if fault != "interpreter" and high_s < answer["lost_s"]:
        wrong.append(f"{high_s:.3f} s at most are told, {answer['lost_s']} s were lost")
    culprits = {one["pid"] for one in found["culprits"]}
    if fault == "hogs" and not culprits & set(answer["hogs"]):
        wrong.append(f"none of the hogs {answer['hogs']} is named")
    return Told(fault, text, wrong, lost_s=answer["lost_s"], low_s=low_s, high_s=high_s)


def training(programs: Programs, folder: pathlib.Path, fault: str) -> Told | None:
    """None where there is no PyTorch."""
    with Daemon(programs, folder / f"training-{fault}", "") as daemon:
        run = run_program([PYTHON, HERE / "torch_training.py", fault, str(SECONDS)], daemon, f"training, {fault}")
        if run.skipped:
            return None
        answer = daemon.ask("explain", "--since", "10m", "--pid", str(run.pid))
        return judge(fault, run.answer, answer["findings"])


def cost(programs: Programs, folder: pathlib.Path, small: bool, turns: int = 4) -> dict:
    """How much longer steps take while a daemon is there, by turns with it and without, in one run of the program."""
    on_s, off_s, other_s = 3.0, 2.0, 6.0
    command = [PYTHON, HERE / "torch_training.py", "none", str(turns * (on_s + off_s + other_s)), "--steps",
               *(["--small"] if small else [])]
    windows: list[tuple[float, float]] = []
    told = {}
    with subprocess.Popen([*command, "--gate"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        output = Output(process)
        try:
            if not (line := output.next()) or not line.startswith("ready "):
                raise Failure(f"the program printed {line}")
            process.stdin.write(b"go\n")
            process.stdin.flush()
            for turn in range(turns):
                windows.append((time.time(), time.time() + off_s))
                time.sleep(off_s)
                with Daemon(programs, folder / f"cost-{small}-{turn}", "") as daemon:
                    daemon.wait_traced(process.pid)
                    windows.append((time.time(), time.time() + on_s))
                    time.sleep(on_s)
                    told = daemon.ask("status")
            line = output.next()
        except BaseException:
            process.kill()
            raise
    steps = json.loads(line or "{}").get("each_step", [])
    means = []
    for begin, end in windows:
        inside = [took for ended, took in steps if begin + 0.2 <= ended <= end]
        if not inside:
            raise Failure("a turn without a step")
        means.append(statistics.fmean(inside))
    slower = [on / off - 1 for off, on in zip(means[::2], means[1::2])]
    return {"step_ms": round(statistics.median(means[::2]) * 1e3, 3), "slower": round(statistics.median(slower), 4),
            "least": round(min(slower), 4), "most": round(max(slower), 4),
            "told_permille": round(told["overhead"]["measured_permille"] or 0, 1)}
