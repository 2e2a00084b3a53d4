"""scripts/quickstart names the hog that it started, finds none without one, and leaves nothing behind."""
import json
import os
import subprocess
import sys
import tempfile
import time

SKIPPED = 77


def leftovers(directory):
    return sorted(name for name in os.listdir(directory) if "ingero" in name)


def main():
    root, variant = sys.argv[1:]
    if os.geteuid() != 0:
        print("SKIPPED: loading probes into the kernel needs root")
        return SKIPPED
    with tempfile.TemporaryDirectory() as scratch:
        command = [os.path.join(root, "scripts/quickstart"), "--standin", "--json", "--no-install"]
        if variant == "without-hog":
            command.append("--without-hog")
        begin = time.monotonic()
        finished = subprocess.run(command, env=dict(os.environ, TMPDIR=scratch), stdout=subprocess.PIPE,
                                  stdin=subprocess.DEVNULL, text=True, check=False)
        print(finished.stdout)
        print(f"{time.monotonic() - begin:.1f} s")
        assert finished.returncode == 0, f"exit {finished.returncode}"
        assert leftovers(scratch) == [], f"left behind: {leftovers(scratch)}"
    answer = json.loads(finished.stdout.splitlines()[-1])
    assert answer["calls"] > 1000, answer["calls"]
    if variant == "without-hog":
        # Others' work on the CPUs is told as what it is.
        own = [finding for finding in answer["findings"] if finding["kind"] != "cpu-contention"
               or any(culprit["name"] == "cpu-hog" for culprit in finding["culprits"])]
        assert own == [], json.dumps(own, indent=1)
        assert answer["healthy"] is (answer["findings"] == [])
        return 0
    finding = answer["findings"][0]
    assert finding["kind"] == "cpu-contention", finding["kind"]
    assert finding["culprits"][0]["name"] == "cpu-hog", finding["culprits"]
    assert finding["explained_fraction"] >= 0.8, finding["explained_fraction"]
    assert finding["verdict"] == "proven", finding["verdict"]
    return 0


if __name__ == "__main__":
    sys.exit(main())
