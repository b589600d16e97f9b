"""Tests the Python client against real daemons.

Tests of calls run with the blocking client and with the asyncio client."""

import asyncio
import json
import random
import shutil
import threading
from unittest import mock

import numpy as np
import pytest
import sluice_client
from authority import Authority
from certificates import Files, SecureDaemon
from conftest import ROOT, Daemon
from infer import ids_inputs, infer, tensor, text_inputs
from python_clients import connect, time_moved_by  # noqa: F401
from scripted_server import ScriptedServer
from sentence_models import SENTENCES
from sluice_client import NEVER, Client, Tensor, errors
from tiny_model import TinyModel
from waiting import PATIENCE_S, wait_until


@pytest.fixture(scope="module")
def embeds(tmp_path_factory):
    """The folder of the demo model, served for embeddings to compare."""
    folder = tmp_path_factory.mktemp("embeds") / "embeds"
    shutil.copytree(ROOT / "models" / "demo", folder)
    config = json.loads((folder / "config.json").read_text())
    config["sluice"]["embedding"] = {"pooling": "last"}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def served(tmp_path_factory, embeds):
    folder = tmp_path_factory.mktemp("models")
    TinyModel(folder / "classifier", 2, head=False, causal=False,
              classifier={"labels": 3, "pooling": "cls", "pooler": "tanh"})
    with Daemon(
        models=[
            ("demo", ROOT / "models" / "demo"),
            ("recommender", ROOT / "models" / "recommender"),
            ("classifier", folder / "classifier"),
            ("embeds", embeds),
        ]
    ) as daemon:
        yield daemon


PROMPT = "And it came to pass"
WIDTH = 160  # of the demo model
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


def test_tokens_have_their_bytes_if_requested(served, connect):
    with connect(served.grpc) as client:
        plain = client.generate("demo", PROMPT, max_tokens=20, **DRAWN)
        answer = client.generate("demo", PROMPT, max_tokens=20, token_bytes=True, **DRAWN)
        parts = list(client.stream("demo", PROMPT, max_tokens=20, token_bytes=True, **DRAWN))
    assert plain.token_bytes == [] and plain.top_bytes == []
    assert (answer.text, answer.top) == (plain.text, plain.top)

    def spelled(token):  # The demo model's tokens are bytes; two more tokens have no text.
        return bytes([token]) if token < 256 else b""

    assert answer.token_bytes == list(map(spelled, answer.token_ids))
    assert answer.top_bytes == [[spelled(each.token_id) for each in top] for top in answer.top]
    for name in ("token_bytes", "top_bytes"):
        assert sum((getattr(part, name) for part in parts), []) == getattr(answer, name)


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
            own = np.array(vectors)
            own /= 2
            np.testing.assert_array_equal(own, expected["embedding"] / 2)
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


@pytest.mark.parametrize("one", ["And God said", b"And God said", [256, 65, 110]])
def test_one_prompt_is_one_row(served, connect, one):
    with connect(served.grpc) as client:
        vectors = client.embed("demo", one)
        assert vectors.shape == (1, WIDTH) and vectors == client.embed("demo", [one])
        (ranked,) = client.rerank("embeds", one, one)
        assert (ranked.document, ranked.score) == (0, pytest.approx(1))
        assert client.classify("classifier", [1, 2]) == client.classify("classifier", [[1, 2]])


def test_one_tensor_and_one_output_name_are_lists_of_one(served, connect):
    one = Tensor.of("text_input", "BYTES", (1, 1), ["a"])
    with connect(served.grpc) as client:
        assert list(client.infer("demo", one, outputs="embedding").outputs) == ["embedding"]


def test_one_stop_text_may_look_like_json(served, connect):
    with connect(served.grpc) as client:
        whole = client.generate("demo", PROMPT, max_tokens=30).text
        assert "a" in whole and "[" not in whole
        for text in ("[INST]", '["a"]'):
            assert client.generate("demo", PROMPT, max_tokens=30, stop=text).text == whole


