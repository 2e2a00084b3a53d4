"""The kernels that capture is tested on, and what is checked on each."""

import collections

# `metapackage` names the image that a suite has now: backports moves on. `long`: only in the long form.
Kernel = collections.namedtuple("Kernel", "suite architecture metapackage checks long")

PLAIN = "integration_test"
INSTRUMENTED = "integration_instrumented_test"
# What `ingerod --check` must find from this release of Linux on, the best way to attach first.
SINCE = {"uprobe-session": (6, 13), "uprobe-multi": (6, 6), "perf-uprobe": (4, 17)}

# name: (program of tests/integration, its test)
CASES = {
    "perf_uprobes": (PLAIN, "All/AttachMethods.records_runtime_and_driver_calls_with_their_depth/perf_uprobe"),
    "uprobe_multi": (PLAIN, "All/AttachMethods.records_runtime_and_driver_calls_with_their_depth/uprobe_multi"),
    "best_method": (PLAIN, "Attach.by_default_the_best_method_is_used"),
    "already_mapped": (PLAIN, "Attach.a_library_that_is_already_mapped_is_found_by_scanning"),
    "two_copies": (PLAIN, "Attach.two_copies_of_the_runtime_are_both_traced"),
    "bytes": (PLAIN, "Attach.the_arguments_of_launches_copies_and_allocations_are_read"),
    "launch_arguments": (PLAIN, "Arguments.*"),
    "every_call_once": (PLAIN, "Exactness.at_20000_calls_a_second_none_is_lost"),
    "many_threads": (PLAIN, "Exactness.calls_of_many_threads_are_all_there"),
    "left_calls": (PLAIN, "Exactness.calls_left_by_longjmp_and_thread_death_are_counted_as_lost"),
    "parts_sum_up": (PLAIN, "TimeSplit.the_parts_of_every_call_sum_to_its_duration"),
    "waits": (PLAIN, "All/Waits.are_classed_by_what_was_waited_for/futex:*/sleep:*/pipe"),
    "collectives": (INSTRUMENTED, "of/EveryCollective.is_recorded_as_it_was_called/8_ranks_in_2_processes"),
    "task_and_timer_waits": (PLAIN, "All/Waits.are_classed_by_what_was_waited_for/futex:*/sleep"),
    "waits_between_calls": (INSTRUMENTED, "Host.SleepsBetweenCallsAreTold*:Host.AChainOfFourThreads*"),
    "nfs": (INSTRUMENTED, "Host.ReadsOverNfs*"),
    "footprint": (INSTRUMENTED, "FootprintOf.a_tree_has_*"),
    "containers_of_an_image": (PLAIN, "SharedImage.*"),
}
# Of the kernel, for these.
MODULES = ["nfsv3", "overlay"]
MODULE_FOLDERS = ["fs", "net/sunrpc"]
PROGRAMS = sorted({program for program, _ in CASES.values()})

# A daemon with perf uprobes takes 7 s to end in the emulator, 35 ms a probe: there, the least that says it all.
WITHOUT_MULTI = ["best_method", "bytes", "launch_arguments", "every_call_once", "many_threads", "left_calls",
                 "collectives", "task_and_timer_waits", "waits_between_calls", "footprint", "containers_of_an_image"]
WITH_MULTI = [name for name in CASES if name != "task_and_timer_waits"]

KERNELS = {
    "6.1": Kernel("bookworm", "amd64", "linux-image-cloud-amd64", WITHOUT_MULTI, False),
    "6.12": Kernel("bookworm-backports", "amd64", "linux-image-cloud-amd64", WITH_MULTI, False),
    "6.1-arm64": Kernel("bookworm", "arm64", "linux-image-cloud-arm64", WITHOUT_MULTI, True),
    "6.12-arm64": Kernel("bookworm-backports", "arm64", "linux-image-cloud-arm64", WITH_MULTI, True),
    "6.12-arm64-16k": Kernel("bookworm-backports", "arm64", "linux-image-arm64-16k", WITH_MULTI, True),
}


def checks_of(kernel):
    return ["features", *kernel.checks]
