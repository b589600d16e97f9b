"""Tests the programs that measure the gateway: loadtest/gateway.py and gateway_hostile.py."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest
from conftest import ROOT, SLUICED
from waiting import PATIENCE_S


def test_honest_callers_are_served_next_to_hostile_ones(tmp_path):
    """A short run; `./test --thorough` runs 200 s."""
    out = tmp_path / "report.json"
    subprocess.run(
        [sys.executable, ROOT / "loadtest" / "gateway_hostile.py", "--sluiced", SLUICED,
         "--seconds", "6", "--rounds", "1", "--per-s", "10", "--out", out],
        check=True, capture_output=True, text=True, timeout=4 * PATIENCE_S)
    report = json.loads(out.read_text())
    assert report["failed"] == 0 and report["calls"] == 60, report
    assert sum(report["attacks"].values()) > 0


DAEMON = """#!PYTHON
import http.server, os, pathlib, socketserver, sys
host, port = sys.argv[sys.argv.index("--server.metrics.address") + 1].split(":")
pathlib.Path(__file__).with_name("pid").write_text(str(os.getpid()))
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
socketserver.TCPServer.allow_reuse_address = True
socketserver.TCPServer((host, int(port)), Ready).serve_forever()
""".replace("PYTHON", sys.executable)


@pytest.mark.parametrize("program", ["gateway", "gateway_hostile"])
def test_daemon_is_ended_if_the_gateway_does_not_start(program, tmp_path):
    daemon = tmp_path / "daemon"
    daemon.write_text(DAEMON)
    daemon.chmod(0o755)
    # The gateway is started by sys.executable.
    main = (f"import sys; sys.path.insert(0, {str(ROOT / 'loadtest')!r}); import {program};"
            f"sys.executable = '/bin/false'; {program}.main()")
    run = subprocess.run([sys.executable, "-c", main, "--sluiced", daemon], text=True,
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    pid = int((tmp_path / "pid").read_text())
    runs = os.path.exists(f"/proc/{pid}")
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    assert run.returncode == 1 and "/bin/false does not start" in run.stderr, run.stderr
    assert not runs