def test_any_iterable_of_texts_is_a_list_of_prompts(served, connect):
    texts = ["And God said", "Jerusalem"]
    with connect(served.grpc) as client:
        expected = client.embed("demo", texts)
        for given in (iter(texts), np.array(texts), dict.fromkeys(texts).keys()):
            assert client.embed("demo", given) == expected
        assert client.embed("demo", [np.array([3, 4]), np.array([5])]) == client.embed(
            "demo", [[3, 4], [5]])


def test_truncated_tokens_are_reported(served, connect):
    fits, long = "a" * 255, "a" * 300  # The model has 256 positions and adds a token to a text.
    with connect(served.grpc) as client:
        with pytest.raises(errors.InvalidArgument, match="256.*max_positions.*truncate"):
            client.embed("demo", [fits, long])
        cut = client.embed("demo", [fits, long, long], truncate="right")
        assert (cut.prompt_tokens, cut.truncated_tokens) == (3 * 256, 2 * 45)
        assert client.embed("demo", [fits]).truncated_tokens == 0
        ranked = client.rerank("embeds", "a", [long, "b"], truncate="right")
        assert (ranked.prompt_tokens, ranked.truncated_tokens) == (2 + 256 + 2, 45)
        assert client.score("demo", long, truncate="left").truncated_tokens == 45
        rows = [[1] * 20, [2]]
        with pytest.raises(errors.InvalidArgument, match="truncate"):
            client.classify("classifier", rows)
        classified = client.classify("classifier", rows, truncate="right")
        assert (classified.prompt_tokens, classified.truncated_tokens) == (13, 8)


def test_answers_have_a_short_repr(served, connect):
    one = Tensor.of("text_input", "BYTES", (1, 1), ["a" * 200])
    with connect(served.grpc) as client:
        vectors = client.embed("demo", ["a"] * 100)
        assert repr(vectors).startswith("<Embeddings embedding: FP32 100x160, [")
        answers = [
            vectors,
            client.score("demo", "a" * 200),
            client.generate("demo", "a", max_tokens=100, ignore_eos=True, num_top_logprobs=5),
            client.rerank("embeds", "a", ["b"] * 100),
            client.classify("classifier", [[1]] * 100),
            client.infer("demo", one, outputs=["prompt_logprobs", "embedding"]),
        ]
    for each in answers:
        assert len(repr(each)) < 1000, each
    assert repr(Tensor.of("x", "BYTES", (2, 1), ["a", "b"])) == (
        "<Tensor x: BYTES 2x1, [b'a', b'b']>")
    assert repr(Tensor.of("x", "FP32", (4,), [0.5] * 4)) == (
        "<Tensor x: FP32 4, [0.5, 0.5, 0.5, ...]>")


@pytest.fixture(scope="module")
def narrow(embeds):
    """A daemon whose requests have at most 3 rows, and one with the default limit."""
    models = [("demo", ROOT / "models" / "demo"), ("cross", SENTENCES / "cross_1"),
              ("tokens", SENTENCES / "tokens"), ("embeds", embeds)]
    with Daemon("--server.grpc.max-rows", "3", models=models) as limited, \
            Daemon(models=models) as default:
        yield [limited, default]


def test_list_above_the_row_limit_is_split_without_changing_bits(narrow, connect):
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = random.Random(seed)
    lengths = [300, *(draw.randint(1, 300) for _ in range(10))]  # The first text is cut.
    texts = ["".join(draw.choices("abcdef ", k=each)) for each in lengths]
    ids = [[draw.randrange(256) for _ in range(draw.randint(1, 20))] for _ in range(10)]
    found = []
    for daemon in narrow:
        with connect(daemon.grpc) as client:
            vectors = client.embed("demo", texts, truncate="right")
            ranked = client.rerank("embeds", texts[0], texts, truncate="right")
            pairs = client.rerank("cross", "ab", texts, truncate="right")
            scored = client.classify("cross", [("ab", text) for text in texts], truncate="right")
            counts = [(each.prompt_tokens, each.truncated_tokens)
                      for each in (vectors, ranked, pairs, scored)]
            tags = client.tag("tokens", texts, truncate="right")
            found.append([vectors, client.embed("demo", ids), ranked, pairs, scored, tags, counts])
    split, whole = found
    assert split == whole and whole[0].shape == (11, WIDTH) and counts[0][1] > 0


