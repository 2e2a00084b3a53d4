"""The table of ingerod(8), RESOURCE LIMITS, has the numbers of the sources: limits_documented.py PAGE."""

import pathlib
import re
import sys

from tracked import ROOT, report

DAEMON = ROOT / "daemon" / "ingerod"

SUBSCRIPTIONS = [("live/subscriptions.h", r"max_subscribers = (\d+)"),
                 ("live/subscriptions.h", r"max_unprivileged = (\d+)"),
                 ("live/subscriptions.h", r"max_of_a_user = (\d+)")]
# Row, and of each number in its order: file, and a pattern whose group is the number as the sources have it.
ROWS = {
    "GPU libraries, each copy": [("targets/libraries.h", r"max_libraries_a_user = ([\d']+)")],
    "probed functions": [("targets/libraries.h", r"max_sites_a_user = ([\d']+)")],
    "new copies of GPU libraries": [("targets/libraries.cpp", r"attach_burst = ([\d']+)")],
    "watched processes": [("targets/processes.h", r"of_a_user = ([\d']+)")],
    "new callers and programs": [("targets/processes.h", r"look_burst = ([\d']+)")],
    "programs not examined": [("targets/unexamined_processes.h", r"max_processes = ([\d']+)")],
    "processes that cannot be read": [("targets/unreadable_processes.h", r"max_processes = ([\d']+)")],
    "questions a process holds up": [("discovery/bounded_calls.h", r"left_behind = ([\d']+)"),
                                     ("discovery/bounded_calls.h", r"left_behind_of_user = ([\d']+)")],
    "questions a file system holds up": [("discovery/bounded_calls.h", r"left_behind = ([\d']+)"),
                                         ("discovery/bounded_calls.h", r"left_behind_of_users_files = ([\d']+)")],
    "time that they are held up": [("discovery/bounded_calls.h", r"held_up_s = (\d+)")],
    "gaps in coverage": [("targets/coverage_gaps.h", r"max_rows_a_uid = ([\d']+)"),
                         ("targets/coverage_gaps.h", r"rows_a_second = ([\d']+)")],
    "gaps of one process, open": [("targets/coverage_gaps.h", r"max_open_a_process = ([\d']+)")],
    "new stacks in a second": [("stacks/native_stacks.cpp", r"new_stacks_a_tick = ([\d']+)")],
    "stacks since the start": [("stacks/native_stacks.cpp", r"most_stacks = ([\d']+)")],
    "unwind tables": [("../../bpf/stack_event.h", r"INGERO_MAX_UNWIND_TABLES (\d+)")],
    "bytes of unwind tables": [("stacks/native_stacks.cpp", r"table_budget_bytes = (\d+)ULL << 20")],
    "mappings with code": [("../../bpf/stack_event.h", r"INGERO_MAX_MAPPINGS (\d+)")],
    "bytes of lists of mappings": [("stacks/native_stacks.h", r"max_list_bytes = (\d+) << 20")],
    "bytes of what files are": [("stacks/mapped_files.h", r"max_bytes = (\d+) << 20")],
    "mapped files, open": [("stacks/mapped_files.h", r"max_open = (\d+)")],
    "time to find names in files": [("discovery/mapped_text.h", r"burst_s = (\d+)")],
    "names of functions": [("ingest/name_budget.h", r"burst = ([\d']+)")],
    "control connections": [("control/control_server.h", r"unsigned connections = (\d+)"),
                            ("control/control_server.h", r"unprivileged_connections = (\d+)"),
                            ("control/control_server.h", r"connections_per_uid = (\d+)")],
    "bytes of long answers, unread": [("control/control_server.h", r"all_output_bytes = (\d+) << 20")],
    "MCP sessions": [("mcp/mcp_server.h", r"sessions = (\d+)"), ("mcp/mcp_server.h", r"sessions_per_uid = (\d+)")],
    "MCP sessions that look": [("mcp/mcp_server.h", r"turns = (\d+)"), ("mcp/mcp_server.h", r"turns_per_uid = (\d+)")],
    "span connections": [("spans/span_limits.h", r"unsigned connections = (\d+)"),
                         ("spans/span_limits.h", r"unprivileged_connections = (\d+)"),
                         ("spans/span_limits.h", r"connections_per_user = (\d+)")],
    "running traces": SUBSCRIPTIONS,
    "running monitors of the socket": SUBSCRIPTIONS,
    "running footprints": [("footprint/footprints.h", r"max_recordings = (\d+)"),
                           ("footprint/footprints.h", r"max_unprivileged = (\d+)"),
                           ("footprint/footprints.h", r"max_of_a_user = (\d+)")],
}


def numbers_of(text: str) -> list[int]:
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\d|\d", text)]


def main() -> int:
    page = pathlib.Path(sys.argv[1])
    section = page.read_text(encoding="utf-8").partition('.SH "RESOURCE LIMITS"')[2].partition(".SH ")[0]
    table = section.partition(".EX\n")[2].partition(".EE")[0].replace("\\-", "-").splitlines()[1:]
    rows = {re.split(r"  +", line)[0]: numbers_of("  ".join(re.split(r"  +", line)[1:])) for line in table}
    problems = [f"{page.name}: limit of {name} is missing" for name in ROWS if name not in rows]
    problems += [f"{page.name}: limit of {name} has no source here" for name in rows if name not in ROWS]
    for name, sources in ROWS.items():
        for place, (file, pattern) in enumerate(sources):
            found = re.search(pattern, (DAEMON / file).read_text(encoding="utf-8"))
            if not found:
                problems.append(f"{file}: nothing like {pattern}: has the limit of {name} moved?")
                continue
            number = int(found[1].replace("'", ""))
            if name in rows and (len(rows[name]) <= place or rows[name][place] != number):
                problems.append(f"{page.name}: limit of {name} is {number}, by {file}")
    return report(problems)


if __name__ == "__main__":
    sys.exit(main())
