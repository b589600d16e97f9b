"""Tests that the gateway refuses malformed and hostile HTTP requests."""

import gzip
import json
import random
import socket

import pytest
from gateway import Gateway
from gateway_fixtures import gateway, page, template
from scripted_server import ScriptedServer
from waiting import PATIENCE_S, wait_until

PATHS = ("/v1/embeddings", "/v1/completions", "/v1/chat/completions", "/v1/rerank",
         "/v2/models/demo/infer", "/", "/rerank", "/v2/embed", "/score", "/classify", "/pooling",
         "/embed", "/embed_all", "/embed_sparse", "/predict", "/similarity",
         "/zero-shot-classification", "/v1/extract")


def tensor_input(**changed):
    return {"inputs": [{"name": "input_ids", "datatype": "INT32", "shape": [1, 2], "data": [1, 2],
                        **changed}]}


@pytest.mark.parametrize(
    "body, text",
    [
        (tensor_input(shape=[1, 3]), "2 values do not fit"),
        (tensor_input(shape=[-1, 2]), "integer in"),
        (tensor_input(shape=[2**31, 2**31]), "integer in"),
        (tensor_input(shape=[2**30] * 8), "values do not fit"),
        (tensor_input(shape=[1] * 9), "9 values"),
        (tensor_input(shape=[True, 2]), "integer in"),
        (tensor_input(data=[1, 2.5]), "not a valid INT32"),
        (tensor_input(data=[1, True]), "not a valid INT32"),
        (tensor_input(data=[1, 2**31]), "not a valid INT32"),
        (tensor_input(data=[[1], 2]), "mixes"),
        (tensor_input(data="12"), "not a list"),
        (tensor_input(datatype="INT33"), "datatype"),
        (tensor_input(datatype="FP32", data=[1, 10**19]), "input_ids"),
        (tensor_input(datatype="BYTES", data=["a", "\ud800"]), "surrogate"),
        (tensor_input(parameters={"binary_data_size": 8}), "[0, 0]"),
        (tensor_input(parameters={"x": 8}), "not a supported field"),
        ({**tensor_input(), "parameters": {"max_tokens": [1]}}, "parameters.max_tokens"),
        ({**tensor_input(), "parameters": {"max_tokens": 10**19}}, "max_tokens"),
        ({**tensor_input(), "parameters": {"max_tokens": 10**20}}, "64 bits"),
        (tensor_input(datatype="FP32", data=[1, 10**400]), "too large"),
        ({**tensor_input(), "parameters": {"\ud800": 1}}, "surrogate"),
        ({**tensor_input(), "outputs": [{"name": "none"}]}, "none"),
        ({**tensor_input(), "more": 1}, "not a supported field"),
    ],
)
def test_hostile_tensors_are_refused(gateway, body, text):
    refused = gateway.post("/v2/models/demo/infer", body)
    assert refused.status == 400 and text in refused.json["error"], refused.body


@pytest.mark.parametrize("path", PATHS)
def test_compressed_body_is_refused_by_its_coding(gateway, path):
    for coding in ("gzip", "zstd"):
        refused = gateway.post(path, gzip.compress(b"{}"), content_encoding=coding)
        assert refused.status == 415 and coding.encode() in refused.body
    assert gateway.post(path, b"{}", content_encoding="identity").status == 400


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "body, status, text",
    [
        pytest.param(b"", 400, "JSON", id="nothing"),
        pytest.param(b"{", 400, "JSON", id="half an object"),
        pytest.param(b"[]", 400, "not an object", id="a list"),
        pytest.param(b'"a"', 400, "not an object", id="a text"),
        pytest.param(b"[" * 100_000, 400, "levels", id="deep"),
        pytest.param(b'{"a":' * 33, 400, "levels", id="deep objects"),
        pytest.param(b'{"model": NaN}', 400, "NaN", id="NaN"),
        pytest.param(b'{"model": -Infinity}', 400, "Infinity", id="infinity"),
        pytest.param(b'{"model": ' + b"9" * 5000 + b"}", 400, "digits", id="a long integer"),
        pytest.param(b'{"model": "a", "model": "b"}', 400, "duplicate", id="duplicate key"),
        pytest.param(b'{"model": "\xff"}', 400, "UTF-8", id="not UTF-8"),
        pytest.param(b'{"model": "\\ud800"}', 400, "surrogate|missing", id="surrogate"),
        pytest.param(b'{"\\ud800": 1}', 400, "missing", id="a surrogate as key"),
        pytest.param(b'{"model": "a' + b" " * 200_000 + b'"}', 413, "bytes", id="large"),
    ],
)
def test_hostile_json_is_refused(gateway, path, body, status, text):
    refused = gateway.post(path, body)
    assert refused.status == status
    content = refused.json
    message = content.get("message") or content["error"]
    message = message if isinstance(message, str) else message["message"]
    assert any(each in message for each in text.split("|")), message


