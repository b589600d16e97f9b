"""Tests `sluice plan` for served models, including profiles under load."""

import json
import subprocess

from conftest import ROOT, SLUICE
from infer import ids_inputs, infer
from waiting import PATIENCE_S


def plan(*arguments):
    return subprocess.run([SLUICE, "plan", *arguments], capture_output=True, text=True,
                          timeout=PATIENCE_S)


def described(*arguments):
    run = plan(*arguments, "--json")
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_a_served_model_has_the_plan_of_its_directory(daemon):
    """Both plans are computed from the same device file."""
    device = ROOT / "docs" / "processor.json"
    served = daemon("--engine.attention.variant", "split:2")
    step = ["--sequences", "3", "--tokens", "2", "--context", "200", "--device", str(device)]
    theirs = described("--model", "demo", "--server", served.admin, *step)
    ours = described(str(ROOT / "models" / "demo"), "--variant", "split:2", *step)
    assert theirs.pop("model") == "demo" and ours.pop("model") == str(ROOT / "models" / "demo")
    assert theirs == ours
    assert theirs["attention"][0]["chosen"] == "one_pass", "256 positions are one segment"
    assert "split:2 reads this step's keys in one pass" in theirs["attention"][0]["reason"]


def test_profile_under_load_changes_no_answer(demo):
    inputs = ids_inputs([[256, 73, 110, 32, 116, 104, 101]])
    with demo.client() as client:
        alone = infer(client, inputs, ["output_ids"], max_tokens=40)["output_ids"]
        step = ["--sequences", "8", "--tokens", "16", "--context", "200"]
        with subprocess.Popen(
            [SLUICE, "plan", "--model", "demo", "--server", demo.admin, "--profile", "--json",
             *step],
            stdout=subprocess.PIPE, text=True,
        ) as profile:
            while profile.poll() is None:
                again = infer(client, inputs, ["output_ids"], max_tokens=40)
                assert (again["output_ids"] == alone).all()
            measured = json.loads(profile.stdout.read())
    assert profile.returncode == 0
    assert all(op["measured_seconds"] >= 0 for op in measured["ops"])
    assert sum(op["ops"] for op in measured["ops"]) == measured["kernels"]["static"]


def test_errors_name_the_model_or_the_size(demo):
    absent = plan("--model", "absent", "--server", demo.admin)
    assert absent.returncode != 0 and "absent" in absent.stderr
    long = plan("--model", "demo", "--server", demo.admin, "--context", "257")
    assert long.returncode != 0 and "context is 257, must be in [1, 256]" in long.stderr
    wide = plan("--model", "demo", "--server", demo.admin, "--sequences", "65536", "--context",
                "256", "--tokens", "200", "--profile")
    assert wide.returncode != 0
    assert "profile" in wide.stderr
