"""Tests the Python client against real daemons, and its retries against a scripted server.

Tests of calls run with the blocking client and with the asyncio client."""

import asyncio
import json
import random
import re
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
import sluice_client
import tritonclient.grpc as grpcclient
from authority import Authority
from certificates import Files, SecureDaemon
from conftest import CLIENT, ROOT, Daemon
from infer import ids_inputs, infer, tensor, text_inputs
from scripted_server import Refusal, ScriptedServer
from sluice_client import NEVER, Retry, Tensor, errors, options
from tiny_model import TinyModel
from waiting import PATIENCE_S, wait_until


class FromAsyncio:
    """An AsyncClient with the methods of a Client; its event loop runs in a thread."""

    def __init__(self, *arguments, **named):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._client = self._run(self._make(*arguments, **named))

    async def _make(self, *arguments, **named):
        return sluice_client.AsyncClient(*arguments, **named)

    def _run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._run(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __getattr__(self, name):
        return lambda *arguments, **named: self._run(
            getattr(self._client, name)(*arguments, **named)
        )

    def stream(self, *arguments, **named):
        parts = self._client.stream(*arguments, **named)
        try:
            while True:
                try:
                    yield self._run(anext(parts))
                except StopAsyncIteration:
                    return
        finally:
            self._run(parts.aclose())


@pytest.fixture(params=[sluice_client.Client, FromAsyncio], ids=["blocking", "asyncio"])
def connect(request):
    return request.param


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    TinyModel(folder / "classifier", 2, head=False, causal=False,
              classifier={"labels": 3, "pooling": "cls", "pooler": "tanh"})
    shutil.copytree(ROOT / "models" / "demo", folder / "embeds")
    config = json.loads((folder / "embeds" / "config.json").read_text())
    config["sluice"]["embedding"] = {"pooling": "last"}
    (folder / "embeds" / "config.json").write_text(json.dumps(config))
    daemon = Daemon(
        models=[
            ("demo", ROOT / "models" / "demo"),
            ("recommender", ROOT / "models" / "recommender"),
            ("classifier", folder / "classifier"),
            ("embeds", folder / "embeds"),
        ]
    )
    yield daemon
    status, output = daemon.stop()
    assert status == 0, output


PROMPT = "And it came to pass"
DRAWN = {"temperature": 0.9, "seed": 2**63 + 5, "top_k": 20, "stop": ["xyzzy", "\n"],
         "logit_bias": {101: -1.5, 122: None}, "num_top_logprobs": 3, "stop_token_ids": [10]}


def test_answer_has_the_same_bits_as_with_tritonclient(served, connect):
    with served.client() as other, connect(served.grpc) as client:
        expected = infer(
            other, text_inputs(PROMPT), max_tokens=30, temperature="0.9", seed=str(2**63 + 5),
            top_k=20, stop='["xyzzy", "\\n"]', logit_bias='{"101": -1.5, "122": null}',
            num_top_logprobs=3, stop_token_ids="10")
        answer = client.generate("demo", PROMPT, max_tokens=30, **DRAWN)
    assert answer.text.encode() == expected["text_output"][0, 0]
    assert answer.finish_reason.encode() == expected["finish_reason"][0, 0]
    np.testing.assert_array_equal(answer.token_ids, expected["output_ids"][0])
    np.testing.assert_array_equal(np.float32(answer.logprobs), expected["logprobs"][0])
    np.testing.assert_array_equal(
        [[each.token_id for each in top] for top in answer.top], expected["top_ids"][0])
    np.testing.assert_array_equal(
        np.float32([[each.logprob for each in top] for top in answer.top]),
        expected["top_logprobs"][0])
    assert answer.prompt_tokens == len(PROMPT) + 1  # The model adds a token before a text.


def test_parts_of_a_stream_join_to_the_answer(served, connect):
    with connect(served.grpc) as client:
        whole = client.generate("demo", PROMPT, max_tokens=40, **DRAWN)
        parts = list(client.stream("demo", PROMPT, max_tokens=40, **DRAWN))
    # The number of parts depends on how quickly they are read.
    assert "".join(part.text for part in parts) == whole.text
    for name in ("token_ids", "logprobs", "top"):
        assert sum((getattr(part, name) for part in parts), []) == getattr(whole, name)
    assert [part.finish_reason for part in parts] == [""] * (len(parts) - 1) + [whole.finish_reason]
    tokens = [0] * (len(parts) - 1) + [whole.prompt_tokens]
    assert [part.prompt_tokens for part in parts] == tokens


def test_a_drawn_seed_is_returned_and_repeats_the_answer(served, connect):
    with connect(served.grpc) as client:
        first = client.generate("demo", PROMPT, max_tokens=20, temperature=1.0)
        again = client.generate("demo", PROMPT, max_tokens=20, temperature=1.0, seed=first.seed)
    assert first.seed is not None and again.seed is None
    assert first.token_ids == again.token_ids


def test_scores_and_embeddings_have_the_same_bits_as_with_tritonclient(served, connect):
    rows = [[3, 17, 5], [1], [30, 2, 2, 9]]
    with served.client() as other, connect(served.grpc) as client:
        expected = infer(other, text_inputs(PROMPT), ["prompt_logprobs"], max_tokens=0)
        score = client.score("demo", PROMPT)
        np.testing.assert_array_equal(np.float32(score.logprobs), expected["prompt_logprobs"][0])
        assert score.total == pytest.approx(sum(score.logprobs))
        for prompts, inputs in ((rows, ids_inputs(rows)), (["a", "bcd"], text_inputs("a", "bcd"))):
            expected = infer(other, inputs, ["embedding"], pooling="mean", normalize=True)
            vectors = client.embed("demo", prompts, pooling="mean", normalize=True)
            np.testing.assert_array_equal(np.asarray(vectors), expected["embedding"])
            assert np.float32(vectors.tolist()).tobytes() == expected["embedding"].tobytes()
            assert vectors.row_bytes(1) == expected["embedding"][1].tobytes()
        assert client.embed("demo", rows).prompt_tokens == 8


def test_a_classifier_names_the_label_with_the_highest_score(served, connect):
    rows = [[3, 17, 5], [1], [30, 2, 2, 9]]
    with served.client() as other, connect(served.grpc) as client:
        expected = infer(other, ids_inputs(rows), model="classifier", activation="softmax")
        answers = client.classify("classifier", rows, activation="softmax")
    assert [each.label for each in answers] == list(expected["scores"].argmax(1))
    np.testing.assert_array_equal(np.float32([each.scores for each in answers]), expected["scores"])


def test_documents_are_ranked_by_the_cosine_of_their_embeddings(served, connect):
    documents = ["And the LORD said", "And God said", "Jerusalem"]
    with connect(served.grpc) as client:
        ranked = client.rerank("embeds", "And God said", documents)
        vectors = np.asarray(client.embed("demo", ["And God said", *documents]), np.float64)
        best = client.rerank("embeds", "And God said", documents, top_n=1)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors[1:] @ vectors[0]
    assert [each.document for each in ranked] == list(np.argsort(-cosines))
    np.testing.assert_allclose([each.score for each in ranked], np.sort(cosines)[::-1], rtol=1e-5)
    assert best == ranked[:1]


def test_a_model_that_generates_does_not_rank_documents(served, connect):
    with connect(served.grpc) as client:
        assert client.metadata("demo").properties["task"] == "generate"
        assert client.metadata("embeds").properties["task"] == "embed"
        assert client.metadata("classifier").properties["task"] == "classify"
        with pytest.raises(errors.NotServed, match="generates text.*sluice.embedding"):
            client.rerank("demo", "And God said", ["Jerusalem"])


def test_a_classifier_of_several_labels_does_not_rank_documents(served, connect):
    with connect(served.grpc) as client:
        with pytest.raises(errors.NotServed, match="has 3 labels"):
            client.rerank("classifier", [1], [[2]])


def test_recommended_items_are_the_best_that_are_not_excluded(served, connect):
    history = [5, 80, 8, 83, 11]
    with served.client() as other, connect(served.grpc) as client:
        seen = tensor("exclude_ids", np.array([[0, *sorted(history)]], np.int32), "INT32")
        expected = infer(other, [*ids_inputs([history]), seen], ["top_ids", "top_scores"],
                         model="recommender", max_tokens=1, num_top_logprobs=5)
        best = client.recommend("recommender", history, count=5, exclude=[0, *history])
        items = [each.item for each in best]
        some = client.recommend("recommender", history, candidates=items[::-1], exclude=items[:1])
    np.testing.assert_array_equal(items, expected["top_ids"][0, 0])
    np.testing.assert_array_equal([each.score for each in best], expected["top_scores"][0, 0])
    assert [each.item for each in some] == items[1:]


def test_models_metadata_and_readiness_are_returned(served, connect):
    with connect(served.grpc) as client:
        assert {each.name for each in client.models(ready=True)} == {
            "demo", "recommender", "classifier"}
        info = client.metadata("classifier")
        assert [(each.name, each.shape) for each in info.outputs] == [("scores", (-1, 3))]
        assert client.server_ready() and client.model_ready("demo", model_version="1")
        assert not client.model_ready("demo", model_version="2")
        assert "statistics" in client.server_info().extensions


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (lambda c: c.generate("none", "a", max_tokens=1), errors.NotFound, "none"),
        (lambda c: c.generate("demo", "a", max_tokens=1, top_p=7.0), errors.InvalidArgument,
         "top_p"),
        (lambda c: c.generate("classifier", [1], max_tokens=0), errors.NotServed, "scores"),
        (lambda c: list(c.stream("demo", "a", max_tokens=1, top_p=7.0)), errors.InvalidArgument,
         "top_p"),
        (lambda c: c.embed("demo", ["a"], timeout_s=1e-9), errors.DeadlineExceeded, "deadline"),
        (lambda c: c.embed("demo", ["a"], pool="mean"), TypeError, "pooling"),
        (lambda c: c.embed("demo", ["a", [1]]), TypeError, "two calls"),
        (lambda c: c.embed("demo", []), ValueError, "empty"),
        (lambda c: c.generate("demo", "a", max_tokens=2**64), ValueError, "64 bits"),
    ],
)
def test_errors_have_a_class_and_name_the_mistake(served, connect, call, kind, text):
    with connect(served.grpc) as client:
        with pytest.raises(kind, match=text):
            call(client)


