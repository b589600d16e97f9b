"""Tests messages with invalid content: faults 1 to 5 and 8 of tests/faults.md."""

import gzip
import struct

import grpc
import pytest
from always import undisturbed
from conftest import Daemon
from http2 import END_STREAM, INFER, STREAM_INFER, Connection, message
from limits import MIB, grown, request, resident_before
from tritonclient.grpc import service_pb2

QUOTA = 192 * MIB


@pytest.fixture(scope="module")
def server():
    with Daemon("--server.grpc.memory-quota-bytes", str(QUOTA)) as daemon:
        yield daemon


def made(text=b"And", shape=(1, 1), datatype="BYTES", **fields):
    """Returns a ModelInferRequest with one input."""
    built = service_pb2.ModelInferRequest(model_name="demo", **fields)
    tensor = built.inputs.add(name="text_input", datatype=datatype, shape=shape)
    if text is not None:
        tensor.contents.bytes_contents.append(text)
    return built


def ids(shape, raw=None, datatype="INT32", name="input_ids"):
    built = service_pb2.ModelInferRequest(model_name="demo")
    built.inputs.add(name=name, datatype=datatype, shape=shape)
    if raw is not None:
        built.raw_input_contents.append(raw)
    return built


def twice():
    built = ids([1, 1], b"\1\0\0\0")
    built.inputs.append(built.inputs[0])
    built.raw_input_contents.append(b"\1\0\0\0")
    return built


def raw_and_typed():
    built = ids([1, 1], b"\1\0\0\0")
    built.inputs[0].contents.int_contents.append(1)
    return built


def same_output_twice():
    built = made()
    built.outputs.add(name="output_ids")
    built.outputs.add(name="output_ids")
    return built


def with_parameter(name, value, kind="int64_param"):
    built = made()
    setattr(built.parameters[name], kind, value)
    return built


def raises(server, built, *allowed, path=INFER, words=()):
    """Checks that `built` is refused as a unary call and on a stream."""
    body = built if isinstance(built, bytes) else built.SerializeToString()
    with Connection(server.grpc) as connection:
        end = connection.call(1, path, body)
        assert end["grpc-status"] in allowed, end
        assert end["sluice-reason"], end
        assert "grpc-retry-pushback-ms" not in end, "no retry can help"
        for word in words:
            assert word in end["grpc-message"]
        if path != INFER:
            return
        connection.open(3, STREAM_INFER)
        connection.send(3, message(body), END_STREAM)
        assert connection.end(3)["grpc-status"] == "0"
        answer = service_pb2.ModelStreamInferResponse.FromString(connection.data[3][5:])
        assert 0 < len(answer.error_message) < 5000, "the message must not quote the whole input"


INVALID, NOT_FOUND, UNIMPLEMENTED, EXHAUSTED = "3", "5", "12", "8"
good = request()


@pytest.mark.parametrize("body", [
    b"\xff\xff\xff", good[:-1], b"\x0a" * 5_000, b"\x0a\x02\xc3\x28", b"\x0a\xff\xff\xff\xff\x0f",
    b"\x2b" * 10_000, b"\x08\x01",
], ids=["garbage", "truncated", "nested", "not_utf8", "length_4_gib", "groups", "wrong_type"])
def test_a_malformed_message_is_never_queued(server, body):
    with undisturbed(server):
        refused = server.metric("sluice_rejected_total")
        if body == b"\x08\x01":  # Only unknown fields, so there is no model name.
            raises(server, body, NOT_FOUND, INVALID)
        else:
            raises(server, body, INVALID, words=["inference.ModelInferRequest"])
        assert server.metric("sluice_rejected_total") == refused + 2


@pytest.mark.parametrize(
    "method",
    [
        "ServerMetadata",
        "ModelReady",
        "ModelMetadata",
        "ModelConfig",
        "ModelStatistics",
        "RepositoryIndex",
    ],
)
def test_other_methods_refuse_malformed_messages_too(server, method):
    with undisturbed(server):
        raises(server, b"\xff\xff", INVALID, path=f"/inference.GRPCInferenceService/{method}")


def test_a_500_mb_message_is_not_kept_in_memory(server):
    before = resident_before(server)
    # When its memory quota is used up, gRPC may also close connections of other clients.
    with undisturbed(server, reconnects=True):
        huge = grpc.insecure_channel(server.grpc, options=[("grpc.max_send_message_length", -1)])
        with huge, pytest.raises(grpc.RpcError) as error:
            huge.unary_unary(INFER)(bytes(500 * MIB))
        assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert grown(server, before) <= QUOTA * 2  # gRPC's quota does not cover all memory


