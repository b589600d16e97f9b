"""Tests how the Python client sends a long list: in parts, with a bounded number in flight."""

import random
import threading

import grpc
import pytest
from python_clients import connect, no_call_left  # noqa: F401
from scripted_server import ScriptedServer
from sluice_client import Client, Tensor, _protocol, errors
from waiting import PATIENCE_S, wait_until

MOST_ROWS, MOST_BYTES, MOST_PARTS = 64, 32 << 10, 16


def texts_of(request):
    """Returns the texts of a request, or the rows of its token ids."""
    (raw, *lengths) = request.raw_input_contents
    inputs = request.inputs[0]
    values = Tensor(inputs.name, inputs.datatype, tuple(inputs.shape), raw).tolist()
    if inputs.name == "text_input":
        return [row[0] for row in values]
    ((counts),) = [Tensor("", "INT32", (len(values),), lengths[0]).values()]
    return [row[:count] for row, count in zip(values, counts)]


def embedded(texts):
    """Returns an answer whose vectors are the lengths of the texts."""
    answer = _protocol.MODEL_INFER.response(model_name="m")
    vectors = Tensor.of("embedding", "FP32", (len(texts), 1), [len(each) for each in texts])
    answer.outputs.add(name=vectors.name, datatype=vectors.datatype, shape=vectors.shape)
    answer.raw_output_contents.append(vectors.raw)
    answer.parameters["prompt_tokens"].int64_param = sum(map(len, texts))
    answer.parameters["truncated_tokens"].int64_param = len(texts)
    return answer


class Embedder:
    """Answers requests, and records the texts of each and how many were in flight together."""

    def __init__(self):
        self.requests = []
        self.times_left = []
        self.peak = 0
        self._in_flight = 0
        self._lock = threading.Lock()
        self._two = threading.Barrier(2)

    def __call__(self, request, context):
        texts = texts_of(request)
        with self._lock:
            self.requests.append(texts)
            self.times_left.append(context.time_remaining())
            self._in_flight += 1
            self.peak = max(self.peak, self._in_flight)
            first = len(self.requests) <= 2
        if first:
            self._two.wait(PATIENCE_S)  # Without a second request in flight, this fails.
        with self._lock:
            self._in_flight -= 1
        return embedded(texts)


@pytest.mark.parametrize("seed", range(4))
def test_a_long_list_is_sent_in_parts_in_order(connect, seed):
    draw = random.Random(seed)
    longest = draw.choice((10, 600, 4000, 2 * MOST_BYTES))
    count = draw.randint(65, 1500 if longest < MOST_BYTES else 100)
    print("seed", seed, count, "texts of up to", longest)
    # Each length occurs, so that the order shows.
    inputs = ["a" * draw.randint(1, longest) for _ in range(count)]
    if seed % 2:
        inputs = [[1] * (1 + len(each) // 4) for each in inputs]
    size = 4 if seed % 2 else 1
    embedder = Embedder()
    with ScriptedServer(infer=embedder) as server, connect(server.address) as client:
        vectors = client.embed("m", inputs)
    assert vectors.tolist() == [[float(len(each))] for each in inputs]
    assert vectors.prompt_tokens == sum(map(len, inputs)) and vectors.truncated_tokens == count
    assert 2 <= embedder.peak <= MOST_PARTS
    for part in embedder.requests:
        assert len(part) == 1 or (
            len(part) <= MOST_ROWS and size * sum(map(len, part)) <= MOST_BYTES)
    # The client's deadline of 60 s, for each part.
    assert all(30 < each < 61 for each in embedder.times_left)


def test_large_parts_are_in_flight_two_at_a_time(connect):
    embedder = Embedder()
    with ScriptedServer(infer=embedder) as server, connect(server.address) as client:
        client.embed("m", ["a" * (4 * MOST_BYTES)] * 12)
    assert embedder.peak == 2 and len(embedder.requests) == 12


def test_an_error_names_its_item_and_ends_the_other_parts(connect):
    bad, ended = 150, []
    arrived = threading.Semaphore(0)

    def infer(request, context):
        texts = texts_of(request)
        if b"bad" in texts:
            for _ in range(2):  # Other parts are in flight.
                assert arrived.acquire(timeout=PATIENCE_S)
            context.set_trailing_metadata([("sluice-reason", "parameter")])
            context.abort(grpc.StatusCode.INVALID_ARGUMENT,
                          f"input text_input [{texts.index(b'bad')}] has 9 tokens")
        done = threading.Event()
        context.add_callback(done.set)
        arrived.release()
        assert done.wait(PATIENCE_S)  # They end because the client cancels them.
        ended.append(context.code())
        return embedded(texts)

    texts = ["a"] * 400
    texts[bad] = "bad"
    with ScriptedServer(infer=infer) as server, connect(server.address) as client:
        with pytest.raises(errors.InvalidArgument, match=rf"\[{bad}\] has 9 tokens") as error:
            client.embed("m", texts)
        assert error.value.item == bad
        wait_until(lambda: len(ended) >= 2)


def test_failed_list_leaves_no_call():
    def infer(request, context):
        if b"bad" in texts_of(request):
            assert arrived.acquire(timeout=PATIENCE_S)  # Another part is in flight.
            context.abort(grpc.StatusCode.NOT_FOUND, "scripted refusal")
        done = threading.Event()
        context.add_callback(done.set)
        arrived.release()
        done.wait(PATIENCE_S)
        return embedded(texts_of(request))

    arrived = threading.Semaphore(0)
    with ScriptedServer(infer=infer) as server, Client(server.address) as client, no_call_left():
        with pytest.raises(errors.NotFound) as error:
            client.embed("m", ["bad"] + ["a"] * 200)
        assert error.value.code == "NOT_FOUND"


def test_texts_and_token_ids_of_different_parts_are_not_mixed(connect):
    with ScriptedServer() as server, connect(server.address) as client:
        with pytest.raises(TypeError, match="mix texts and token ids"):
            client.embed("m", ["a"] * 64 + [[1]] * 64)


def lengths(request, _):
    return embedded(texts_of(request))


@pytest.mark.parametrize("count, calls", [(MOST_ROWS, 0), (MOST_ROWS + 1, 2)])
def test_the_fingerprint_is_compared_for_several_requests_only(connect, count, calls):
    read = []
    with ScriptedServer(infer=lengths, fingerprint=lambda: read.append(1) or "a") as server:
        with connect(server.address) as client:
            assert len(client.embed("m", ["a"] * count)) == count
    assert len(read) == calls


def test_a_list_of_two_models_is_an_error(connect):
    fingerprints = ["a", "b"]
    with ScriptedServer(infer=lengths, fingerprint=lambda: fingerprints.pop(0)) as server:
        with connect(server.address) as client:
            with pytest.raises(errors.ModelChanged, match="model m was reloaded"):
                client.embed("m", ["a"] * (MOST_ROWS + 1))
    assert not fingerprints


def test_parts_of_different_widths_are_an_error(connect):
    def infer(request, _):
        texts = texts_of(request)
        answer = embedded(texts)
        if len(texts) == 1:
            answer.outputs[0].shape[1] = 2
            answer.raw_output_contents[0] *= 2
        return answer

    with ScriptedServer(infer=infer) as server, connect(server.address) as client:
        with pytest.raises(errors.ModelChanged):
            client.embed("m", ["a"] * (MOST_ROWS + 1))
