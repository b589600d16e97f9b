"""Runs clients of other projects against the gateway, and sluice-pull against a small hub.

The packages are installed in a folder of their own. SLUICE_TEST_CLIENTS names a folder that keeps
them for the next run.
"""

import hashlib
import http.server
import json
import os
import pathlib
import shlex
import subprocess
import sys
import threading

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from conftest import CLIENT, Daemon  # noqa: E402
from gateway import Gateway  # noqa: E402
from sentence_models import SENTENCES, lay  # noqa: E402
from sluice_client import Client  # noqa: E402
from waiting import PATIENCE_S  # noqa: E402

PACKAGES = ["langchain-openai==1.7.4", "huggingface_hub==2.4.0"]
TEXTS = ["a b c", "no more", "d"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs a program with the packages and returns its output, parsed as JSON."""
    folder = os.environ.get("SLUICE_TEST_CLIENTS") or tmp_path_factory.mktemp("clients")
    if not os.listdir(folder):
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--only-binary", ":all:",
                        "--target", folder, *PACKAGES], check=True)

    def run_program(program, *arguments):
        done = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], text=True,
                              capture_output=True, timeout=PATIENCE_S,
                              env={**os.environ, "PYTHONPATH": f"{CLIENT}:{folder}"})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run_program


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    model = lay(tmp_path_factory.mktemp("models") / "dense", "dense")
    daemon = Daemon(models=[("dense", model), ("cross_3", SENTENCES / "cross_3")])
    yield daemon.grpc
    daemon.stop()


@pytest.fixture(scope="module")
def gateway(served):
    with Gateway(served, "--default-model", "dense") as started:
        yield f"http://{started.address}"


LANGCHAIN = """
import json, sys
from langchain_openai import OpenAIEmbeddings
address, checks, *texts = sys.argv[1:]
embeddings = OpenAIEmbeddings(model="dense", base_url=address + "/v1", api_key="none",
                              check_embedding_ctx_length=json.loads(checks))
try:
    print(json.dumps([embeddings.embed_documents(texts), embeddings.embed_query(texts[0])]))
except Exception as error:
    print(json.dumps(str(error)))
"""


def test_langchain_embeds_texts(run, served, gateway):
    documents, query = run(LANGCHAIN, gateway, "false", *TEXTS)
    with Client(served) as client:
        expected = np.asarray(client.embed("dense", TEXTS))
    np.testing.assert_array_equal(np.float32(documents), expected)
    np.testing.assert_array_equal(np.float32(query), expected[0])


TOKEN_IDS = """
import json, sys
import openai
address = sys.argv[1]
client = openai.OpenAI(base_url=address + "/v1", api_key="none", max_retries=0)
try:
    client.embeddings.create(model="dense", input=[[15339, 1917]], encoding_format="base64")
except openai.BadRequestError as error:
    print(json.dumps(str(error)))
"""


def test_ids_of_a_foreign_vocabulary_are_refused(run, gateway):
    # These are the calls of LangChain without the setting. It downloads its vocabulary first.
    assert "check_embedding_ctx_length=False" in run(TOKEN_IDS, gateway)


INFERENCE = """
import json, sys
from huggingface_hub import InferenceClient
address, *texts = sys.argv[1:]
client = InferenceClient(model=address)
print(json.dumps({
    "vectors": client.feature_extraction(texts, normalize=False).tolist(),
    "query": client.feature_extraction(texts[0], normalize=True, prompt_name="query").tolist(),
    "cosines": client.sentence_similarity(texts[0], other_sentences=texts),
}))
"""


def test_inference_client_of_the_hub_calls_the_paths_of_tei(run, served, gateway):
    made = run(INFERENCE, gateway, *TEXTS)
    with Client(served) as client:
        vectors = client.embed("dense", TEXTS, normalize=False)
        query = client.embed("dense", TEXTS[:1], normalize=True, prompt_name="query")
        unit = np.asarray(client.embed("dense", TEXTS, normalize=True), np.float64)
    np.testing.assert_array_equal(np.float32(made["vectors"]), np.asarray(vectors))
    np.testing.assert_array_equal(np.float32(made["query"]), np.asarray(query))
    np.testing.assert_allclose(made["cosines"], unit @ unit[0], atol=1e-6)


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


def test_a_pulled_model_is_served_by_the_printed_command(run, tmp_path):
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
