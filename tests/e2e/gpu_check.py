"""Runs loadtest/gpu_check.sh and reads its output files."""

import json
import os
import subprocess

from conftest import ROOT
from waiting import PATIENCE_S


def check(*arguments, timeout=PATIENCE_S, environment=None, script=None):
    return subprocess.run(
        [script or ROOT / "loadtest" / "gpu_check.sh", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **(environment or {})},
    )


def records(out):
    return [json.loads(line) for line in (out / "cases.jsonl").read_text().splitlines()]


def outcomes(out, part=None):
    """Returns the outcomes of the cases of `part`, or the outcomes of all parts."""
    if part is None:
        return {each["part"]: each["outcome"] for each in records(out)
                if "part" in each and "case" not in each}
    return {each["case"]: each["outcome"] for each in records(out)
            if each.get("part") == part and "case" in each}
