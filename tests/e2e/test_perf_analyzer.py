"""Tests that perf_analyzer can measure the daemon."""

import csv
import json
import subprocess
import sys

from conftest import ROOT
from waiting import PATIENCE_S

PERF_ANALYZER = ROOT / "build" / "venv" / "bin" / "perf_analyzer"


def test_perf_analyzer_reports_throughput(demo, tmp_path):
    data = tmp_path / "data.json"
    rows = [[256, *text] for text in (b"And God said, ", b"Amen", b"The children of Israel")]
    data.write_text(json.dumps(
        {"data": [{"input_ids": {"content": ids, "shape": [len(ids)]}} for ids in rows]}))
    report = tmp_path / "report.csv"
    run = subprocess.run(
        [PERF_ANALYZER, "-m", "demo", "-i", "grpc", "-u", demo.grpc, "--input-data", data,
         "--concurrency-range", "4", "--measurement-mode", "count_windows",
         "--measurement-request-count", "200", "--stability-percentage", "90",
         "-f", report],
        capture_output=True, text=True, timeout=4 * PATIENCE_S)
    sys.stdout.write(run.stdout + run.stderr)
    assert run.returncode == 0
    (row,) = csv.DictReader(report.open())
    assert float(row["Inferences/Second"]) > 0
    assert float(row["Server Compute Infer"]) > 0 and float(row["Server Queue"]) >= 0
