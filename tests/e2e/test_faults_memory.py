"""Tests limits on the memory that a peer can occupy: entries 28 to 30 of tests/faults.md."""

import collections
import concurrent.futures
import json
import struct

import grpc
import pytest
from always import await_balance, undisturbed
from conftest import DEMO, SANITIZED
from http2 import END_STREAM, INFER, INITIAL_WINDOW_SIZE, Connection, message
from infer import logits_message
from limits import MIB, grown, resident_before
from tritonclient.grpc import service_pb2
from waiting import PATIENCE_S

HEALTH_CHECK = "/grpc.health.v1.Health/Check"


@pytest.mark.parametrize("unit", [b"\x2a\x00", b"\x32\x00", b"\x22\x00", b"\x78\x01"],
                         ids=["inputs", "outputs", "parameters", "unknown"])
def test_floods_of_small_fields_do_not_grow_memory(daemon, unit):
    """2 MiB of two-byte fields would take a hundred times more memory once parsed."""
    server = daemon()
    body = unit * MIB
    with undisturbed(server), Connection(server.grpc) as connection:
        ended = connection.call(1, INFER, unit)
        assert ended["grpc-status"] != "0"
        before = resident_before(server)
        for i in range(20):
            ended = connection.call(2 * i + 3, INFER, body)
            assert ended["grpc-status"] == "3", ended
            assert ended["sluice-reason"] == "request"
        # This covers the messages and gRPC's copies of them.
        assert grown(server, before) < 24 * MIB


def test_unread_answers_hold_limited_memory(daemon):
    server = daemon("--server.grpc.max-unread-bytes", "8MiB",
                    "--server.grpc.transfer-timeout", "5s")
    body = logits_message(1024)
    size = 4 * 1024 * json.loads((DEMO / "config.json").read_text())["vocab_size"]
    # No other client calls here: the daemon treats all connections of this host as one caller.
    with Connection(server.grpc, [(INITIAL_WINDOW_SIZE, 0)]) as connection:
        before = resident_before(server)
        streams = range(1, 2 * 95, 2)
        refused = 0
        for stream in streams:
            connection.open(stream, INFER)
            connection.await_room(len(message(body)))
            connection.send(stream, message(body), END_STREAM)
        for stream in streams:
            ended = connection.end(stream)
            assert ended["grpc-status"] == "8", ended
            refused += ended.get("sluice-reason") == "unread_answers"
        assert refused >= 95 - 8 * MIB // size, "admitted calls end after transfer_timeout"
        assert grown(server, before) < 8 * MIB + 16 * MIB
    with undisturbed(server):
        pass
    await_balance(server)


def test_four_gibibytes_of_unread_answers_hold_limited_memory(daemon):
    """Several connections make calls whose answers would have 4 GiB, and read none of them."""
    server = daemon("--server.memory.limit-bytes", "2GiB" if SANITIZED else "1GiB",
                    "--server.grpc.transfer-timeout", "5s")
    body = logits_message(1024)
    size = 4 * 1024 * json.loads((DEMO / "config.json").read_text())["vocab_size"]
    calls = (4 << 30) // size + 1
    limit = server.metric("sluice_memory_limit_bytes", use="unread_answers")
    ended = collections.Counter()

    def call(count):
        with Connection(server.grpc, [(INITIAL_WINDOW_SIZE, 0)]) as connection:
            streams = range(1, 2 * count, 2)
            for stream in streams:
                connection.open(stream, INFER)
                connection.await_room(len(message(body)))
                connection.send(stream, message(body), END_STREAM)
            for stream in streams:
                answer = connection.end(stream)
                ended[answer.get("sluice-reason", answer.get("grpc-status"))] += 1

    before = resident_before(server)
    connections = 16
    with concurrent.futures.ThreadPoolExecutor(connections) as pool:
        list(pool.map(call, [calls // connections + 1] * connections))
    # The answers of the others were made, and their callers did not take them in time.
    refused = {"unread_answers", "queue_full", "too_busy", "memory"}
    assert set(ended) <= {*refused, "8"} and 0 < ended["8"] <= limit // size, ended
    assert ended["unread_answers"] > 0, ended
    if not SANITIZED:
        assert grown(server, before) < limit + 128 * MIB
    with undisturbed(server):
        pass
    await_balance(server)


def test_an_answer_is_in_memory_at_most_three_times(daemon):
    """The states of the tokens of 200 rows: 26 MiB. The engine's rows, the message and its bytes
    exist at a time."""
    server = daemon()
    built = service_pb2.ModelInferRequest(model_name="demo")
    rows, length = 200, 220
    built.inputs.add(name="input_ids", datatype="INT32", shape=[rows, length])
    built.raw_input_contents.append(struct.pack("<i", 7) * (rows * length))
    built.outputs.add(name="token_embeddings")
    size = 4 * rows * length * json.loads((DEMO / "config.json").read_text())["hidden_size"]
    options = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(server.grpc, options) as channel:
        call = channel.unary_unary(INFER)
        call(logits_message(1), timeout=PATIENCE_S)
        before = resident_before(server)
        assert len(call(built.SerializeToString(), timeout=PATIENCE_S)) > size
    assert grown(server, before) < 3.5 * size


def test_stalled_health_checks_hold_little_memory_and_end(daemon):
    server = daemon("--server.grpc.transfer-timeout", "1s")
    with undisturbed(server), Connection(server.grpc) as connection:
        for i in range(64):
            connection.open(2 * i + 1, HEALTH_CHECK)
            connection.send(2 * i + 1, message(b"", length=1 << 20))  # the rest is never sent
        for i in range(64):
            assert connection.end(2 * i + 1)["grpc-status"] == "8"
        ended = connection.call(1001, HEALTH_CHECK, b"\x0a\x80\x10" + b"s" * 2048)
        assert ended["grpc-status"] == "3", ended
        assert connection.call(1003, HEALTH_CHECK, b"")["grpc-status"] == "0"
