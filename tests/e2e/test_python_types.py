"""Tests the options, tensors and types of the Python client, without a daemon."""

import asyncio
import fractions
import inspect
import json
import pickle
import random
import re
import subprocess
import sys

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from conftest import CLIENT, ROOT
from sluice_client import AsyncClient, Client, Retry, Tensor, options
from sluice_client.messages import generate_request, prompt_list


def test_options_match_the_parameters_of_the_daemon():
    table = (ROOT / "docs" / "api.md").read_text().partition("## Parameters")[2]
    served = set(re.findall(r"^\| `(\w+)` \|", table, re.M))
    kinds = (options.GenerateOptions, options.EmbedOptions, options.ClassifyOptions,
             options.RecommendOptions, options.SparseOptions, options.EncodeOptions,
             options.ExtractOptions)
    offered = set().union(*(kind.__annotations__ for kind in kinds))
    # timeout_s replaces `timeout`. recommend supports only the logits of candidates. max_tokens and
    # labels are arguments.
    elsewhere = {"max_tokens", "labels", "timeout", "triton_enable_empty_final_response",
                 "candidate_activation"}
    call = {"model_version", "request_id", "timeout_s", "metadata"}
    assert len(served) > 20 and offered - call == served - elsewhere


def test_tensors_hold_the_same_values_as_numpy():
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = np.random.default_rng(seed)
    kinds = {"BOOL": np.bool_, "INT8": np.int8, "UINT16": np.uint16, "INT32": np.int32,
             "INT64": np.int64, "UINT64": np.uint64, "FP16": np.float16, "FP32": np.float32,
             "FP64": np.float64}
    for datatype, kind in kinds.items():
        shape = tuple(draw.integers(0, 4, 3))
        raw = draw.bytes(int(np.prod(shape)) * np.dtype(kind).itemsize)
        if datatype == "BOOL":
            raw = bytes(each & 1 for each in raw)
        array = np.frombuffer(raw, kind).reshape(shape)
        made = Tensor("x", datatype, shape, raw)
        np.testing.assert_array_equal(np.asarray(made), array)
        assert made.tolist() == array.tolist() or np.isnan(array.astype(float)).any()
        if not np.isnan(array.astype(float)).any():
            assert Tensor.of("x", datatype, shape, array.ravel().tolist()) == made
    texts = [draw.bytes(int(size)) for size in draw.integers(0, 9, 6)]
    made = Tensor.of("x", "BYTES", (2, 3), texts)
    assert made.values() == texts and np.asarray(made).shape == (2, 3)
    other = grpcclient.InferInput("x", [2, 3], "BYTES")
    other.set_data_from_numpy(np.array(texts, np.object_).reshape(2, 3))
    assert made.raw == other._get_content()


@pytest.mark.parametrize(
    "value, bits",
    [
        (1.0, 0x3F80),
        (1 + 2**-8, 0x3F80),
        (1 + 3 * 2**-8, 0x3F82),
        (float("nan"), 0x7FC0),
        (-float("inf"), 0xFF80),
    ],
)
def test_bfloat16_is_rounded_to_nearest(value, bits):
    made = Tensor.of("x", "BF16", (1,), [value])
    assert made.raw == bits.to_bytes(2, "little")
    (back,) = made.values()
    assert back == value or abs(value - 1) < 0.02 or np.isnan(value)


@pytest.mark.parametrize("bad, error, problem", [
    (None, TypeError, "is None"),
    (float("nan"), TypeError, "is nan"),
    (7.5, TypeError, "is 7.5"),
    ("a\ud800", ValueError, "character 1 is an unpaired surrogate"),
])
def test_invalid_input_of_a_list_is_named_by_its_index(bad, error, problem):
    with pytest.raises(error, match=rf"input \[1500\] {problem}|input \[1500\] .*{problem}"):
        prompt_list(["a"] * 1500 + [bad, "b"])


def parameter(name, value):
    request = generate_request("m", "p", 1, False, {name: value})
    sent = request.parameters[name]
    return getattr(sent, sent.WhichOneof("parameter_choice"))


@pytest.mark.parametrize("value, sent", [
    (np.int64(5), 5),
    (np.uint64(2**64 - 1), 2**64 - 1),
    (np.float32(0.5), 0.5),
    (np.float64(0.5), 0.5),
    (np.bool_(True), True),
    (np.str_("a"), "a"),
    (fractions.Fraction(1, 2), 0.5),
    (np.array([1, 2]), "[1, 2]"),
    ([np.int32(1), 2], "[1, 2]"),
    ((each for each in (1, 2)), "[1, 2]"),
    ([np.array([[0, 1]]), [(2, 3)]], "[[[0, 1]], [[2, 3]]]"),
    ({np.int64(7): np.float32(0.5)}, '{"7": 0.5}'),
])
def test_numbers_and_arrays_of_numpy_are_parameters(value, sent):
    made = parameter("x", value)
    assert made == sent and type(made) is type(sent)


