"""Tests how a trace of Azure's data set becomes one that our programs read."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_arrivals_count_from_the_first_one():
    made = subprocess.run(
        [sys.executable, ROOT / "loadtest" / "azure_trace.py"], capture_output=True, text=True,
        check=True, input="TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        "2023-11-16 23:59:59.6805900,374,44\r\n2023-11-17 00:00:03.9951690,396,109\r\n").stdout
    assert made == "arrival_s,input_tokens,output_tokens\n0.000000,374,44\n4.314579,396,109\n"


def test_a_trace_that_was_not_fetched_is_an_error():
    made = subprocess.run([sys.executable, ROOT / "loadtest" / "azure_trace.py"],
                          capture_output=True, text=True, input="")
    assert made.returncode == 1 and "no rows" in made.stderr
