"""Tests the usability of `sluice` in a terminal: doctor, completion, width and messages."""

import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
from conftest import DEMO, SLUICE
from infer import infer, text_inputs
from sluice_client import Client
from tritonclient.utils import InferenceServerException


def sluice(*arguments):
    return subprocess.run([SLUICE, *arguments], capture_output=True, text=True)


def test_doctor_finds_no_problem_with_a_fresh_daemon(daemon):
    fresh = daemon()
    result = sluice("doctor", "--server", fresh.grpc, "--metrics-address", fresh.http,
                    "--admin", fresh.admin, "--json")
    assert result.returncode == 0, result.stdout
    findings = json.loads(result.stdout)["findings"]
    assert [each["level"] for each in findings] == ["good"] * len(findings), findings
    assert any("demo version 1" in each["what"] for each in findings)


def test_doctor_reports_unreachable_addresses(demo):
    result = sluice("doctor", "--server", "127.0.0.1:1", "--deadline", "5s")
    assert result.returncode == 3
    assert re.search(r"^BAD +the server at 127.0.0.1:1 does not answer", result.stdout)
    result = sluice("doctor", "--server", demo.grpc, "--metrics-address", "127.0.0.1:1",
                    "--admin", "127.0.0.1:1")
    assert result.returncode == 0
    assert "0 bad, 2 to consider" in result.stdout


def test_doctor_and_stats_refuse_the_metrics_of_another_daemon(demo, daemon):
    other = daemon()
    doctor = sluice("doctor", "--server", demo.grpc, "--metrics-address", other.http, "--admin",
                    demo.admin)
    text = " ".join(doctor.stdout.split())
    assert doctor.returncode == 1
    assert (f"BAD the metrics address {other.http} belongs to another daemon than the server"
            f" {demo.grpc}" in text), text
    stats = sluice("stats", "--server", demo.grpc, "--metrics-address", other.http)
    assert stats.returncode == 0 and "belongs to another daemon" in stats.stderr
    assert "BUCKET FILL" not in stats.stdout


def test_doctor_reads_the_reasons_of_models_from_the_admin_address(daemon, tmp_path):
    shutil.copytree(DEMO, tmp_path / "demo", ignore=shutil.ignore_patterns("training", "*.py"))
    served = daemon("--model-repository", str(tmp_path), models=())
    (tmp_path / "notes").mkdir()

    def doctor():
        run = sluice("doctor", "--server", served.grpc, "--metrics-address", served.http, "--admin",
                     served.admin)
        return run.returncode, " ".join(run.stdout.split())

    status, text = doctor()
    assert status == 0, text
    assert "advice the model repository has a folder that is not a model: notes," in text, text
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("[]")
    assert sluice("load", "broken", "--admin", served.admin).returncode == 1
    status, text = doctor()
    assert status == 1 and "BAD model broken version 1: UNAVAILABLE, the last load failed" in text
    assert "config.json" in text, text
    # Each way to a model's error: a request, and the metadata that rerank reads first.
    for words in (["embed", "a"], ["rerank", "a", "b"]):
        run = sluice(words[0], "--server", served.grpc, "--model", "broken", *words[1:])
        assert run.returncode == 1 and (
            "no model 'broken'; served: demo. The last load of broken version 1 failed; the"
            " daemon's log and `sluice doctor` show the reason\n") in run.stderr, run.stderr


def test_refusals_by_the_server_are_zero_before_the_first(daemon):
    samples = daemon().metrics()
    found = {(dict(labels)["model"], dict(labels)["reason"]): count
             for (name, labels), count in samples.items() if name == "sluice_rejected_total"}
    assert set(found.values()) == {0}
    for model in ("", "demo"):
        assert {(model, "queue_full"), (model, "draining"), (model, "internal")} <= set(found)
        assert (model, "input") not in found, "alerts ignore the reasons that callers cause"


def test_models_shows_the_task_and_what_can_be_requested(demo):
    shown = " ".join(sluice("models", "--server", demo.grpc).stdout.split())
    assert "task generate, with rows of up to 256 tokens" in shown, shown
    for names in ("on request: text_pair_input candidate_ids exclude_ids", " embedding "):
        assert names in shown, shown