def test_error_of_a_row_is_not_taken_for_a_limit_of_rows(narrow, connect):
    for daemon in narrow:
        with connect(daemon.grpc) as client:
            with pytest.raises(errors.InvalidArgument, match="truncate"):
                client.embed("demo", ["a", "a" * 300])


def test_request_that_is_too_large_is_split(daemon, connect):
    server = daemon("--engine.queue.max-tokens", "64")
    rows = [[each] * 10 for each in range(20)]
    with connect(server.grpc) as client:
        vectors = client.embed("demo", rows)
        assert vectors.shape == (20, WIDTH) and vectors.row_bytes(7) == client.embed(
            "demo", [rows[7]]).raw
        with pytest.raises(errors.InvalidArgument, match="engine.queue.max_tokens"):
            client.embed("demo", [[1] * 65])


class Counting:
    """A channel's calls of ModelInfer: at most `most` were in flight at once."""

    def __init__(self, client):
        self.most = self.now = 0
        self.gate = asyncio.Event()
        method = sluice_client._protocol.MODEL_INFER
        unary = client._connected().unary
        self._infer, unary[method] = unary[method], self._call

    async def _call(self, *arguments, **named):
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.gate.wait()
            return await self._infer(*arguments, **named)
        finally:
            self.now -= 1


def test_places_of_tokens_are_counted_in_characters(first_seed):
    from sluice_client.entities import tokens_of

    draw = random.Random(first_seed)
    for _ in range(200):
        text = "".join(draw.choices("ab\u00e9\u4e00\U0001f600", k=draw.randrange(30))).encode()
        text = draw.choice((text, draw.randbytes(len(text))))
        offsets = [sorted(draw.choices(range(len(text) + 1), k=2)) for _ in range(9)] + [[-1, -1]]
        characters = [[len(text[:at].decode(errors="replace")) if at >= 0 else -1 for at in both]
                      for both in offsets]
        found = tokens_of(text, range(10), offsets)
        assert [[each.begin, each.end] for each in found] == characters, (text, offsets)


def test_asyncio_client_limits_its_calls_in_flight(served):
    async def run():
        async with sluice_client.AsyncClient(served.grpc, max_in_flight=5) as client:
            calls = Counting(client)
            waiting = [asyncio.ensure_future(client.embed("demo", [[each]])) for each in range(40)]
            while calls.now < 5:
                await asyncio.sleep(0)
            # Calls that compute nothing do not wait, and neither does a call that is cancelled.
            assert await client.server_ready()
            waiting.pop().cancel()
            with pytest.raises(errors.DeadlineExceeded, match="max_in_flight"):
                await client.embed("demo", [[1]], timeout_s=0.001)
            calls.gate.set()
            await asyncio.gather(*waiting)
            # All slots are free again, also the slots of streams that are not read to the end.
            streams = [client.stream("demo", "a", max_tokens=40, ignore_eos=True)
                       for _ in range(12)]
            for each in streams:
                await anext(each)
            calls.most = 0
            await asyncio.gather(*(client.embed("demo", [[each]]) for each in range(20)))
            for each in streams:
                await each.aclose()
            return calls.most

    assert asyncio.run(asyncio.wait_for(run(), PATIENCE_S)) == 5
    with pytest.raises(ValueError, match="max_in_flight is 0"):
        sluice_client.AsyncClient(max_in_flight=0)