TOKEN = "a-token-of-the-tests"


def test_client_sends_its_certificate_and_token(connect, tmp_path):
    authority = Authority()
    files = Files(tmp_path, authority)
    (tmp_path / "callers").write_text(f"alice: token:{TOKEN}\n")
    own = tmp_path / "own.crt", tmp_path / "own.key"
    for file, content in zip(own, authority.pair(name="client")):
        file.write_bytes(content)
    server = SecureDaemon(
        authority.certificate, *files.options(), "--server.tls.client-ca-file", str(files.ca),
        "--server.auth.callers-file", str(tmp_path / "callers"), "--server.auth.anonymous", "false")
    tls = sluice_client.Tls(files.ca, *own, server_name="localhost")
    try:
        with connect(server.grpc, tls=tls, token=TOKEN) as client:
            assert client.generate("demo", "a", max_tokens=1).token_ids
            assert len(list(client.stream("demo", "a", max_tokens=1))) == 1
        with connect(server.grpc, tls=tls, token="another-token-of-16") as client:
            with pytest.raises(errors.NotAllowed) as error:
                client.generate("demo", "a", max_tokens=1)
            assert error.value.reason == "token_unknown"
        with connect(server.grpc, tls=sluice_client.Tls(files.ca), retry=NEVER) as client:
            with pytest.raises(errors.Unavailable):
                client.generate("demo", "a", max_tokens=1)
    finally:
        server.stop()


