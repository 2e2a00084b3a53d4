"""What belongs to other processes, their files of /proc and what their paths name, ingerod asks in one room alone:
daemon/ingerod/discovery, where nobody can hold it up. Outside of it every call that takes a path is in the list below,
with the reason why no other process decides what it leads to, or when it returns."""

import re
import sys

from tracked import ROOT, report, text_of, tracked

DAEMON = ROOT / "daemon" / "ingerod"
ROOM = DAEMON / "discovery"

# What of /proc is the daemon's own or the host's: nobody else's process.
OWN = re.compile(r"/proc/(self|sys|pressure)/|/proc/stat$")
PROC = re.compile(r"/proc(?=/|$)")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.DOTALL)

PATH_CALLS = re.compile(
    r"""(?<![\w.>])(?<!\w::)(?:::)?(?:std::)?
    (?:(?:open|open64|openat|openat2|creat|fopen|freopen|opendir|stat|lstat|stat64|fstatat|statx|statfs|statvfs|access
         |faccessat|readlink|readlinkat|realpath|chdir|truncate|getxattr|inotify_add_watch|name_to_handle_at
         |process_vm_readv|process_vm_writev|glob|scandir|nftw)\s*\(
      |syscall\s*\(\s*(?:SYS|__NR)_(?:open|openat|openat2|stat|statx|newfstatat|readlink|readlinkat|access|faccessat
         |faccessat2|process_vm_readv|pidfd_getfd)\b
      |(?:i|o)?fstream\s+\w+\s*[({]|(?:i|o)?fstream\s*[({]
      |filesystem::(?:exists|is_\w+|status|symlink_status|canonical|weakly_canonical|read_symlink|directory_iterator
         |recursive_directory_iterator|file_size|last_write_time|hard_link_count|equivalent|space|copy\w*|rename|remove
         |remove_all|create_\w+|permissions|resize_file|current_path)\b(?:\s+\w+)?\s*[({])""",
    re.VERBOSE)
# Before the name of a function that is declared, as in "Result<void> open(bool);", stands a type.
NO_TYPES = {"return", "co_return", "case", "else", "throw", "new", "not", "and", "or"}

OWN_FILE = "a file of the installation's or the administrator's"
# (file, beginning of the call or text): why.
ALLOWED = {
    ("check/host_checks.cpp", "std::ifstream file(path)"): "fixed names in the kernel's own folders",
    ("probes/kernel/kernel_features.cpp", "std::ifstream(type_file)"): "a fixed name in the kernel's own folder",
    ("check/host_checks.cpp", "std::filesystem::exists(at"): OWN_FILE,
    ("check/host_checks.cpp", "faccessat(AT_FDCWD, at.c_str()"): OWN_FILE,
    ("check/library_check.cpp", "glob(pattern"): "fixed folders of libraries",
    ("check/library_check.cpp", "access(program"): OWN_FILE,
    ("check/library_check.cpp", "std::filesystem::canonical(path"): "what the system's linker knows, in a check alone",
    ("check/library_check.cpp", "open(file.path.c_str()"): "what the system's linker knows, in a check alone",
    ("check/probe_check.cpp", "open(program.c_str()"): OWN_FILE,
    ("check/host_checks.cpp", "statfs(at.c_str()"): OWN_FILE,
    ("config/config.cpp", "std::filesystem::directory_iterator(path"): OWN_FILE,
    ("config/config.cpp", "std::ifstream stream(file)"): OWN_FILE,
    ("config/config.cpp", "std::filesystem::exists(file"): OWN_FILE,
    ("config/config.cpp", "std::filesystem::is_directory(file"): OWN_FILE,
    ("live/host_state.cpp", "std::ifstream file(path"): "the kernel's counters, of the host and of control groups",
    ("live/host_state.h", "/proc"): "where ProcFs looks",
    ("targets/libraries.cpp", "inotify_add_watch(watch_.get(), path.c_str()"): "an open file, by its descriptor",
    ("targets/libraries.cpp", "statx(fd, \"\""): "an open file's mount, by its descriptor",
    ("main.cpp", "std::filesystem::exists(options.config)"): "the daemon's own configuration",
    ("workers/file_owner.h", "statx(fd, \"\""): "an open file's owner, by its descriptor",
    ("targets/libraries.cpp", "statx(AT_FDCWD, path"): "two fixed paths: the host's root and its /usr",
    ("targets/libraries.cpp", "/proc/1/root"): "the host's first process, which no user has",
    ("targets/libraries.cpp", "/proc/1/root/usr"): "the host's first process, which no user has",
    ("control/listening_socket.cpp", "lstat(path.c_str()"): OWN_FILE,
    ("main.cpp", "stat(path.c_str()"): OWN_FILE,
    ("main.cpp", "access(path.c_str()"): OWN_FILE,
    ("manager.h", "/proc"): "where ProcFs looks",
    ("control/peer.cpp", "fstatat(directory, path"): "BoundedCalls makes the call",
    ("control/peer.cpp", "openat(process_directory"): "BoundedCalls makes the call",
    ("control/peer.cpp", "open((\"/proc/\" + std::to_string(pid))"): "BoundedCalls makes the call",
    ("control/peer.cpp", "/proc/"): "BoundedCalls makes the call",
    ("probes/attach/hot_sites.cpp", 'std::ifstream file("/proc/"'): "stat waits for no process, and nobody for this thread",
    ("probes/attach/hot_sites.cpp", "/proc/"): "stat waits for no process, and nobody for this thread",
    ("spans/span_hash.cpp", "open(fresh.c_str()"): OWN_FILE,
    ("spans/span_hash.cpp", "::open(key_file.c_str()"): OWN_FILE,
    ("stacks/frame_names.cpp", "open(path.c_str()"): "below /usr/lib/debug, which is root's",
    ("limits/uid_owners.cpp", "std::ifstream file(subordinate_uids"): OWN_FILE,
    ("workers/worker_process.cpp", "open(path.c_str()"): "the size of the daemon's own child, which nothing holds up",
    ("workers/worker_process.cpp", "/proc/"): "the size of the daemon's own child, which nothing holds up",
}


