"""What threads share in core, daemon and ctl is guarded by a Mutex of core/base/mutex.h: Clang then refuses a source
that uses it without the lock. It knows nothing of a std::mutex."""

import re
import sys

from tracked import ROOT, report, text_of, tracked

PLACES = {"core", "daemon", "ctl"}
OWN = ROOT / "core" / "base" / "mutex.h"
UNCHECKED = re.compile(
    r"""\bstd::(?:(?:\w+_)?mutex|lock_guard|unique_lock|scoped_lock|shared_lock|condition_variable(?:_any)?)\b
    |\#include\s*<(?:mutex|shared_mutex|condition_variable)>
    |\bpthread_(?:mutex|rwlock|cond|spin)_\w+""",
    re.VERBOSE)


def main() -> int:
    sources = [path for path in tracked("*.cpp", "*.h") if path.relative_to(ROOT).parts[0] in PLACES and path != OWN]
    if not sources:
        return report(["no source was found"])
    problems = []
    for path in sources:
        for number, line in enumerate((text_of(path) or "").splitlines(), 1):
            if found := UNCHECKED.search(line):
                problems.append(f"{path.relative_to(ROOT)}:{number}: {found.group()}: use Mutex, Lock and Condition of "
                                "core/base/mutex.h, and INGERO_GUARDED_BY on what they guard")
    return report(problems)


if __name__ == "__main__":
    sys.exit(main())
