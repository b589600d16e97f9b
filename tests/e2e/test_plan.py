"""Tests `sluice plan` for served models, including profiles under load."""

import json
import shutil
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
    theirs = described("--model", "demo", "--admin", served.admin, *step)
    ours = described(str(ROOT / "models" / "demo"), "--variant", "split:2", *step)
    assert theirs.pop("model") == "demo" and ours.pop("model") == str(ROOT / "models" / "demo")
    assert theirs == ours
    assert theirs["attention"][0]["chosen"] == "one_pass", "256 positions are one segment"
    assert "split:2 reads this step's keys in one pass" in theirs["attention"][0]["reason"]


def test_a_plan_names_the_profile_that_the_daemon_serves(daemon):
    server = daemon("--cpu.profile", "auto")
    listed = subprocess.run([SLUICE, "models", "--server", server.admin, "--json"],
                            capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    profile = json.loads(listed.stdout)["models"][0]["metadata"]["properties"]["profile"]
    for source in (["--model", "demo", "--admin", server.admin], [str(ROOT / "models" / "demo")]):
        name = described(*source, "--context", "9")["device"]["name"]
        assert name.endswith(f" threads, {profile}"), name


def test_profile_under_load_changes_no_answer(demo):
    inputs = ids_inputs([[256, 73, 110, 32, 116, 104, 101]])
    with demo.client() as client:
        alone = infer(client, inputs, ["output_ids"], max_tokens=40)["output_ids"]
        step = ["--sequences", "8", "--tokens", "16", "--context", "200"]
        with subprocess.Popen(
            [SLUICE, "plan", "--model", "demo", "--admin", demo.admin, "--profile", "--json",
             *step],
            stdout=subprocess.PIPE, text=True,
        ) as profile:
            while profile.poll() is None:
                again = infer(client, inputs, ["output_ids"], max_tokens=40)
                assert (again["output_ids"] == alone).all()
            measured = json.loads(profile.stdout.read())
    assert profile.returncode == 0
    assert all(op["measured_seconds"] >= 0 for op in measured["ops"])
    shares = [op["roofline"]["seconds"] / op["measured_seconds"] for op in measured["ops"]
              if op["measured_seconds"] > 0]
    assert max(shares) <= 1 + 1e-9
    assert sum(op["ops"] * op["kernels"] for op in measured["ops"]) == measured["kernels"]


def test_own_cascade_is_rewritten(tmp_path):
    """The file is the three-pass cascade of FuseMax, as the paper prints it."""
    file = tmp_path / "attention.txt"
    file.write_text(
        "QK_{m,p} = Q_{e,p} × K_{e,m}\n"
        "GM_p = QK_{m,p} :: ⋁_m max(∪)\n"
        "SN_{m,p} = e^{QK_{m,p} − GM_p}\n"
        "SD_p = SN_{m,p}\n"
        "A_{m,p} = SN_{m,p} / SD_p\n"
        "AV_{f,p} = A_{m,p} × V_{f,m}\n")
    run = subprocess.run(
        [SLUICE, "einsum", "--derive", "--file", file, "--sizes", "m=4096,p=1,e=64,f=64",
         "--device", ROOT / "docs" / "processor.json", "--json"],
        capture_output=True, text=True, timeout=PATIENCE_S)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["given"]["analysis"]["passes"] == 3
    assert found["cheapest"]["analysis"]["passes"] < 3
    assert found["cheapest"]["estimated_seconds"] < found["given"]["estimated_seconds"]
    # The result can be analysed again.
    again = subprocess.run(
        [SLUICE, "einsum", "--file", "-", "--sizes", "m=4096,p=1,e=64,f=64", "--device",
         ROOT / "docs" / "processor.json", "--json"],
        input=found["cheapest"]["cascade"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert json.loads(again.stdout)["cascade"] == found["cheapest"]["cascade"], again.stderr


def test_errors_name_the_model_or_the_size(demo):
    absent = plan("--model", "absent", "--admin", demo.admin)
    assert absent.returncode != 0 and "absent" in absent.stderr
    long = plan("--model", "demo", "--admin", demo.admin, "--context", "257")
    assert long.returncode != 0 and "context is 257, must be in [1, 256]" in long.stderr
    wide = plan("--model", "demo", "--admin", demo.admin, "--sequences", "65536", "--context",
                "256", "--tokens", "200", "--profile")
    assert wide.returncode != 0
    assert "profile" in wide.stderr


def test_a_client_without_the_program_of_the_analyses_says_how_to_get_it(demo, tmp_path):
    alone = shutil.copy(SLUICE, tmp_path)
    run = subprocess.run([alone, "plan", "models/demo"], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 2 and not run.stdout
    assert f"{tmp_path}/sluice-analysis, which cannot be started: No such file" in run.stderr
    assert "--target sluice-analysis" in run.stderr
    health = subprocess.run([alone, "health", "--server", demo.grpc], capture_output=True)
    assert health.returncode == 0


def test_the_program_of_the_analyses_runs_every_command(demo):
    program = SLUICE.with_name("sluice-analysis")
    run = subprocess.run([program, "health", "--server", demo.grpc], capture_output=True)
    assert run.returncode == 0 and run.stdout == b"SERVING\n"
