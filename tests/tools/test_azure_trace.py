"""Tests the conversion of an Azure trace to the format of our programs."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"


def run(text: str, out: Path) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, ROOT / "loadtest" / "azure_trace.py", out],
                          capture_output=True, text=True, input=text)


def test_arrival_times_are_relative_to_the_first(tmp_path):
    out = tmp_path / "trace.csv"
    made = run(HEAD + "2023-11-16 23:59:59.6805900,374,44\r\n"
               "2023-11-17 00:00:03.9951690,396,109\r\n", out)
    assert made.returncode == 0 and "2 requests" in made.stderr
    assert out.read_text() == (
        "arrival_s,input_tokens,output_tokens\n0.000000,374,44\n4.314579,396,109\n")
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("text, why", [
    ("", "the standard input is empty"),
    ("404: Not Found", "begins with '404: Not Found'"),
    (HEAD, "no request"),
    (HEAD + "2023-11-16 23:59:59.6805900,374,44\r\n2023-11-17 00:0", "line 3"),
    (HEAD + "2023-11-16 23:59:59.6805900,374,44\r\n2023-11-17 00:00:03.9951690,396", "line 3"),
])
def test_incomplete_trace_writes_no_file(tmp_path, text, why):
    made = run(text, tmp_path / "trace.csv")
    assert made.returncode == 1 and why in made.stderr and "not written" in made.stderr
    assert not list(tmp_path.iterdir())


def test_existing_trace_is_kept(tmp_path):
    out = tmp_path / "trace.csv"
    out.write_text("as it was")
    assert run("", out).returncode == 1
    assert out.read_text() == "as it was"


def test_missing_folder_is_named(tmp_path):
    made = run(HEAD + "2023-11-16 23:59:59.6805900,374,44\r\n", tmp_path / "no" / "trace.csv")
    assert made.returncode == 1 and "not written" in made.stderr and "Traceback" not in made.stderr
