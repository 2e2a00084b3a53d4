"""A support bundle of a real ingerod holds what it says and no secret of a program, of a request, of the configuration or
of the journal, for root and for somebody else: support_bundle_test.py INGEROCTL INGEROD WORKLOAD SCHEMA VALIDATE."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support")]
from traced_host import TracedHost, skip  # noqa: E402

# Each in a place of its own, all of the same form, so that one word finds them all.
SECRET = "SECRET"
CONFIG = f"""# the password is {SECRET}comment
[node]
name = "node-of-the-test"  # {SECRET}trailing
[capture]
exclude = ["comm:{SECRET}excl"]
overhead_budget = 3
[processes]
cmdline = "full"
environ_allow = ["TOKEN_{SECRET}"]
[store]
max_size = "1GiB"
"""
UNKNOWN = f'[{SECRET}section]\npassword = 12345\n[capture]\nstacks = "{SECRET}value"\n[store]\nmax_age = "30d"\n'
BROKEN = f'password = "{SECRET}\n'
LOSS = "94f6c466f4b34e0a9cc971d4f8a3b8a1"
OPENED = "4891cf7f8bb74a038d6e6af43d73275c"
JOURNAL = [{"MESSAGE_ID": LOSS, "MESSAGE": "lost 12 events", "PRIORITY": "4", "_CMDLINE": f"ingerod --x={SECRET}", "__REALTIME_TIMESTAMP": "1"},
           {"MESSAGE_ID": OPENED, "MESSAGE": f"python {SECRET} is slow", "INGERO_PID": "1", "PRIORITY": "4", "__REALTIME_TIMESTAMP": "2"},
           {"MESSAGE": f"a line with {SECRET}", "PRIORITY": "6", "__REALTIME_TIMESTAMP": "3"},
           {"MESSAGE_ID": f"{SECRET}", "MESSAGE": "no id"}]
PARTS = {"version.json", "check.json", "status.json", "probes.json", "coverage.json", "store.json", "configuration.toml",
         "units.txt", "journal.jsonl", "bpf.jsonl"}


def fake_tools(folder: pathlib.Path) -> list[str]:
    """journalctl and systemctl that say what they are told to; in a mount namespace, so that nobody else has them."""
    lines = folder / "journal"
    lines.write_text("".join(json.dumps(one) + "\n" for one in JOURNAL) + "no JSON\n", encoding="utf-8")
    binds = []
    for name, body in (("journalctl", f"cat {lines}"), ("systemctl", 'echo "Id=ingerod.service"; echo "ActiveState=active"')):
        file = folder / name
        file.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        file.chmod(0o755)
        if not pathlib.Path("/usr/bin", name).exists():
            skip(f"there is no {name}")
        binds.append(f"mount --bind {file} /usr/bin/{name}")
    return ["unshare", "--mount", "/bin/sh", "-c", " && ".join([*binds, 'exec "$@"']), "sh"]


def unpack(bundle: pathlib.Path, place: pathlib.Path) -> dict[str, str]:
    place.mkdir()
    subprocess.run(["zstd", "-q", "-d", bundle, "-o", place / "bundle.tar"], check=True)
    subprocess.run(["tar", "-C", place, "-xf", place / "bundle.tar"], check=True)  # another reader than the one below
    with tarfile.open(place / "bundle.tar") as tar:
        found = {}
        for member in tar.getmembers():
            assert member.isreg() and member.mode == 0o600 and member.name.startswith("ingero-support/"), member.name
            found[member.name.removeprefix("ingero-support/")] = tar.extractfile(member).read().decode()
    for name, content in found.items():
        assert (place / "ingero-support" / name).read_text(encoding="utf-8") == content, name
    return found


def main() -> int:
    ingeroctl, ingerod, workload, schema, validate = sys.argv[1:6]
    for program in ("zstd", "tar", "unshare"):
        if shutil.which(program) is None:
            skip(f"{program} is missing")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        # The path and the name of the traced program are secrets too.
        programs = folder / f"{SECRET}home"
        programs.mkdir()
        program = programs / f"{SECRET}prog"
        shutil.copy(workload, program)
        (programs / "lib").symlink_to(pathlib.Path(workload).parent / "lib")
        with TracedHost(ingeroctl, ingerod, str(program), folder, config=CONFIG) as host:
            secret_argument = f"--token={SECRET}argument"
            process = host.start_workload(
                "--pace", "sleep", "calls", "--count", "100000000", "--rate", "50",
                prefix=("/bin/bash", "-c", f'exec -a "{secret_argument}" "$0" "$@"'),
                env={**host.environment, f"TOKEN_{SECRET}": f"{SECRET}variable"})
            host.wait_for_calls(process.pid)
            said = host.ctl("annotate", "--kind", "request", "--id", f"{SECRET}request", "--label", f"tenant={SECRET}label", "--pid",
                            str(process.pid))
            assert said.returncode == 0, said
            # The daemon has them: what is looked for below is there to be told.
            known = json.dumps(host.ask("processes"))
            assert secret_argument in known and f"{SECRET}prog" in known, known
            assert f"{SECRET}variable" in host.ctl("query", "--csv", "SELECT * FROM processes").stdout + known, known
            assert f"{SECRET}request" in host.ctl("query", "--csv", "SELECT * FROM spans").stdout

            # Not the daemon's own files: with these its check would fail.
            (folder / "bundle.conf").write_text(CONFIG, encoding="utf-8")
            (folder / "bundle.conf.d").mkdir()
            (folder / "bundle.conf.d" / "10-unknown.conf").write_text(UNKNOWN, encoding="utf-8")
            (folder / "bundle.conf.d" / "20-broken.conf").write_text(BROKEN, encoding="utf-8")
            fake = fake_tools(folder)

            def ask(*arguments: str, user: int = 0) -> subprocess.CompletedProcess:
                as_user = [] if user == 0 else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
                return subprocess.run([*fake, *as_user, ingeroctl, "support-bundle", "--config", folder / "bundle.conf", *arguments],
                                      capture_output=True, text=True, check=False, timeout=120, env=host.environment, cwd=folder,
                                      stdin=subprocess.DEVNULL)

            listed = ask("--list")
            assert listed.returncode == 0 and not list(folder.glob("*.zst")), listed
            assert "journal.jsonl" in listed.stdout and "Written" not in listed.stdout, listed.stdout
            theirs = folder / "theirs"
            theirs.mkdir()
            os.chown(theirs, 65534, 65534)
            for user, bundle in ((0, folder / "bundle.tar.zst"), (65534, theirs / "bundle.tar.zst")):
                made = ask("--output", str(bundle), user=user)
                assert made.returncode == 0 and f"Written: {bundle}" in made.stdout, made
                assert bundle.stat().st_mode & 0o777 == 0o600, oct(bundle.stat().st_mode)
                found = unpack(bundle, folder / f"unpacked-{user}")
                for part, content in {**found, "standard output": made.stdout + made.stderr}.items():
                    assert SECRET not in content, f"{part} of user {user}: {content[max(0, content.index(SECRET) - 200):][:400]}"
                    assert "12345" not in content or part != "configuration.toml", content
                wanted = PARTS | {"manifest.json"} if user == 0 else PARTS - {"bpf.jsonl"} | {"manifest.json"}
                assert set(found) == wanted, (set(found) ^ wanted, made.stdout)
                manifest = {one["name"]: one for one in json.loads(found["manifest.json"])}
                assert {one: entry["bytes"] for one, entry in manifest.items() if entry["bytes"] is not None} == {
                    one: len(content.encode()) for one, content in found.items() if one != "manifest.json"}, manifest
                if user != 0:
                    assert "bpf.jsonl" in made.stdout and manifest["bpf.jsonl"]["missing"], made.stdout
                    continue
                # It is worth sending.
                assert "overhead_budget = 3" in found["configuration.toml"], found["configuration.toml"]
                assert 'max_size = "1GiB"' in found["configuration.toml"] and 'max_age = "30d"' in found["configuration.toml"]
                assert "at line 1" in found["configuration.toml"], found["configuration.toml"]
                assert [json.loads(line).get("message") for line in found["journal.jsonl"].splitlines()] == ["lost 12 events", None]
                assert json.loads(found["status.json"])["state"] == "tracing", found["status.json"]
                assert json.loads(found["version.json"])["kernel"]["release"] == os.uname().release
                assert len(json.loads(found["check.json"])["checks"]) > 10
                assert any(json.loads(line)["runs"] is not None for line in found["bpf.jsonl"].splitlines()), found["bpf.jsonl"]
            again = ask("--output", str(folder / "bundle.tar.zst"))
            assert again.returncode == 1 and "cannot create" in again.stderr, again
            as_json = ask("--json", "--list")
            checked = subprocess.run([sys.executable, validate, schema, "-"], input=as_json.stdout, capture_output=True, text=True,
                                     check=False)
            assert checked.returncode in (0, 77), checked.stderr
        # Without a daemon it tells what there is.
        alone = host.ctl("support-bundle", "--list", "--config", "/nonexistent")
        assert alone.returncode == 0 and "missing: status.json" in alone.stdout, alone
    return 0


if __name__ == "__main__":
    sys.exit(main())