def test_a_message_above_the_limit_but_within_the_quota_is_refused(server):
    with undisturbed(server):
        large = grpc.insecure_channel(server.grpc, options=[("grpc.max_send_message_length", -1)])
        with large, pytest.raises(grpc.RpcError) as error:
            large.unary_unary(INFER)(bytes(65 * MIB))
        assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_compressed_bombs_are_not_opened(server, encoding):
    bomb = gzip.compress(bytes(60 * MIB))
    assert len(bomb) < 64_000, "the bomb must fit into the first flow-control window"
    before = resident_before(server)
    with undisturbed(server), Connection(server.grpc) as connection:
        connection.open(1, INFER, ("grpc-encoding", encoding))
        connection.send(1, message(bomb, compressed=1), END_STREAM)
        assert connection.end(1)["grpc-status"] == UNIMPLEMENTED
        # Without an encoding header the compressed bytes are not decompressed either.
        connection.open(3, INFER)
        connection.send(3, message(bomb, compressed=1), END_STREAM)
        assert connection.end(3)["grpc-status"] != "0"
    assert grown(server, before) < 16 * MIB


LARGEST, LEAST = (1 << 63) - 1, -(1 << 63)


@pytest.mark.parametrize(
    "wrong",
    [
        ids([-1, 1], b"\1\0\0\0"),
        ids([1, -1], b"\1\0\0\0"),
        ids([0, 1], b""),
        ids([1, 0], b""),
        ids([LARGEST, LARGEST], b"\1\0\0\0"),
        ids([1 << 32, 1 << 32], b""),
        ids([1 << 62, 4], b""),
        ids([LEAST, 2], b""),
        ids([1, LARGEST], b"\1\0\0\0"),
        ids([], b"\1\0\0\0"),
        ids([1], b"\1\0\0\0"),
        ids([1] * 1000, b"\1\0\0\0"),
        ids([1, 2], b"\1\0\0\0"),
        ids([1, 1], b"\1\0\0"),
        ids([1, 1], b""),
        ids([1, 1]),
        ids([1, 1], b"\1\0\0\0", datatype="FP8"),
        ids([1, 1], b"\1\0\0\0", datatype=""),
        ids([1, 1], b"\1\0\0\0", name="nothing"),
        ids([1, 1], b"\1\0\0\0", name=""),
        ids([1, 1], struct.pack("<i", -1)),
        ids([1, 1], struct.pack("<i", 1 << 30)),
        twice(),
        raw_and_typed(),
        same_output_twice(),
        made(text=None),
        made(shape=[LARGEST, 1]),
        made(shape=[2, 1]),
        made(datatype="INT32"),
        made(text=b"\xff\xfe", shape=[1, 2]),
        made(raw_input_contents=[b"\xff\xff\xff\xff"], text=None),
        made(raw_input_contents=[struct.pack("<I", 1000) + b"x"], text=None),
        made(raw_input_contents=[b"\0\0\0\0"] * 3, text=None),
        service_pb2.ModelInferRequest(model_name="demo"),
    ],
)
def test_tensors_that_contradict_their_description_are_refused(server, wrong):
    before = resident_before(server)
    with undisturbed(server):
        raises(server, wrong, INVALID)
    assert grown(server, before) < 4 * MIB, "memory was allocated for missing data"


@pytest.mark.parametrize(
    "name, value",
    [
        ("max_tokens", LARGEST),
        ("max_tokens", LEAST),
        ("max_tokens", -1),
        ("top_k", LARGEST),
        ("top_k", -1),
        ("priority", LARGEST),
        ("priority", LEAST),
        ("timeout", LARGEST),
        ("timeout", LEAST),
        ("timeout", -1),
        ("n", LARGEST),
        ("top_logprobs", LARGEST),
        ("seed", LEAST),
        ("min_tokens", LARGEST),
    ],
)
def test_extreme_parameter_values_are_refused(server, name, value):
    with undisturbed(server):
        raises(server, with_parameter(name, value), INVALID)
        raises(server, with_parameter(name, str(value), "string_param"), INVALID)
        raises(server, with_parameter(name, float(value) * 4, "double_param"), INVALID)


@pytest.mark.parametrize(
    "name",
    [
        "../demo",
        "demo/../demo",
        "/etc/passwd",
        "demo\0",
        "\0",
        "",
        "unknown",
        "x" * 60_000,
        "demo/",
        "%2e%2e",
    ],
    ids=lambda name: repr(name[:20]),
)
def test_invalid_model_names_are_refused(server, name):
    with undisturbed(server):
        raises(server, service_pb2.ModelInferRequest(model_name=name), NOT_FOUND, INVALID)
        wanted = service_pb2.ModelMetadataRequest(name=name).SerializeToString()
        for method in ("ModelMetadata", "ModelConfig"):
            raises(
                server, wanted, NOT_FOUND, INVALID, path=f"/inference.GRPCInferenceService/{method}"
            )


@pytest.mark.parametrize("version", ["2", "-1", "../1", "1\0", "9" * 30, " 1", "latest"])
def test_unknown_model_versions_are_refused(server, version):
    with undisturbed(server):
        raises(server, made(model_version=version), NOT_FOUND, INVALID)
