"""Tests that AIPerf replays a trace of the load generator against the gateway.

Runs where AIPerf is installed: loadtest/README.md says how.
"""

import json
import subprocess

import pytest

from conftest import BUILD, ROOT
from gateway_fixtures import gateway, page, template
from waiting import PATIENCE_S

AIPERF = ROOT / "build" / "peers" / "venvs" / "aiperf" / "bin" / "aiperf"
CALLS = 12


@pytest.mark.skipif(not AIPERF.exists(), reason="AIPerf is not installed")
def test_aiperf_replays_a_trace(gateway, tmp_path):
    trace = tmp_path / "trace.csv"
    rows = [f"{0.1 * number:.1f},{4 + number % 5},{2 + number % 7}" for number in range(CALLS)]
    trace.write_text("\n".join(["arrival_s,input_tokens,output_tokens", *rows]) + "\n")
    subprocess.run([BUILD / "loadtest" / "load" / "sluice-load", "trace", trace, "--out",
                    tmp_path / "trace.jsonl"], check=True)
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    (tokenizer / "tokenizer.json").write_text(
        (ROOT / "tests" / "goldens" / "tokenizers" / "gpt2.json").read_text())
    (tokenizer / "config.json").write_text('{"model_type": "gpt2"}')
    run = subprocess.run(
        [AIPERF, "profile", "--model", "demo", "--url", f"http://{gateway.address}",
         "--endpoint-type", "completions", "--streaming", "--input-file",
         tmp_path / "trace.jsonl", "--custom-dataset-type", "mooncake_trace", "--fixed-schedule",
         "--tokenizer", tokenizer, "--ui", "none", "--artifact-dir", tmp_path / "artifacts"],
        capture_output=True, text=True, cwd=tmp_path, timeout=4 * PATIENCE_S)
    assert run.returncode == 0, run.stdout + run.stderr
    (report,) = (tmp_path / "artifacts").glob("**/profile_export_aiperf.json")
    figures = json.loads(report.read_text())
    assert figures["request_count"]["avg"] == CALLS
    assert figures["time_to_first_token"]["avg"] > 0
    assert figures["error_summary"] == []