def without_comments(text: str) -> str:
    """The same with blanks for comments, so that places stay."""

    def blank(match: re.Match) -> str:
        found = match.group()
        return found if found.startswith('"') else re.sub(r"[^\n]", " ", found)

    return COMMENT_OR_STRING.sub(blank, text)


def calls_with_paths(code: str) -> list[tuple[int, str]]:
    """Where they begin, and the statement from there on in one line; calls on a fixed path of our own are none."""
    found = []
    for match in PATH_CALLS.finditer(code):
        before = re.search(r"(\w+|>)\s+$", code[max(0, match.start() - 80):match.start()])
        if before and before.group(1) not in NO_TYPES and not match.group().startswith(("std::", "::")):
            continue
        rest = " ".join(code[match.start():match.start() + 200].split())
        argument = STRING.search(rest)
        fixed = argument and re.fullmatch(r"[\w:\s]*[({]", rest[:argument.start()])
        if fixed and re.match(r"\s*[,)}]", rest[argument.end():]) and (
                OWN.match(argument.group(1)) or not PROC.match(argument.group(1))):
            continue
        found.append((match.start(), rest))
    return found


def process_texts(code: str) -> list[tuple[int, str]]:
    return [(match.start(), match.group(1)) for match in STRING.finditer(code)
            if PROC.search(match.group(1)) and not OWN.search(match.group(1))
            and not match.group(1).endswith(".h")]


def main() -> int:
    problems = []
    used = set()
    for path in tracked("*.cpp", "*.h"):
        if not path.is_relative_to(DAEMON) or path.is_relative_to(ROOM):
            continue
        code = without_comments(text_of(path) or "")
        name = str(path.relative_to(DAEMON))
        for place, what in calls_with_paths(code) + process_texts(code):
            is_call = "(" in what or "{" in what
            reasons = {key for key in ALLOWED if key[0] == name
                       and (what.startswith(key[1]) if is_call else what == key[1])}
            used |= reasons
            if not reasons:
                line = code.count("\n", 0, place) + 1
                problems.append(f"daemon/ingerod/{name}:{line}: {what[:60]}: ask by ProcFs, or say here why not")
    problems += [f"{sys.argv[0]}: not needed any more: {name}: {what}" for name, what in sorted(ALLOWED.keys() - used)]
    return report(problems)


if __name__ == "__main__":
    sys.exit(main())
