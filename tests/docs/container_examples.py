"""The container examples ask for what the unit has, and what running as root in a container adds; nothing more.

container_examples.py ROOT"""

import pathlib
import re
import shutil
import subprocess
import sys

import yaml

SKIPPED = 77
OF_WORKERS = {"SETUID", "SETGID", "KILL"}


def main():
    root = pathlib.Path(sys.argv[1])
    folder = root / "docs/examples/container"
    if not shutil.which("yamllint"):
        print("SKIPPED: yamllint is missing: scripts/install-dependencies test")
        return SKIPPED
    rules = "{extends: default, rules: {line-length: {max: 130}}}"
    lint = subprocess.run(["yamllint", "--strict", "-d", rules, folder / "daemonset.yaml"], capture_output=True, text=True,
                          check=False)
    assert lint.returncode == 0, lint.stdout

    pod = yaml.safe_load((folder / "daemonset.yaml").read_text(encoding="utf-8"))["spec"]["template"]["spec"]
    [container] = pod["containers"]
    rights = container["securityContext"]
    unit = (root / "systemd/ingerod.service").read_text(encoding="utf-8")
    of_unit = {name.removeprefix("CAP_") for name in re.search(r"^CapabilityBoundingSet=(.*)$", unit, re.M).group(1).split()}
    assert set(rights["capabilities"]["add"]) == of_unit | OF_WORKERS, rights
    assert rights["capabilities"]["drop"] == ["ALL"]
    assert rights["allowPrivilegeEscalation"] is False and rights["readOnlyRootFilesystem"] is True
    assert rights["seccompProfile"] == {"type": "RuntimeDefault"} and not rights.get("privileged")
    assert not {"hostNetwork", "hostIPC"} & pod.keys() and pod["automountServiceAccountToken"] is False
    assert {volume["hostPath"]["path"] for volume in pod["volumes"]} == {"/var/lib/ingero"}
    assert container["resources"]["limits"]["memory"] == re.search(r"^MemoryMax=(\d+M)$", unit, re.M).group(1) + "i"

    text = (folder / "Containerfile").read_text(encoding="utf-8")
    lines = [line for line in re.sub(r"\\\n\s*", "", text).splitlines() if line and not line.startswith("#")]
    assert [line.split()[0] for line in lines] == ["FROM", "COPY", "RUN", "ENTRYPOINT"], lines
    assert "--no-install-recommends" in lines[2] and "rm -rf" in lines[2] and "/var/lib/apt/lists" in lines[2], lines[2]
    assert not re.search(r"https?://", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
