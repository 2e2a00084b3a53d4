#!/usr/bin/env bash
# The Python package as pip makes and installs it, without a network: its wheel, its modules, and what vLLM looks for.
# usage: package_test.sh FOLDER_OF_THE_PACKAGE
set -euo pipefail
for module in pip setuptools wheel venv; do
    if ! /usr/bin/python3 -c "import $module" 2>/dev/null; then
        echo "SKIPPED: Python's module $module is missing"
        exit 77
    fi
done
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
export PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1

cp -r "$1" "$directory/source"
/usr/bin/python3 -m pip wheel --quiet --no-index --no-build-isolation --no-deps --wheel-dir "$directory" "$directory/source"
wheel=("$directory"/ingero-*-py3-none-any.whl)
[[ -e "${wheel[0]}" ]] || { echo "no wheel that any Python takes: $(ls "$directory")"; exit 1; }

# With nothing but the wheel, as docs/packages.md says.
/usr/bin/python3 -m venv "$directory/venv"
"$directory/venv/bin/python" -m pip install --quiet --no-index --find-links "$directory" ingero
cd "$directory"
"$directory/venv/bin/python" - <<'END'
import importlib.metadata
import pathlib
import sys
import types

# As vLLM has it: the plug-in derives from its base class.
for name in ("vllm", "vllm.v1", "vllm.v1.metrics", "vllm.v1.metrics.loggers"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["vllm.v1.metrics.loggers"].StatLoggerBase = type("StatLoggerBase", (), {})

points = importlib.metadata.entry_points(group="vllm.stat_logger_plugins")
assert [point.name for point in points] == ["ingero"], points
logger = next(iter(points)).load()
assert issubclass(logger, sys.modules["vllm.v1.metrics.loggers"].StatLoggerBase), logger.__mro__
import ingero

assert pathlib.Path(ingero.__file__).is_relative_to(sys.prefix), ingero.__file__
for module in ("spans", "writer", "messagepack", "lightning", "ray", "vllm"):
    importlib.import_module(f"ingero.{module}")
metadata = importlib.metadata.metadata("ingero")
assert set(metadata.get_all("Provides-Extra")) == {"fast", "vllm", "lightning", "ray"}, metadata.get_all("Provides-Extra")
print(f"ingero {metadata['Version']}: installed, and found by vLLM's entry point")
END