def test_closing_a_stream_cancels_its_request(daemon, gate, connect):
    middle = gate("middle")
    server = daemon(faults=f"deliver@s:delay=0*3;deliver@s:{middle}*1;deliver@s:delay=20")
    with connect(server.grpc) as client:
        parts = client.stream("demo", "a", max_tokens=250, ignore_eos=True, request_id="s")
        next(parts)
        middle.await_met()
        parts.close()
        middle.open()
        wait_until(lambda: server.metric("sluice_requests_total", code="CANCELLED") == 1)


def test_call_is_retried_after_the_push_back_delay(connect):
    with ScriptedServer(
        Refusal("RESOURCE_EXHAUSTED", 50), Refusal("UNAVAILABLE"), "answer"
    ) as server, connect(server.address, retry=Retry(backoff_s=1e-3), token="secret") as client:
        assert client.generate("demo", "a", max_tokens=1).text == "answer"
    first, second, _ = server.arrivals
    assert second - first >= 0.05
    assert all(each["authorization"] == "Bearer secret" for each in server.metadata)


def test_stream_yields_each_part(connect):
    with ScriptedServer(["one", "two", "three"]) as server, connect(server.address) as client:
        parts = client.stream("demo", "a", max_tokens=3)
        assert [part.text for part in parts] == ["one", "two", "three"]


