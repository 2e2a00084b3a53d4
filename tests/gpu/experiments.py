"""Small experiments that answer, on this machine, what only a real driver and device can: each gives a line of text and
the figures behind it."""

from __future__ import annotations

import collections
import os
import pathlib

import training
from tracing import Calls, Daemon, Failure, Programs, Run, run_program


class Answer:
    def __init__(self, question: str, text: str, **figures) -> None:
        self.question, self.text, self.figures = question, text, figures


def is_driver(op: str) -> bool:
    return op.startswith("cu") and not op.startswith("cuda")


def total(calls: Calls, wanted) -> int:
    return sum(count for (op, kind), count in calls.items() if kind == "calls" and wanted(op))


def launch_symbol(runs: dict[str, Run]) -> Answer:
    question = "Which functions of the runtime does kernel<<<...>>> call?"
    run = runs.get("vector_add-shared")
    if not run:
        return Answer(question, "not asked: vector_add-shared did not run")
    helper, plain = (run.recorded[op, "calls"] for op in ("__cudaLaunchKernel", "cudaLaunchKernel"))
    rounds = run.answer["calls"]["cudaDeviceSynchronize"]
    return Answer(question, f"in {sum(rounds.values())} launches by <<<>>> and as many by cudaLaunchKernel: "
                  f"__cudaLaunchKernel {helper}, cudaLaunchKernel {plain}", __cudaLaunchKernel=helper,
                  cudaLaunchKernel=plain)


def nesting(runs: dict[str, Run]) -> Answer:
    question = "Are the driver calls seen that the runtime makes inside?"
    pairs = {"cudaLaunchKernel": "cuLaunchKernel", "cudaMemcpyAsync": "cuMemcpy", "cudaMalloc": "cuMemAlloc",
             "cudaGraphLaunch": "cuGraphLaunch", "cudaStreamSync": "cuStreamSynchronize"}
    recorded: collections.Counter = collections.Counter()
    for name, run in runs.items():
        if name.endswith("-shared"):
            recorded += run.recorded
    parts, figures = [], {}
    for runtime, driver in pairs.items():
        outer = recorded[runtime, "calls"]
        inner = total(recorded, lambda op, start=driver: op.startswith(start))
        figures[runtime], figures[driver] = outer, inner
        parts.append(f"{driver}* {inner} in {outer} {runtime}")
    inner, outer = total(recorded, is_driver), total(recorded, lambda op: not is_driver(op))
    return Answer(question, f"{inner} driver calls beside {outer} of the runtime; " + ", ".join(parts),
                  nested_ratio=round(inner / outer, 3) if outer else None, **figures)


def static_symbols(runs: dict[str, Run], failures: dict[str, str]) -> Answer:
    question = "Is a runtime that is linked into the program seen?"
    seen = {name: total(run.recorded, lambda op: not is_driver(op)) for name, run in runs.items()
            if name.endswith("-static")}
    unseen = {name: why for name, why in failures.items() if name.endswith("-static")}
    text = ", ".join([f"{name}: {count} runtime calls" for name, count in seen.items()] +
                     [f"{name}: {why}" for name, why in unseen.items()])
    return Answer(question, text or "not asked: no such program ran", **seen)


def probed_instructions(daemon: Daemon) -> Answer:
    question = "Which functions of the libraries are attached to, and which are single-stepped?"
    parts, figures = [], {}
    for library in daemon.ask("probes")["libraries"]:
        functions = sum(one["functions"] for one in library["sets"])
        figures[library["library"]] = {"functions": functions, "stepped": library["stepped"]}
        text = f"{library['library']}: {functions} functions, {library['stepped']} of them single-stepped"
        for reason in library["reasons"]:
            text += f", failed: {reason}"
        parts.append(text)
    return Answer(question, "; ".join(parts) or "none", **figures)


def exported_names(check: dict) -> Answer:
    question = "Which names of the table do the libraries of this host export?"
    found = [one["detail"] for one in check["checks"] if one["name"] == "library"]
    return Answer(question, "; ".join(found) or "no library is installed where programs look for it")


