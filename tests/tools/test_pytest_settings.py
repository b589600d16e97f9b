"""Tests the settings in pytest.ini."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEST = """
import threading
def test_it():
    def check():
        assert 1 == 2
    thread = threading.Thread(target=check)
    thread.start()
    thread.join()
"""


def test_a_failed_assertion_in_a_thread_fails_its_test(tmp_path):
    (tmp_path / "test_it.py").write_text(TEST)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", ROOT / "pytest.ini",
         tmp_path / "test_it.py"], capture_output=True, text=True)
    assert run.returncode == 1 and "1 failed" in run.stdout, run.stdout
    assert "assert 1 == 2" in run.stdout