def test_stream_is_retried_only_before_its_first_part(connect):
    refused = Refusal("RESOURCE_EXHAUSTED", 1)
    with ScriptedServer([refused], ["one", refused]) as server, connect(server.address) as client:
        parts = client.stream("demo", "a", max_tokens=1)
        assert next(parts).text == "one"
        with pytest.raises(errors.Overloaded) as error:
            next(parts)
        assert error.value.retry_after_s == 0.001 and not server.script


@pytest.mark.parametrize(
    "refusal, options",
    [
        pytest.param(Refusal("RESOURCE_EXHAUSTED"), {}, id="no push-back"),
        pytest.param(Refusal("RESOURCE_EXHAUSTED", 10**6), {}, id="longer than the deadline"),
        pytest.param(Refusal("INVALID_ARGUMENT", 1), {}, id="an error of the caller"),
        pytest.param(Refusal("UNAVAILABLE"), {"retry": NEVER}, id="no retries"),
    ],
)
def test_call_is_not_retried_if_a_retry_cannot_succeed(connect, refusal, options):
    with ScriptedServer(refusal) as server, connect(server.address, **options) as client:
        with pytest.raises(errors.SluiceError) as error:
            client.generate("demo", "a", max_tokens=1)
        assert error.value.code == refusal.code and not server.script
        assert error.value.reason == ("full" if refusal.pushback_ms else "")


def test_backoff_grows_up_to_its_limit_and_ends():
    retry = Retry(attempts=4, backoff_s=1, max_backoff_s=3)
    away = errors.Unavailable("away", "UNAVAILABLE")
    waits = [retry.delay_s(away, attempt, 100, lambda: 0.5) for attempt in (1, 2, 3, 4)]
    assert waits == [0.5, 1, 1.5, None]
    assert retry.delay_s(away, 1, 0.4, lambda: 0.5) is None


def test_options_match_the_parameters_of_the_daemon():
    table = (ROOT / "docs" / "api.md").read_text().partition("## Parameters")[2]
    served = set(re.findall(r"^\| `(\w+)` \|", table, re.M))
    kinds = (options.GenerateOptions, options.EmbedOptions, options.ClassifyOptions,
             options.RecommendOptions, options.SparseOptions)
    offered = set().union(*(kind.__annotations__ for kind in kinds))
    # timeout_s replaces `timeout`. recommend supports only the logits of candidates.
    elsewhere = {"max_tokens", "timeout", "triton_enable_empty_final_response",
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


def test_mypy_accepts_the_client_and_finds_errors():
    """mypy accepts the package and finds the errors in a program that uses it."""
    program = (
        "from sluice_client import Client\n"
        "client = Client()\n"
        "text: str = client.generate('m', 'p', max_tokens=3, temperature=0.5).text\n"
        "wrong: int = client.generate('m', 'p', max_tokens=3).text\n"
        "client.embed('m', ['p'], pooling='first')\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir",
               ROOT / "build" / "mypy", "-c", program]
    checked = subprocess.run(command, cwd=CLIENT, capture_output=True, text=True)
    assert re.findall(r"^<string>:(\d+): error: .*\[([a-z-]+)\]$", checked.stdout, re.M) == [
        ("4", "assignment"), ("5", "arg-type")], checked.stdout
    package = subprocess.run([*command[:-2], "-p", "sluice_client"], cwd=CLIENT,
                             capture_output=True, text=True)
    assert package.returncode == 0, package.stdout


def test_protocol_descriptor_is_current():
    checked = subprocess.run([sys.executable, ROOT / "tools" / "make_client_protocol.py",
                              "--check"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
