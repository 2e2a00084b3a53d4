#!/usr/bin/python3 -B
"""Scores what a tool finds in the recorded scenarios against what was injected into them.

    score.py --ingeroctl PATH [--corpus DIR] [--require-all]
    score.py --findings DIR [--corpus DIR] [--require-all]

Recordings of another folder than the tests' own are unpacked with zstd.

With --findings any tool can be scored: DIR has a NAME.json a scenario, a list of findings [{"kind", "severity",
"culprits": [{"name"}]}], the most important first, or an object with such a list as "findings". A scenario counts as
found where all its kinds are named, each with the right first culprit; other findings above low severity are false."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

OWN = pathlib.Path(__file__).resolve().parent / "corpus"


def findings_of(arguments: argparse.Namespace, name: str) -> list[dict]:
    if arguments.findings:
        answer = json.loads((arguments.findings / f"{name}.json").read_text(encoding="utf-8"))
    else:
        with tempfile.TemporaryDirectory() as store:
            place = f"demo:{name}"
            if arguments.corpus != OWN:
                subprocess.run(["zstd", "-q", "-d", arguments.corpus / f"{name}.zst", "-o", f"{store}/data.mdb"], check=True)
                place = store
            asked = subprocess.run([arguments.ingeroctl, "--json", "--db", place, "explain"], capture_output=True,
                                   text=True, check=False, timeout=120)
        if asked.returncode != 0:
            sys.exit(f"score: {name}: {asked.stderr}")
        answer = json.loads(asked.stdout)
    return answer["findings"] if isinstance(answer, dict) else answer


def is_named(findings: list[dict], expected: dict) -> bool:
    return any(one["kind"] == expected["kind"] and one["culprits"] and
               expected["culprit"] in one["culprits"][0]["name"] for one in findings)


def main() -> None:
    parser = argparse.ArgumentParser(description="Scores findings against what was injected.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--ingeroctl", type=pathlib.Path)
    source.add_argument("--findings", type=pathlib.Path)
    parser.add_argument("--corpus", type=pathlib.Path, default=OWN)
    parser.add_argument("--require-all", action="store_true")
    arguments = parser.parse_args()
    scenarios = json.loads((arguments.corpus / "truth.json").read_text(encoding="utf-8"))["scenarios"]
    wanted = named = false = 0
    for scenario in scenarios:
        findings = findings_of(arguments, scenario["name"])
        kinds = {one["kind"] for one in scenario["expected"]}
        missed = [one["kind"] for one in scenario["expected"] if not is_named(findings, one)]
        others = [one["kind"] for one in findings if one["kind"] not in kinds and one["severity"] != "low"]
        wanted += len(scenario["expected"])
        named += len(scenario["expected"]) - len(missed)
        false += len(others)
        said = "found" if not missed and not others else ""
        said += f"missed: {', '.join(missed)} " if missed else ""
        said += f"false: {', '.join(others)}" if others else ""
        print(f"{scenario['name']:18} {said}")
    precision = named / (named + false) if named + false else 1.0
    print(f"recall {named}/{wanted}, precision {precision:.2f}, {false} false findings")
    if arguments.require_all and (named != wanted or false):
        sys.exit(1)


main()
