"""Runs the grpcurl commands of docs/api.md.

grpcurl is not in a package index that the tests may use. The code below does the same: it requests
the description of the method from the server, parses the JSON, and makes the call."""

import json
import re
import shlex

import grpc
import pytest
from conftest import ROOT, Daemon
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

PAGE = (ROOT / "docs" / "api.md").read_text()
COMMANDS = re.findall(r"^grpcurl (?:[^'\n]|'[^']*')*", PAGE, re.M)
REFLECT = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


@pytest.fixture(scope="module")
def server():
    with Daemon("--server.grpc.reflection", "true") as daemon:
        yield daemon


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def fields(data):
    """Yields (number, bytes) for each length-delimited field of a message."""
    place = 0

    def number():
        nonlocal place
        value = shift = 0
        while True:
            byte = data[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while place < len(data):
        tag = number()
        length = number()
        if tag & 7 == 2:
            yield tag >> 3, data[place : place + length]
            place += length


def reflect(channel, request):
    """Sends a request to the reflection service and returns the bytes of its answer."""
    stream = channel.stream_stream(REFLECT, request_serializer=bytes, response_deserializer=bytes)
    (answer,) = list(stream(iter([request])))
    return answer


def method(channel, service, name):
    """Returns the classes of a method's request and response, as described by the server."""
    answer = reflect(channel, field(4, service.encode()))  # file_containing_symbol
    files = [
        descriptor_pb2.FileDescriptorProto.FromString(each)
        for number, part in fields(answer) if number == 4  # file_descriptor_response
        for inner, each in fields(part) if inner == 1
    ]
    pool = descriptor_pool.DescriptorPool()
    for file in reversed(files):
        pool.Add(file)
    found = pool.FindServiceByName(service).methods_by_name[name]
    return (message_factory.GetMessageClass(found.input_type),
            message_factory.GetMessageClass(found.output_type))


def grpcurl(address, command):
    """Runs a grpcurl command at `address`; returns the answer as JSON, or a list of names."""
    words = shlex.split(command)
    assert words[:2] == ["grpcurl", "-plaintext"]
    data = words[words.index("-d") + 1] if "-d" in words else "{}"
    target = words[-1]
    with grpc.insecure_channel(address) as channel:
        if target == "list":
            answer = reflect(channel, field(7, b""))  # list_services
            return [name.decode()
                    for number, part in fields(answer) if number == 6
                    for _, service in fields(part)
                    for _, name in fields(service)]
        service, _, name = target.partition("/")
        asked, answered = method(channel, service, name)
        call = channel.unary_unary(f"/{target}", request_serializer=asked.SerializeToString,
                                   response_deserializer=answered.FromString)
        return json_format.MessageToDict(call(json_format.Parse(data, asked()), timeout=60))


def test_the_page_has_commands():
    assert len(COMMANDS) >= 3 and any("list" in each for each in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_are_answered(server, command):
    assert "localhost:8001" in command
    answer = grpcurl(server.grpc, command)
    if command.endswith("list"):
        assert "inference.GRPCInferenceService" in answer
        assert not any("admin" in each for each in answer)
    elif command.endswith("ModelInfer"):
        names = [each["name"] for each in answer["outputs"]]
        assert "output_ids" in names and len(answer["rawOutputContents"]) == len(names)
    else:
        assert answer, json.dumps(answer)


def test_reflection_is_off_by_default():
    with Daemon() as daemon:
        with grpc.insecure_channel(daemon.grpc) as channel, pytest.raises(grpc.RpcError) as error:
            reflect(channel, field(7, b""))
        assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED
