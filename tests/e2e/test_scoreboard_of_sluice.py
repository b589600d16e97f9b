"""Tests the invariance scoreboard with only the daemon and a small decoder."""

import json
import subprocess
import sys

import pytest
from conftest import ROOT, SLUICED
from instruction_sets import has
from waiting import PATIENCE_S

sys.path.append(str(ROOT / "loadtest" / "peers"))

import checkpoint  # noqa: E402

# The scoreboard's requests need this vocabulary.
SMALL = checkpoint.Shape(vocab=8192, hidden=32, intermediate=48, layers=2, heads=2, kv_heads=1,
                         positions=256)


@pytest.fixture
def scoreboard(tmp_path):
    checkpoint.write(tmp_path / "models" / "decoder", SMALL, seed=3)

    def run(*options):
        ended = subprocess.run(
            [sys.executable, ROOT / "loadtest" / "invariance" / "scoreboard.py", "--python",
             sys.executable, "--sluiced", SLUICED, "--models", tmp_path / "models", "--tasks",
             "score", "text", "--companies", "3", "--out", tmp_path / "made.json", "--table",
             tmp_path / "made.md", *options],
            capture_output=True, text=True, timeout=4 * PATIENCE_S)
        sys.stdout.write(ended.stdout + ended.stderr)
        return ended

    return run


def test_the_daemon_gives_each_request_one_answer(scoreboard, tmp_path):
    assert scoreboard("--only", "sluice", "tei", "--count", "40").returncode == 0
    tasks = json.loads((tmp_path / "made.json").read_text())["tasks"]
    without = set() if has("AVX-512 BF16") else {"sluice bf16"}
    for task in ("score", "text"):
        made = {"sluice f32", "sluice bf16", "sluice int8"} - without
        assert set(tasks[task]["rows"]) == made, tasks
        assert set(tasks[task]["left_out"]) == without
        for reason in tasks[task]["left_out"].values():
            assert "'bf16' needs instructions that this machine lacks" in reason
        for name, row in tasks[task]["rows"].items():
            assert (row["requests"], row["companies"]) == (40, 3)
            assert row["most_patterns"] == 1, name
            assert row["rows_a_step"] > 1, "no step had several requests"
        assert list(tasks[task]["does_not"]) == ["tei f32"]
    table = (tmp_path / "made.md").read_text()
    assert "| sluice f32 | 1 | 1 | 0 | 0 | 0 |" in table and "| tei f32 | does not do this" in table


def test_resumed_run_skips_finished_parts(scoreboard, tmp_path):
    first = scoreboard("--only", "sluice f32", "--count", "10")
    assert first.returncode == 0 and "[2/2]" in first.stdout
    before = json.loads((tmp_path / "made.json").read_text())["tasks"]
    second = scoreboard("--only", "sluice f32", "sluice int8", "--count", "10", "--resume")
    assert second.returncode == 0 and "[2/2]" in second.stdout
    assert "sluice f32:" not in second.stdout
    after = json.loads((tmp_path / "made.json").read_text())["tasks"]
    assert after["text"]["rows"]["sluice f32"] == before["text"]["rows"]["sluice f32"]
    assert set(after["text"]["rows"]) == {"sluice f32", "sluice int8"}
    other = scoreboard("--only", "sluice f32", "--count", "11", "--resume")
    assert other.returncode == 1 and "has count 10, not 11" in other.stderr
