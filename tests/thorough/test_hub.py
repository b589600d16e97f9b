"""Runs sluice-pull against a small hub, and serves what it downloaded."""

import hashlib
import http.server
import json
import os
import pathlib
import shlex
import subprocess
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from conftest import CLIENT, Daemon  # noqa: E402
from environments import Environment  # noqa: E402
from reranker_models import RERANKERS  # noqa: E402
from sentence_models import lay  # noqa: E402
from sluice_client import Client  # noqa: E402
from waiting import PATIENCE_S  # noqa: E402

TEXTS = ["a b c", "no more", "d"]


def run(program, *arguments):
    """Runs a program with sluice_client and huggingface_hub; returns its output as JSON."""
    hub = Environment("huggingface_hub").packages
    done = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], text=True,
                          capture_output=True, timeout=PATIENCE_S,
                          env={**os.environ, "PYTHONPATH": f"{CLIENT}:{hub}"})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """A hub on loopback with one repository. `requested` has the paths of downloaded files."""

    def __init__(self, repository, folder):
        files = {str(each.relative_to(folder)): each.read_bytes()
                 for each in folder.rglob("*") if each.is_file()}
        requested = self.requested = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self):
                self.do_GET()

            def do_GET(self):
                path = self.path.partition("?")[0]
                info, resolve = f"/api/models/{repository}", f"/{repository}/resolve/{COMMIT}/"
                if path in (info, f"{info}/revision/main", f"{info}/revision/{COMMIT}"):
                    content = json.dumps({"id": repository, "sha": COMMIT, "siblings": [
                        {"rfilename": name} for name in files]}).encode()
                elif path.startswith(f"{info}/tree/"):
                    content = json.dumps([
                        {"type": "file", "path": name, "size": len(each),
                         "oid": hashlib.sha1(each).hexdigest()} for name, each in files.items()
                    ]).encode()
                elif path.removeprefix(resolve) in files:
                    content = files[path.removeprefix(resolve)]
                    requested.append(path.removeprefix(resolve))
                else:
                    content = b'{"error": "Repository not found"}'
                    self.send_response(404)
                    self.send_header("X-Error-Code", "RepoNotFound")
                    return self._end(content)
                self.send_response(200)
                self.send_header("X-Repo-Commit", COMMIT)
                self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
                self._end(content)

            def _end(self, content):
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(content)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


PULL = """
import contextlib, io, json, os, sys
printed = io.StringIO()
os.environ["HF_ENDPOINT"], os.environ["HF_HOME"], *sys.argv[1:] = sys.argv[1:]
from sluice_client import pull
status = None
with contextlib.redirect_stdout(printed):
    try:
        pull.main()
    except SystemExit as end:
        status = end.code
print(json.dumps([status, printed.getvalue()]))
"""


def test_a_pulled_reranker_has_its_frame(tmp_path):
    folder = tmp_path / "made"
    with Hub("org/reranker", RERANKERS / "qwen3") as hub:
        status, _ = run(PULL, hub.address, tmp_path / "home", "org/reranker", "--to", folder)
    assert status is None
    daemon = Daemon(models=[("reranker", folder)])
    with Client(daemon.grpc) as client:
        assert len(client.rerank("reranker", "a", ["b", "c"])) == 2
    daemon.stop()


def test_a_pulled_model_is_served_by_the_printed_command(tmp_path):
    source = lay(tmp_path / "source", "dense")
    for name in ("onnx/model.onnx", "onnx/config.json", "pytorch_model.bin", "README.md",
                 "model.fp16.safetensors"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_bytes(b"not needed")
    folder = tmp_path / "made here"
    with Hub("org/dense", source) as hub:
        status, printed = run(PULL, hub.address, tmp_path / "home", "org/dense", "--to", folder)
        assert status is None
        again = run(PULL, hub.address, tmp_path / "home", "org/none")
    assert "cannot download org/none" in again[0]
    assert not [name for name in hub.requested if name.startswith(("onnx", "pytorch", "README"))]
    assert "model.safetensors" in hub.requested and "model.fp16.safetensors" not in hub.requested
    program, flag, model = shlex.split(printed)
    assert (program, flag, model) == ("sluiced", "--model", f"dense={folder}")
    daemon = Daemon(models=[("dense", folder), ("source", source)])
    with Client(daemon.grpc) as client:
        assert client.embed("dense", TEXTS).raw == client.embed("source", TEXTS).raw
    daemon.stop()