def test_waiting_for_a_slot_does_not_count_towards_the_deadline_of_the_client():
    async def run(server):
        async with sluice_client.AsyncClient(
            server.address, max_in_flight=1, timeout_s=30
        ) as client:
            calls = Counting(client)
            both = [asyncio.ensure_future(client.generate("demo", "a", max_tokens=1))
                    for _ in range(2)]
            while not calls.now:
                await asyncio.sleep(0)
            with time_moved_by(1000):
                calls.gate.set()
                return [each.text for each in await asyncio.gather(*both)]

    with ScriptedServer("one", "two") as server:
        assert asyncio.run(run(server)) == ["one", "two"]


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
            "demo", "embeds", "recommender", "classifier"}
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
        (lambda c: c.generate("classifier", [1], max_tokens=3), errors.NotServed, "no head"),
        (lambda c: list(c.stream("classifier", [1], max_tokens=3)), errors.NotServed, "no head"),
        (lambda c: c.generate("classifier", [1], max_tokens=3, timeout_s=9), errors.NotServed,
         "no head"),
        (lambda c: c.score("classifier", [1]), errors.NotServed, "prompt_logprobs"),
        (lambda c: c.recommend("recommender", [1], count=0), ValueError, "count is 0"),
        (lambda c: c.encode("demo", "a", "spans"), errors.InvalidArgument, "spans"),
        (lambda c: c.infer("demo", Tensor.of("text_input", "BYTES", (1, 1), ["a"]),
                           outputs="scores"), errors.InvalidArgument, "scores"),
        (lambda c: c.recommend("classifier", [1]), errors.NotServed, "classifier|head|top"),
        (lambda c: c.recommend("classifier", [1], candidates=[1]), errors.NotServed, "candidate"),
        (lambda c: list(c.stream("demo", "a", max_tokens=1, top_p=7.0)), errors.InvalidArgument,
         "top_p"),
        (lambda c: c.embed("demo", ["a"], timeout_s=1e-9), errors.DeadlineExceeded, "deadline"),
        (lambda c: c.embed("demo", ["a"], pool="mean"), TypeError, "pooling"),
        (lambda c: c.embed("demo", ["a"], poolin="mean"), TypeError, "did you mean 'pooling'"),
        (lambda c: c.embed(None, "a"), TypeError, "model is None; expected a text"),
        (lambda c: c.embed("demo", "a", model_version=1), TypeError, "model_version is 1"),
        (lambda c: c.embed("demo", {"a": 1}), TypeError, "a text, a list of token ids"),
        (lambda c: c.embed("demo", {"a", "b"}), TypeError, "a text, a list of token ids"),
        (lambda c: c.embed("demo", [True, False]), TypeError, "list of token ids, not .True"),
        (lambda c: c.embed("demo", [[1, True]]), TypeError, "list of token ids, not .1, True"),
        (lambda c: c.rerank("demo", "q", [{"text": "a"}]), TypeError, r"input \[0\] is {'text'"),
        (lambda c: c.rerank("demo", "q", ["a"], top_n=-1), ValueError, "top_n is -1"),
        (lambda c: c.rerank("demo", "q", ["a"], top_n="2"), ValueError, "top_n is '2'"),
        (lambda c: c.embed("demo", "a")[0:1], TypeError, "one integer"),
        (lambda c: c.embed("demo", ["a", [1]]), TypeError, "two calls"),
        (lambda c: c.embed("demo", [[1], {"text": "a"}]), TypeError, "'text': 'a'"),
        (lambda c: c.score("demo", ["a", "b"]), TypeError, "text or a list of token ids"),
        (lambda c: c.classify("classifier", ("a", "b")), TypeError, "list of one pair"),
        (lambda c: c.classify("classifier", [()]), errors.InvalidArgument,
         "input_ids|input_lengths"),
        (lambda c: c.classify("classifier", [(1, "b")]), TypeError, "expected a pair of texts"),
        (lambda c: c.generate("demo", "a", max_tokens=None), TypeError, "parameter max_tokens"),
        (lambda c: c.infer("demo", {"text_input": ["a"]}), TypeError, "Tensor.of"),
        (lambda c: c.infer("demo", [["a"]]), TypeError, "Tensor.of"),
        (lambda c: c.embed("demo", []), ValueError, "empty"),
        (lambda c: c.embed("demo", None), TypeError, "a text, a list of token ids"),
        (lambda c: c.embed("demo", "a", timeout_s="5"), TypeError, "a number of seconds"),
        (lambda c: c.embed("demo", "a", timeout_s=-1), ValueError, "timeout_s is -1"),
        (lambda c: c.embed("demo", "a", timeout_s=1e-9), TimeoutError, "deadline"),
        (lambda c: c.embed("demo", mock.Mock(spec=["columns", "__iter__"])), TypeError,
         "pass one column"),
        (lambda c: c.embed("demo", "a")[0, 0], TypeError, "numpy.asarray"),
        (lambda c: c.embed("demo", "a") * 2, TypeError, "numpy.asarray"),
        (lambda c: c.classify("classifier", [["a", "b"]]), TypeError, "pair as a tuple"),
        (lambda c: c.rerank("demo", "q", ["a"], top=2), TypeError, "did you mean 'top_n'"),
        (lambda c: c.embed_sparse("demo", "a"), errors.NotServed, "masked language model"),
        (lambda c: c.embed("classifier", [[1]]), errors.NotServed, "classifier has no embeddings"),
        (lambda c: c.generate("demo", "a", max_tokens=2**64), ValueError, "64 bits"),
    ],
)
def test_errors_have_a_class_and_name_the_mistake(served, connect, call, kind, text):
    with connect(served.grpc) as client:
        with pytest.raises(kind, match=text):
            call(client)


