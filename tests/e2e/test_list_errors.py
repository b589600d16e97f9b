"""Tests that an error about an input names its place in the caller's list.

The daemon takes few rows in a request, so the client and the gateway split the lists."""

import json
import random
import shutil

import pytest
from conftest import DEMO, Daemon
from gateway import Gateway
from python_clients import connect  # noqa: F401
from sentence_models import GOLDENS, SENTENCES
from sluice_client import errors

MODELS = [("demo", DEMO), ("cross_1", SENTENCES / "cross_1"), ("cross_3", SENTENCES / "cross_3"),
          ("colbert", GOLDENS / "retrieval" / "colbert")]
LABELS = ["sport", "politics", "music"]
# Too many bytes, and too many tokens.
TOO_LONG = ["In the beginning " * 2000, "a b " * 100]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    # The demo model, served for embeddings to compare.
    encoder = tmp_path_factory.mktemp("models") / "encoder"
    shutil.copytree(DEMO, encoder)
    config = json.loads((encoder / "config.json").read_text())
    config["sluice"]["embedding"] = {"pooling": "last"}
    (encoder / "config.json").write_text(json.dumps(config))
    with Daemon("--server.grpc.max-rows", "8", models=[*MODELS, ("encoder", encoder)]) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def gateway(served):
    with Gateway(served.grpc, "--default-model", "cross_3") as started:
        yield started


def drawn(seed, bad):
    """Returns a list of texts, and the place of `bad` in it."""
    draw = random.Random(seed)
    texts = ["a"] * draw.randint(2, 200)
    place = draw.randrange(len(texts))
    print("seed", seed, "place", place, "of", len(texts))
    texts[place] = bad
    return texts, place


CALLS = {
    "classify": lambda c, texts: c.classify("cross_3", texts, truncate="error"),
    "classify pairs": lambda c, texts: c.classify(
        "cross_3", [("b", each) for each in texts], truncate="error"),
    "zero_shot": lambda c, texts: c.zero_shot("cross_3", texts, LABELS, truncate="error"),
    "embed": lambda c, texts: c.embed("encoder", texts, truncate="error"),
    "tokenize": lambda c, texts: c.tokenize("encoder", texts, truncate="error"),
    "rerank by pairs": lambda c, texts: c.rerank("cross_1", "a", texts, truncate="error"),
    "score_pairs": lambda c, texts: c.score_pairs(
        "cross_1", ["a"] * len(texts), texts, truncate="error"),
    "rerank by cosines": lambda c, texts: c.rerank("encoder", "a", texts, truncate="error"),
    "score_pairs by cosines": lambda c, texts: c.score_pairs(
        "encoder", ["a"] * len(texts), texts, truncate="error"),
    "rerank by maxsim": lambda c, texts: c.rerank("colbert", "a", texts, truncate="error"),
    "score_pairs by maxsim": lambda c, texts: c.score_pairs(
        "colbert", ["a"] * len(texts), texts, truncate="error"),
}


@pytest.mark.parametrize("bad", TOO_LONG, ids=["bytes", "tokens"])
@pytest.mark.parametrize("call", CALLS)
def test_client_names_the_place_in_the_list(served, connect, call, bad):
    with connect(served.grpc) as client:
        for seed in range(4):
            texts, place = drawn(seed, bad)
            with pytest.raises(errors.InvalidArgument) as error:
                CALLS[call](client, texts)
            assert error.value.item == place and f"[{place}] has " in str(error.value), error.value


@pytest.mark.parametrize("call", ["rerank by pairs", "rerank by cosines", "rerank by maxsim"])
def test_too_long_query_is_not_an_item(served, connect, call):
    model = {"pairs": "cross_1", "cosines": "encoder", "maxsim": "colbert"}[call.split()[-1]]
    with connect(served.grpc) as client, pytest.raises(errors.InvalidArgument) as error:
        client.rerank(model, TOO_LONG[0], ["a", "b"], truncate="error")
    assert error.value.item is None


def test_token_ids_and_spans_name_the_place_in_the_list(served, connect):
    with connect(served.grpc) as client:
        with pytest.raises(errors.InvalidArgument, match=r"input_ids \[21, 1\] is 99999") as error:
            client.embed("demo", [[1, 2]] * 21 + [[3, 99999]])
        assert error.value.item == 21
        with pytest.raises(errors.InvalidArgument, match=r"\[19\]\[0\].* row 19 has") as error:
            client.encode("demo", ["a"] * 20, ["spans"], spans=[[[0, 1]]] * 19 + [[[0, 9]]])
        assert error.value.item == 19


BODIES = {
    "/v1/embeddings": ("input", lambda t: {"model": "encoder", "input": t, "truncate": "error"}),
    "/classify": ("input", lambda t: {"input": t, "truncate": "error"}),
    "/embed": ("inputs", lambda t: {"model": "encoder", "inputs": t, "truncate": False}),
    "/v1/rerank": ("documents", lambda t: {"model": "cross_1", "query": "a", "documents": t,
                                           "truncate": "error"}),
    "/predict": ("inputs", lambda t: {"inputs": [["a", each] if i % 2 else [each]
                                                 for i, each in enumerate(t)],
                                      "truncate": False}),
    "/similarity": ("sentences", lambda t: {
        "model": "encoder", "inputs": {"source_sentence": "a", "sentences": t},
        "parameters": {"truncate": False}}),
}


@pytest.mark.parametrize("path", BODIES)
def test_gateway_names_the_place_in_the_list(gateway, path):
    field, body = BODIES[path]
    for seed in range(4):
        texts, place = drawn(seed, TOO_LONG[0])
        reply = gateway.post(path, body(texts))
        assert reply.status == 400 and f"[{place}] has " in reply.body.decode(), reply.body
        if path in ("/v1/embeddings", "/classify"):
            assert reply.json["error"]["param"] == f"{field}[{place}]"


def test_zero_shot_classification_cuts_long_texts_of_a_list(gateway):
    def answers(texts):
        reply = gateway.post("/zero-shot-classification", {
            "inputs": texts, "parameters": {"candidate_labels": LABELS}})
        assert reply.status == 200, reply.body
        return [(each["labels"], each["scores"]) for each in reply.json]

    texts, place = drawn(0, TOO_LONG[0])
    cut = [text[:len(text) // 2] if i == place else text for i, text in enumerate(texts)]
    assert answers(texts) == answers(cut) and len(texts) == len(answers(texts))


def test_gateway_names_the_prompt_of_a_list(gateway):
    reply = gateway.post("/v1/completions", {"model": "demo", "max_tokens": 1, "n": 2,
                                             "prompt": ["a"] * 5 + [TOO_LONG[0]]})
    assert reply.status == 400 and reply.json["error"]["param"] == "prompt[5]"
    assert "text_input [5] has" in reply.json["error"]["message"]


def test_a_single_text_is_named_without_an_index(gateway):
    reply = gateway.post("/v1/embeddings", {"model": "encoder", "input": TOO_LONG[0],
                                            "truncate": "error"})
    assert reply.status == 400 and reply.json["error"]["param"] == "input"
