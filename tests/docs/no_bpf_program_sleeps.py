"""No BPF program may sleep: one that does holds up whoever detaches it, and a record that it has reserved everybody's."""

import re
import sys

from tracked import report, text_of, tracked

# A section whose name says so, and helpers that only such programs may call.
SLEEPS = re.compile(r'SEC\("[\w.]*\.s[/"]|\bbpf_(?:copy_from_user(?:_\w+)?|ima_\w+|find_vma_sleepable)\s*\(|BPF_F_SLEEPABLE')


def main() -> int:
    sources = tracked("bpf/*.c", "bpf/*.h")
    return report([f"{file}: {found.group()}" for file in sources for found in SLEEPS.finditer(text_of(file))]
                  if sources else ["no BPF source was found"])


sys.exit(main())