@pytest.mark.parametrize("address", ["http://localhost:8001", "https://localhost:8001"])
def test_an_address_with_a_scheme_of_http_is_refused(connect, address):
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        with connect(address):
            pass


@pytest.mark.parametrize("settings, kind, text", [
    ({"retry": 3}, TypeError, "retry is 3; expected a Retry"),
    ({"retry": None}, TypeError, "or NEVER"),
    ({"tls": True}, TypeError, r"tls is True; expected a Tls, such as Tls\(\)"),
    ({"timeout": 3}, TypeError, "did you mean 'timeout_s'"),
    ({"timeout_s": 0}, ValueError, "timeout_s is 0; expected a positive number"),
    ({"timeout_s": -5.0}, ValueError, "timeout_s is -5.0"),
    ({"timeout_s": "5"}, ValueError, "timeout_s is '5'"),
])
def test_wrong_settings_of_a_client_are_refused_when_it_is_made(connect, settings, kind, text):
    with pytest.raises(kind, match=text):
        with connect("localhost:1", **settings):
            pass


@pytest.mark.parametrize("settings", [{"attempts": 0}, {"attempts": -1}, {"attempts": 1.5},
                                      {"backoff_s": -1}, {"max_backoff_s": "1"}])
def test_wrong_settings_of_retries_are_refused(settings):
    (name,) = settings
    with pytest.raises(ValueError, match=f"{name} is"):
        sluice_client.Retry(**settings)


def test_an_asyncio_client_may_be_made_before_its_loop_and_is_used_in_one(served):
    client = sluice_client.AsyncClient(served.grpc)

    async def run():
        try:
            assert await client.server_ready()
        finally:
            await client.close()

    asyncio.run(run())
    unused = sluice_client.AsyncClient(served.grpc)
    asyncio.run(unused.close())

    async def call_in_another_loop():
        with pytest.raises(RuntimeError, match="one client for each event loop"):
            await other.server_ready()

    async def make():
        return sluice_client.AsyncClient(served.grpc)

    loop = asyncio.new_event_loop()
    other = loop.run_until_complete(make())
    asyncio.run(call_in_another_loop())
    loop.run_until_complete(other.close())
    loop.close()


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


def test_a_stream_starts_no_thread_for_its_request(served, monkeypatch):
    started, start = [], threading.Thread.start

    def counted(thread):
        started.append(thread)
        start(thread)

    with Client(served.grpc) as client:
        client.server_ready()
        monkeypatch.setattr(threading.Thread, "start", counted)
        for _ in range(3):
            assert len(list(client.stream("demo", "a", max_tokens=2, ignore_eos=True))) > 0
    assert len(started) <= 3, "gRPC reads the events of each call on one thread"


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
