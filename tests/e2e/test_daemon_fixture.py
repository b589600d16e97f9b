"""Tests that the fixtures check how daemons end. A script takes the place of sluiced."""

import os
import subprocess
import sys

import pytest
from conftest import ROOT
from waiting import PATIENCE_S

# It prints its last words and ends with the status END at SIGTERM, or once it is asked for /crash.
SLUICED = f"""#!{sys.executable}
import http.server, os, signal, sys
def end(*_):
    os.write(1, b"the last words")
    os._exit(int(os.environ["END"]))
signal.signal(signal.SIGTERM, end)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/crash":
            end()
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
host, port = sys.argv[sys.argv.index("--server.metrics.address") + 1].split(":")
http.server.HTTPServer((host, int(port)), Handler).serve_forever()
"""
STARTS = "def test_it(daemon): daemon()"
CRASHES = """
def test_it(daemon):
    server = daemon()
    assert not server.healthy("/crash")
    server.process.wait()
"""
STARTS_TWO = "def test_it(daemon): daemon(), daemon()"
EXPECTS_1 = "def test_it(daemon): daemon().stop(status=1)"
EXPECTS_0 = "def test_it(daemon): daemon().stop()"
SHARED = "def test_it(demo): pass"


@pytest.mark.parametrize("test, end, outcome", [
    pytest.param(STARTS, 0, "1 passed", id="status 0"),
    pytest.param(STARTS, 1, "1 passed, 1 error", id="status 1 at SIGTERM"),
    pytest.param(STARTS_TWO, 1, "1 passed, 1 error", id="two daemons"),
    pytest.param(CRASHES, 1, "1 passed, 1 error", id="status 1 before SIGTERM"),
    pytest.param(CRASHES, 0, "1 passed", id="status 0 before SIGTERM"),
    pytest.param(EXPECTS_1, 1, "1 passed", id="the test expects status 1"),
    pytest.param(EXPECTS_0, 1, "1 failed", id="the test stops the daemon"),
    pytest.param(SHARED, 1, "1 passed, 1 error", id="the shared daemon"),
])
def test_a_daemon_must_end_with_the_expected_status(tmp_path, test, end, outcome):
    sluiced = tmp_path / "server" / "sluiced"
    sluiced.parent.mkdir()
    sluiced.write_text(SLUICED)
    sluiced.chmod(0o755)
    (tmp_path / "test_it.py").write_text(test)
    folders = ROOT / "tests" / "e2e", ROOT / "tests" / "support"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "conftest", "test_it.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders)),
             "SLUICE_BUILD_DIR": str(tmp_path), "END": str(end)})
    assert f"= {outcome} in " in run.stdout, run.stdout + run.stderr
    assert (run.returncode == 0) == (outcome == "1 passed")
    if run.returncode:
        assert "exit status 1, expected 0; the last words" in run.stdout