def ways_to_wait(daemon: Daemon, programs: Programs) -> Answer:
    question = "Does it show whether a wait for the device spins or sleeps?"
    parts, figures = [], {}
    for way in ("spin", "yield", "block"):
        run = run_program([programs.cuda / "questions", way, "--rounds", "20"], daemon, f"questions {way}")
        row = next((one for one in run.rows if one["op"] == "cudaStreamSync"), None)
        if not row:
            raise Failure(f"no cudaStreamSynchronize was recorded of questions {way}")
        shares = {part: round(row[f"{part}_ns"] / row["total_ns"], 3)
                  for part in ("on_cpu", "device_wait", "runnable", "blocked")}
        figures[way] = shares
        parts.append(f"{way}: " + ", ".join(f"{part} {share:.1%}" for part, share in shares.items()))
    return Answer(question, "; ".join(parts), **figures)


def queue_depth(daemon: Daemon, programs: Programs) -> Answer:
    question = "How many launches does a stream take before one has to wait?"
    run = run_program([programs.cuda / "questions", "queue"], daemon, "questions queue")
    row = next((one for one in run.rows if one["op"] == "__cudaLaunchKernel"), None) or \
        next(one for one in run.rows if one["op"] == "cudaLaunchKernel")
    figures = dict(run.answer["figures"], recorded_longest_ms=round(row["max_ns"] / 1e6, 3),
                   recorded_on_cpu_ms=round(row["on_cpu_ns"] / 1e6, 3),
                   recorded_device_wait_ms=round(row["device_wait_ns"] / 1e6, 3),
                   recorded_blocked_ms=round(row["blocked_ns"] / 1e6, 3))
    return Answer(question, f"{figures['launches_until_one_waited']:.0f}, the last of which took "
                  f"{figures['it_waited_ms']:.0f} ms; of all launches on CPU {figures['recorded_on_cpu_ms']} ms, waiting "
                  f"for the device {figures['recorded_device_wait_ms']} ms, asleep {figures['recorded_blocked_ms']} ms",
                  **figures)


def cost_of_launch(daemon: Daemon, programs: Programs, untraced_ns: float) -> Answer:
    question = "What does tracing cost a launch, with the calls inside it?"
    run = run_program([programs.cuda / "questions", "launch", "--rounds", "20"], daemon, "questions launch")
    traced_ns = run.answer["figures"]["ns_per_launch"]
    launches = run.recorded["cudaLaunchKernel", "calls"]
    probes = total(run.recorded, lambda _: True) / launches if launches else 0
    return Answer(question, f"{untraced_ns:.0f} ns untraced, {traced_ns:.0f} ns traced, with {probes:.1f} recorded calls a "
                  "launch", untraced_ns=untraced_ns, traced_ns=traced_ns, recorded_calls_per_launch=round(probes, 2))


def cost_of_training(programs: Programs, folder: pathlib.Path, small: bool) -> Answer:
    what = "that waits for its CPU" if small else "that waits for its device"
    figures = training.cost(programs, folder, small)
    return Answer(f"What does tracing cost a training run {what}?",
                  f"steps of {figures['step_ms']} ms take {figures['slower']:.1%} longer "
                  f"({figures['least']:.1%} to {figures['most']:.1%} by turns); status says {figures['told_permille']} "
                  "per mille", **figures)


def map_files() -> Answer:
    question = "Can the files that a process maps be opened by what is mapped?"
    folder = pathlib.Path("/proc/self/map_files")
    try:
        entry = next(folder.iterdir())
        os.close(os.open(entry, os.O_RDONLY))
    except (OSError, StopIteration) as error:
        return Answer(question, f"no: {error}", readable=False)
    return Answer(question, "yes", readable=True)


def pid_namespaces(runs: dict[str, Run]) -> Answer:
    question = "Are processes recorded under the pids that this place sees?"
    same = [run for run in runs.values() if run.pid and run.answer.get("pid") == run.pid and run.recorded]
    levels = pathlib.Path("/proc/self/status").read_text().split("NSpid:")[1].split("\n")[0].split()
    return Answer(question, f"{len(same)} of {len(runs)} programs were; /proc/self/status lists {len(levels)} pid "
                  f"namespace{'s' if len(levels) > 1 else ''}", namespaces=len(levels))


def of_torch(run: Run) -> Answer:
    inner, outer = total(run.recorded, is_driver), total(run.recorded, lambda op: not is_driver(op))
    return Answer("How often do calls nest in PyTorch?", f"{inner} driver calls beside {outer} of the runtime, torch "
                  f"{run.answer.get('torch')}", nested_ratio=round(inner / outer, 3) if outer else None)