def complete(line):
    """Returns the completions that bash offers after `line`."""
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    script = f"""
        source <("{SLUICE}" completion bash)
        COMP_WORDS=({quoted}) COMP_CWORD={len(words) - 1}
        _sluice
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert result.returncode == 0 and not result.stderr, result.stderr
    return result.stdout.split()


def test_bash_completes_commands_and_their_flags():
    assert {"infer", "doctor", "completion", "--server"} <= set(complete("sluice "))
    assert complete("sluice gen") == ["generate"]
    assert complete("sluice infer --max-t") == ["--max-tokens"]
    assert complete("sluice infer --adv") == []
    assert complete("sluice --server a:1 buckets --adv") == ["--advise"]
    assert complete("sluice buckets --serv") == ["--server", "--server-name"]


@pytest.mark.parametrize("shell, check", [("fish", ["fish", "-n"]), ("zsh", ["zsh", "-n"])])
def test_other_shells_have_scripts(shell, check, tmp_path):
    script = sluice("completion", shell).stdout
    assert "complete " in script and "generate" in script and "max-tokens" in script
    if shutil.which(shell):  # These shells may be missing.
        (tmp_path / "script").write_text(script)
        subprocess.run([*check, tmp_path / "script"], check=True)


def test_an_unknown_shell_is_refused():
    result = sluice("completion", "tcsh")
    assert result.returncode == 2 and "one of bash, zsh, fish" in result.stderr


@pytest.mark.parametrize("command", [
    ["models"], ["stats", "--metrics-address", "HTTP"],
    ["doctor", "--metrics-address", "HTTP", "--admin", "ADMIN"], ["buckets"],
    ["buckets", "--advise"], ["explain", "fits"], ["review", "--force"], ["ladder", "show"],
    ["embed", "In the beginning " * 9], ["plan", "--model", "demo"],
], ids=lambda words: " ".join(words[:2])[:20])
def test_output_fits_a_terminal(demo, command):
    sluice("generate", "--server", demo.grpc, "--id", "fits", "--max-tokens", "9", "Once")
    admin = command[0] in ("buckets", "explain", "review", "ladder", "plan")
    addresses = {"HTTP": demo.http, "ADMIN": demo.admin}
    words = [addresses.get(word, word) for word in command]
    result = sluice(*words, *(("--admin", demo.admin) if admin else ("--server", demo.grpc)))
    assert result.returncode == 0, result.stderr
    assert max(len(line) for line in result.stdout.splitlines()) <= 100, result.stdout
    assert "\x1b" not in result.stdout + result.stderr  # no colours if the output is not a terminal


def test_embed_works_with_a_generative_model(demo):
    with Client(demo.grpc) as client:
        (expected,) = client.embed("demo", ["And God said"]).tolist()
    result = sluice("embed", "--server", demo.grpc, "--json", "And God said")
    assert result.returncode == 0, result.stderr
    np.testing.assert_array_equal(np.float32(json.loads(result.stdout)["embedding"]),
                                  np.float32(expected))


def test_unknown_model_error_lists_the_served_models(demo):
    result = sluice("infer", "--server", demo.grpc, "--model", "dmo", "--text", "a")
    assert result.returncode == 1
    assert "no model 'dmo'; served: demo" in result.stderr


def test_unknown_parameter_error_suggests_a_similar_name(demo):
    with pytest.raises(InferenceServerException, match="did you mean max_tokens?"):
        infer(demo.client(), text_inputs("a"), max_token=3)


def test_explain_groups_equal_steps_and_filters_by_model(demo):
    sluice("generate", "--server", demo.grpc, "--id", "long", "--max-tokens", "30", "Once")
    result = sluice("explain", "--admin", demo.admin, "long")
    assert result.returncode == 0
    steps = re.findall(r"runs in (?:step \d+|(\d+) steps)", result.stdout)
    # The steps of a request that runs without others differ only in number, except for the first.
    assert 2 <= len(steps) <= 4 and max(int(each or 1) for each in steps) > 20, result.stdout
    result = sluice("explain", "--admin", demo.admin, "long", "--model", "other")
    assert "no model 'other'; served: demo" in result.stderr
    result = sluice("explain", "--admin", demo.admin, "unknown")
    assert re.search(r"among a model's last \d\d+ finished requests with an id", result.stderr)


def test_scores_of_candidates_are_shown(demo):
    result = sluice("infer", "--server", demo.grpc, "--ids", "1,2,3", "--candidate-ids", "4,5",
                    "--max-tokens", "0")
    assert result.returncode == 0
    assert re.search(r"candidate_scores FP32 \[1, 2\]\n  -?\d+\.\d+ -?\d+\.\d+\n", result.stdout)
    assert "0 tokens" not in result.stderr


def test_duration_without_unit_is_refused():
    result = sluice("infer", "--text", "a", "--timeout", "1")
    assert result.returncode == 2 and "with its unit, such as 500ms" in result.stderr


def test_admin_commands_refuse_the_admin_address_of_another_daemon(demo, daemon):
    other = daemon()

    def run(*command, server, admin):
        environment = os.environ | {"SLUICE_SERVER": server.grpc, "SLUICE_ADMIN": admin.admin}
        return subprocess.run([SLUICE, *command], capture_output=True, text=True, env=environment)

    assert run("buckets", server=demo, admin=demo).returncode == 0
    for command in (["buckets"], ["reload"], ["ladder", "show"], ["unload", "demo"]):
        refused = run(*command, server=demo, admin=other)
        assert refused.returncode == 2 and refused.stdout == ""
        assert refused.stderr == (
            f"admin address: {other.admin}\n"
            f"sluice: the admin address {other.admin} belongs to another daemon than the server "
            f"{demo.grpc}; set --admin or SLUICE_ADMIN to server.admin.address of that daemon\n"
        )
    assert other.ready()
    doctor = run("doctor", "--metrics-address", demo.http, server=demo, admin=other)
    assert doctor.returncode == 1 and "belongs to another daemon" in doctor.stdout