def test_randomly_changed_requests_never_fail_the_gateway(gateway):
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = random.Random(seed)
    whole = {
        "/v1/completions": {"model": "demo", "prompt": ["a", "b"], "max_tokens": 2, "seed": 1,
                            "stop": ["c"], "logit_bias": {"5": 1.5}, "stream": False},
        "/v1/embeddings": {"model": "demo", "input": [[1, 2], [3]], "normalize": True},
        "/v1/chat/completions": {"model": "demo", "max_tokens": 2,
                                 "messages": [{"role": "user", "content": "a"}]},
        "/v1/rerank": {"model": "demo", "query": "a", "documents": ["b", {"text": "c"}]},
        "/v2/models/demo/infer": tensor_input(),
        "/embed": {"model": "demo", "inputs": ["a", "b"], "truncate": True},
        "/predict": {"model": "demo", "inputs": [["a"], ["b", "c"]], "parameters": {"top_k": 1}},
        "/similarity": {"inputs": {"source_sentence": "a", "sentences": ["b", "c"]}},
        "/zero-shot-classification": {
            "inputs": ["a", "b"], "parameters": {"candidate_labels": ["c", "d"],
                                                 "multi_label": True}},
        "/v1/extract": {"model": "demo", "input": ["a", "b"], "labels": ["c", "d"],
                        "threshold": 0.3, "overlap": "nested", "multi_label": True},
        "/rerank": {"model": "demo", "query": "a", "texts": ["b", "c"], "raw_scores": True},
        "/score": {"model": "demo", "text_1": ["a", "b"], "text_2": ["c", "d"]},
        "/pooling": {"model": "demo", "input": "a", "truncate_prompt_tokens": -1},
        "/v2/embed": {"model": "demo", "texts": ["a"], "input_type": "search_query",
                      "embedding_types": ["int8", "ubinary"]},
    }
    connection = gateway.connection()
    statuses = set()
    for _ in range(400):
        path, body = draw.choice(list(whole.items()))
        text = bytearray(json.dumps(body).encode())
        for _ in range(draw.randrange(1, 4)):
            at = draw.randrange(len(text))
            piece = draw.choice([b"", b"null", b"-1", b"[", b"}", b'"', b"1e308", b"\\ud800",
                                 bytes([draw.randrange(256)])])
            text[at : at + draw.randrange(3)] = piece
        connection.request("POST", path, bytes(text))
        answer = connection.getresponse()
        answer.read()
        statuses.add(answer.status)
        assert answer.status in (200, 400, 404, 501), (path, bytes(text))
    connection.close()
    assert 400 in statuses


def test_numbers_that_overflow_and_bodies_of_many_values_are_refused():
    with ScriptedServer() as server, Gateway(server.address) as gateway:
        head = b'{"model": "a", "prompt": "a", '
        for body, text in (
            (head + b'"top_p": 1e999}', "too large"),
            (head + b'"x": [' + b"[]," * 65_536 + b"[]]}", "objects, arrays and texts"),
            (head + b'"x": [' + b'"",' * 65_536 + b'""]}', "objects, arrays and texts"),
        ):
            refused = gateway.post("/v1/completions", body)
            assert refused.status == 400 and text in refused.json["error"]["message"]
        messages = [{"role": "user", "content": "a"}] * 1001
        refused = gateway.post("/v1/chat/completions", {"model": "a", "messages": messages})
        assert "1000 are allowed" in refused.json["error"]["message"]


def test_total_size_of_bodies_is_limited():
    with ScriptedServer("a") as server, Gateway(
        server.address, "--max-pending-bytes", 40_000
    ) as gateway:
        asked = {"model": "scripted", "prompt": "a" * 2000, "max_tokens": 1}
        with socket.create_connection(gateway.address.split(":"), PATIENCE_S) as first:
            first.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 39000\r\n"
                          b"\r\n" + b" " * 38000)
            wait_until(lambda: gateway.metric("sluice_gateway_requests_in_flight") == 1)
            refused = gateway.post("/v1/completions", asked)
            assert refused.status == 503 and "--max-pending-bytes" in refused.body.decode()
        wait_until(lambda: gateway.metric("sluice_gateway_requests_in_flight") == 0)
        assert gateway.post("/v1/completions", asked).status == 200


def test_body_without_content_length_is_limited(gateway):
    connection = gateway.connection()
    connection.request("POST", "/v1/completions", iter([b" " * 50_000] * 5), encode_chunked=True,
                       headers={"transfer-encoding": "chunked"})
    assert connection.getresponse().status == 413
    connection.close()


@pytest.mark.parametrize(
    "headers, text",
    [
        ({"x_request_timeout_ms": "-1"}, "milliseconds"),
        ({"x_request_timeout_ms": "1" * 400}, "milliseconds"),
        ({"x_request_id": "a" * 257}, "256"),
        ({"authorization": "\x80"}, "ASCII"),
    ],
)
def test_hostile_headers_are_refused(gateway, headers, text):
    refused = gateway.post("/v1/completions", {"model": "demo", "prompt": "a"}, **headers)
    assert refused.status == 400 and text in refused.json["error"]["message"]
