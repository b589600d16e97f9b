"""Tests that an honest caller is served up to each documented limit of the daemon and the gateway.

Tests that callers are refused above the limits are named in docs/bounds.md and docs/http.md.
"""

import http.client
import re
import struct

import grpc
import pytest
from conftest import ROOT, Daemon
from gateway import Gateway
from http2 import (
    END_STREAM,
    INFER,
    STREAM_INFER,
    WINDOW_UPDATE,
    Connection,
    message,
    request_headers,
)
from infer import ids_inputs, infer
from limits import request
from tiny_model import TinyModel
from tritonclient.grpc import service_pb2
from waiting import PATIENCE_S

STREAMS = 256
METADATA_BYTES = 8 << 10


@pytest.fixture(scope="module")
def limited():
    with Daemon("--server.grpc.max-streams", str(STREAMS), "--server.grpc.max-calls",
                str(2 * STREAMS)) as daemon:
        yield daemon


def test_one_connection_has_the_documented_number_of_calls(limited):
    with Connection(limited.grpc) as honest:
        assert not honest.settle()
        streams = range(1, 2 * STREAMS, 2)
        for stream in streams:
            honest.open(stream, INFER)
        for stream in streams:
            honest.send(stream, message(request(max_tokens=1)), END_STREAM)
        assert [honest.end(stream)["grpc-status"] for stream in streams] == ["0"] * STREAMS


def test_one_connection_has_the_documented_number_of_streams(limited):
    with Connection(limited.grpc) as honest:
        assert not honest.settle()
        honest.frame(WINDOW_UPDATE, payload=struct.pack(">I", 1 << 20))
        streams = range(1, 2 * STREAMS, 2)
        for stream in streams:
            honest.open(stream, STREAM_INFER)
            honest.send(stream, message(request(max_tokens=1)))
        for stream in streams:
            assert not honest.wait(lambda each=stream: honest.data.get(each)), "the peer hung up"
        for stream in streams:
            honest.send(stream, b"", END_STREAM)
        assert [honest.end(stream)["grpc-status"] for stream in streams] == ["0"] * STREAMS


def test_a_call_has_the_documented_bytes_of_metadata(limited):
    others = sum(len(name) + len(value) + 32 for name, value in request_headers(INFER, ("x", "")))
    with Connection(limited.grpc) as honest:
        ended = honest.call(1, INFER, request(max_tokens=1), ("x", "x" * (METADATA_BYTES - others)))
        assert ended["grpc-status"] == "0", ended


def test_a_call_has_the_documented_number_of_rows(limited):
    page = (ROOT / "docs" / "options.md").read_text()
    rows = int(re.search(r"`server.grpc.max_rows`.*default (\d+)", page)[1])
    with limited.client() as client:
        answers = infer(client, ids_inputs([[1]] * rows), ["embedding"])
    assert len(answers["embedding"]) == rows


def test_a_message_of_texts_that_are_cut_has_the_documented_size(daemon, tmp_path):
    """The memory of the requests being read suffices for the largest message, even if each byte of
    its texts is a token."""
    TinyModel(tmp_path / "model", 1, positions=512, vocab=258, tokenizer="byte")
    most, texts = 2_600_000, 20
    server = daemon("--server.grpc.max-message-bytes", str(most),
                    models=[("demo", tmp_path / "model")])
    built = service_pb2.ModelInferRequest(model_name="demo")
    values = built.inputs.add(name="text_input", datatype="BYTES", shape=[texts, 1])
    values.contents.bytes_contents.extend([b"a" * (most // texts - 20)] * texts)
    built.parameters["max_tokens"].int64_param = 1
    for truncate in ("left", "right"):
        built.parameters["truncate"].string_param = truncate
        values.contents.bytes_contents[0] += b"a" * (most - built.ByteSize())
        body = built.SerializeToString()
        values.contents.bytes_contents[0] = values.contents.bytes_contents[1]
        assert len(body) == most
        with grpc.insecure_channel(server.grpc) as channel:
            channel.unary_unary(INFER)(body, timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def gateway(limited):
    with Gateway(limited) as started:
        yield started


def answer(gateway, *pieces):
    """Sends the pieces of a request and returns the status and the body of the answer."""
    connection = gateway.connection()
    connection.connect()
    for piece in pieces:
        connection.sock.sendall(piece)
    reply = http.client.HTTPResponse(connection.sock)
    reply.begin()
    body = reply.read()
    connection.close()
    return reply.status, body


def test_a_head_has_the_documented_size(gateway):
    from sluice_client.gateway.protocol import MAX_HEAD_BYTES

    start, end = b"GET /v1/models HTTP/1.1\r\nhost: a\r\nx-long: ", b"\r\n\r\n"
    head = start + b"a" * (MAX_HEAD_BYTES - len(start) - len(end)) + end
    assert len(head) == MAX_HEAD_BYTES
    assert answer(gateway, head)[0] == 200


def test_a_credential_has_the_documented_size(gateway):
    from sluice_client.gateway.head import _MAX_AUTHORIZATION_BYTES

    credential = "Bearer " + "a" * (_MAX_AUTHORIZATION_BYTES - len("Bearer "))
    assert gateway.get("/v1/models", authorization=credential).status == 200


def test_a_body_has_the_documented_number_of_chunks(gateway):
    from sluice_client.gateway.protocol import _MAX_CHUNKS

    body = b'{"model": "demo", "prompt": "a", "max_tokens": 1}'
    body += b" " * (_MAX_CHUNKS - 1 - len(body))  # The last chunk is empty.
    head = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    chunks = b"".join(b"1\r\n%c\r\n" % each for each in body)
    status, answered = answer(gateway, head, chunks + b"0\r\n\r\n")
    assert status == 200, answered


def test_a_call_of_the_gateway_has_the_documented_number_of_rows(gateway):
    from sluice_client.gateway.hostile import MAX_ROWS

    reply = gateway.post("/v1/embeddings", {"model": "demo", "input": ["a"] * MAX_ROWS,
                                            "encoding_format": "base64"})
    assert reply.status == 200 and len(reply.json["data"]) == MAX_ROWS


def test_a_prompt_has_the_documented_number_of_answers(gateway):
    from sluice_client.gateway.hostile import Limits

    most = Limits().max_choices
    reply = gateway.post("/v1/completions", {"model": "demo", "prompt": "a", "max_tokens": 2,
                                             "n": most})
    assert reply.status == 200 and len(reply.json["choices"]) == most


def test_one_token_has_three_quarters_of_the_calls(limited):
    with Gateway(limited, "--max-in-flight", 10) as small:
        connections = []
        for _ in range(7):
            connection = small.connection()
            connection.connect()
            connection.sock.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: a\r\n"
                                    b"content-length: 49\r\n\r\n")
            connections.append(connection)
        for connection in connections:
            connection.sock.sendall(b'{"model": "demo", "prompt": "a", "max_tokens": 1}')
            reply = http.client.HTTPResponse(connection.sock)
            connection.sock.settimeout(PATIENCE_S)
            reply.begin()
            assert reply.status == 200, reply.read()
            reply.read()
            connection.close()
