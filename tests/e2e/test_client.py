"""Tests the command line client against a real daemon."""

import json
import subprocess

import pytest
from conftest import SLUICE, free_port
from waiting import PATIENCE_S


def sluice(demo, *arguments, stdin=None):
    return subprocess.run([SLUICE, *arguments, "--server", demo.grpc], input=stdin,
                          capture_output=True, text=True, timeout=PATIENCE_S)


def test_infer_prints_text(demo):
    run = sluice(demo, "infer", "--text", "In the beginning", "--max-tokens", "30")
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.strip()) > 10
    again = sluice(demo, "infer", "--text", "In the beginning", "--max-tokens", "30")
    assert again.stdout == run.stdout


def test_infer_takes_token_ids_and_prints_json(demo):
    run = sluice(demo, "infer", "--ids", "256,65,110,100", "--json",
                 "--outputs", "output_ids,logprobs")
    answer = json.loads(run.stdout)
    assert set(answer["outputs"]) == {"output_ids", "logprobs"}
    assert len(answer["outputs"]["output_ids"]) == 1


def test_a_file_of_requests_keeps_its_order_and_reports_each_error(demo):
    lines = [{"text": "And"}, {"ids": [256, 66], "max_tokens": 3}, {"text": "x", "top_k": -1}] * 20
    run = sluice(demo, "infer", "--file", "-", "--concurrency", "8",
                 stdin="\n".join(map(json.dumps, lines)))
    assert run.returncode == 1
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    assert [answer["line"] for answer in answers] == list(range(1, len(lines) + 1))
    assert all(("error" in answer) == (answer["line"] % 3 == 0) for answer in answers)
    assert "top_k" in answers[2]["error"]["message"]


def test_models_and_stats_print_tables(demo):
    models = sluice(demo, "models")
    assert models.returncode == 0 and "demo" in models.stdout and "READY" in models.stdout
    stats = sluice(demo, "stats", "--metrics-address", demo.http)
    assert stats.returncode == 0 and "BUCKET FILL" in stats.stdout


@pytest.mark.parametrize("command", [["infer", "--text", "a"], ["health"]])
def test_an_unreachable_server_gives_exit_code_3(command):
    run = subprocess.run([SLUICE, *command, "--server", f"127.0.0.1:{free_port()}"],
                         capture_output=True, text=True, timeout=PATIENCE_S)
    assert run.returncode == 3 and "hint" in run.stderr


def test_explain_at_other_ports_names_the_variable_of_the_admin_address(demo):
    environment = {"SLUICE_SERVER": demo.grpc}
    run = subprocess.run([SLUICE, "explain", "r"], capture_output=True, text=True,
                         timeout=PATIENCE_S, env=environment)
    assert run.returncode == 3
    hint = run.stderr.splitlines()[-1]
    assert hint.startswith("hint: no admin API answers at 127.0.0.1:8003")
    assert "--admin or SLUICE_ADMIN" in hint and "SLUICE_SERVER" not in hint