@pytest.mark.parametrize("value", [b"a", [b"a"], object(), {"a": object()}, [None, {1j}]])
def test_value_that_is_not_a_parameter_is_refused_by_name(value):
    with pytest.raises(TypeError, match="^parameter x is .*expected a boolean, a number"):
        parameter("x", value)


@pytest.mark.parametrize("text", ["[INST]", '["a"]', "a"])
def test_stop_text_is_sent_as_a_list(text):
    assert json.loads(parameter("stop", text)) == [text]


CALLS_OF_LISTS = {
    **{name: lambda c, name=name: getattr(c, name)("m", [])
       for name in ("embed", "embed_tokens", "embed_sparse", "encode", "classify", "tag",
                    "tokenize")},
    "zero_shot": lambda c: c.zero_shot("m", [], ["x"]),
    "extract": lambda c: c.extract("m", [], ["x"]),
    "rerank": lambda c: c.rerank("m", "q", []),
    "score_pairs": lambda c: c.score_pairs("m", ["q"], []),
}


@pytest.mark.parametrize("call", CALLS_OF_LISTS)
def test_empty_list_is_refused_before_any_call(call):
    with Client("127.0.0.1:1") as client, pytest.raises(ValueError, match="inputs is empty"):
        CALLS_OF_LISTS[call](client)


def test_rows_of_a_tensor_are_its_items():
    draw = random.Random(9)
    values = [draw.uniform(-1, 1) for _ in range(12)]
    made = Tensor.of("x", "FP64", (3, 4), values)
    assert [list(row) for row in made] == made.tolist()
    assert list(made[1]) == made.tolist()[1] and made[-1][3] == values[-1]
    np.testing.assert_array_equal(np.asarray(made[2]), np.asarray(made)[2])
    texts = Tensor.of("x", "BYTES", (2, 1), ["a", "bc"])
    assert [list(row) for row in texts] == [[b"a"], [b"bc"]] and texts[1][0] == b"bc"
    for wrong in (3, -4):
        with pytest.raises(IndexError, match="3 rows"):
            made[wrong]


def test_mypy_accepts_the_client_and_finds_errors():
    """mypy accepts the package and finds the errors in a program that uses it."""
    program = (
        "from sluice_client import Client\n"
        "client = Client()\n"
        "text: str = client.generate('m', 'p', max_tokens=3, temperature=0.5).text\n"
        "wrong: int = client.generate('m', 'p', max_tokens=3).text\n"
        "client.embed('m', ['p'], pooling='first')\n"
        "client.embed('m', (each for each in ['p']), timeout_s=None)\n"
        "Client(timeout=3)\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir",
               ROOT / "build" / "mypy", "-c", program]
    checked = subprocess.run(command, cwd=CLIENT, capture_output=True, text=True)
    assert re.findall(r"^<string>:(\d+): error: .*\[([a-z-]+)\]$", checked.stdout, re.M) == [
        ("4", "assignment"), ("5", "arg-type"), ("7", "call-arg")], checked.stdout
    package = subprocess.run([*command[:-2], "-p", "sluice_client"], cwd=CLIENT,
                             capture_output=True, text=True)
    assert package.returncode == 0, package.stdout


def test_each_option_of_a_method_has_a_line_in_its_docstring():
    names = [name for name in dir(Client) if not name.startswith("_") and name != "close"]
    assert len(names) > 15
    for name in names:
        texts = [inspect.getdoc(getattr(kind, name)) for kind in (Client, AsyncClient)]
        assert texts[0] == texts[1] and "\n    timeout_s: " in texts[0], name
    assert "\n    temperature: " in Client.generate.__doc__


def test_wrong_uses_of_a_client_name_the_right_one():
    with pytest.raises(TypeError, match="use Client"):
        with AsyncClient():
            pass

    async def enter():
        async with Client():
            pass

    with pytest.raises(TypeError, match="use AsyncClient"):
        asyncio.run(enter())
    for kind in (Client, AsyncClient):
        with pytest.raises(TypeError, match="in each process"):
            pickle.dumps(kind())
    with pytest.raises(TypeError, match="did you mean 'attempts'"):
        Retry(max_attempts=3)
    for address in (None, ("localhost", 1)):
        with pytest.raises(TypeError, match="expected a text HOST:PORT"):
            Client(address)


def test_an_array_of_a_tensor_is_read_only():
    made = Tensor.of("x", "FP32", (2, 2), range(4))
    assert made.numpy().tolist() == made.tolist() and not made.numpy().flags.writeable
    assert (made * np.ones(2)).tolist() == made.tolist()


def test_protocol_descriptor_is_current():
    checked = subprocess.run([sys.executable, ROOT / "tools" / "make_client_protocol.py",
                              "--check"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
