#!/bin/sh
# An OpenAI-compatible server whose requests ingerod knows.  usage: openai_server.sh MODEL [ARGUMENTS OF vllm serve...]
# With a salt of your own, request ids leave the server only as hashes: INGERO_HASH_SALT=... openai_server.sh MODEL
set -eu
[ $# -gt 0 ] || { echo "usage: $0 MODEL [ARGUMENTS OF vllm serve...]" >&2; exit 2; }

# The plug-in is found by its entry point as soon as the package is installed beside vLLM.
python3 - <<'END'
from importlib.metadata import entry_points
import sys

names = [point.name for point in entry_points(group="vllm.stat_logger_plugins")]
if "ingero" not in names:
    sys.exit("the package ingero is not installed beside vLLM: pip install the folder above this one")
END

[ -S "${INGERO_SPANS_SOCKET:-/run/ingero/spans.sock}" ] || echo "note: ingerod does not run; requests are not recorded" >&2
exec vllm serve "$@"
