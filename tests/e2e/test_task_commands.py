"""Tests the commands embed, rerank, classify and tag on a daemon with small models."""

import json
import subprocess

import numpy as np
import pytest
from conftest import SLUICE, Daemon
from infer import infer, tensor, text_inputs
from sentence_models import EXPECTED, SENTENCES, lay
from sluice_client import Client, NotServed

TEXTS = EXPECTED["texts"]
PAIRS = EXPECTED["pairs"]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    with Daemon(models=[("dense", lay(folder / "dense", "dense")),
                        *((name, SENTENCES / name)
                          for name in ("cross_1", "cross_3", "tokens"))]) as daemon:
        yield daemon


def run(served, command, *words, text="", status=0):
    done = subprocess.run([SLUICE, "--server", served.grpc, command, *words], input=text,
                          capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def lines(output):
    return [json.loads(line) for line in output.splitlines()]


def test_embed_shows_the_embeddings_of_texts(served):
    words = ("--model", "dense", "--prompt-name", "short", "--dimensions", "7")
    answers = lines(run(served, "embed", *words, "--json", *TEXTS[:3]))
    with served.client() as client:
        expected = infer(client, text_inputs(*TEXTS[:3]), model="dense", prompt_name="short",
                         dimensions=7)
    assert [each["text"] for each in answers] == TEXTS[:3]
    np.testing.assert_array_equal(np.float32([each["embedding"] for each in answers]),
                                  expected["embedding"])
    heading, first, *_ = run(served, "embed", *words, *TEXTS[:3]).splitlines()
    assert heading.split() == ["TEXT", "VALUES", "FIRST", "VALUES"] and " 7 " in first


@pytest.mark.parametrize("model", ["cross_1", "cross_3", "tokens"])
def test_classifiers_have_no_embeddings(served, model):
    error = run(served, "embed", "--model", model, "a", status=1)
    assert "is a classifier or reranker" in error and "sluice.embedding" in error
    with Client(served.grpc) as client, pytest.raises(NotServed, match="classifier or reranker"):
        client.embed(model, "a")


def test_many_texts_come_from_standard_input(served):
    many = [f"{TEXTS[0]} {i}" for i in range(300)]  # more than fit in one request
    answers = lines(run(served, "embed", "--model", "dense", "--json", "-", text="\n".join(many)))
    assert [each["text"] for each in answers] == many
    assert "there are no texts" in run(served, "embed", "--model", "dense", "-", status=2)


def test_rerank_orders_documents_by_the_scores_of_their_pairs(served):
    documents, expected = PAIRS["documents"], np.array(PAIRS["models"]["cross_1"][3]).ravel()
    words = ("rerank", "--model", "cross_1", "--activation", "none")
    answers = lines(run(served, *words, "--json", PAIRS["queries"][3], "-",
                        text="\n".join(documents)))
    assert [each["document"] for each in answers] == list(np.argsort(-expected))
    np.testing.assert_allclose([each["score"] for each in answers], -np.sort(-expected), atol=1e-5)
    table = run(served, *words, "--top", "2", PAIRS["queries"][3], *documents).splitlines()
    assert len(table) == 3 and table[1].split()[0] == "1"
    assert "3 labels" in run(served, "rerank", "--model", "cross_3", "a", "b", status=1)


def test_rerank_compares_embeddings_where_there_is_no_classifier(served):
    answers = lines(run(served, "rerank", "--model", "dense", "--json", *TEXTS[:4]))
    with served.client() as client:
        query, documents = (
            infer(client, text_inputs(*texts), model="dense", prompt_name=name)["embedding"]
            for texts, name in ((TEXTS[:1], "query"), (TEXTS[1:4], "document")))
    cosines = (documents @ query.T)[:, 0]
    assert [each["document"] for each in answers] == list(np.argsort(-cosines))


def test_classify_names_labels(served):
    texts, pair = PAIRS["documents"][:3], PAIRS["queries"][0]
    answers = lines(run(served, "classify", "--model", "cross_3", "--json", "--pair", pair, *texts))
    column = np.array([[pair.encode()]] * 3, np.object_)
    with served.client() as client:
        expected = infer(client, [*text_inputs(*texts), tensor("text_pair_input", column, "BYTES")],
                         model="cross_3", activation="softmax")
    assert [each["name"] for each in answers] == [x.decode() for x in expected["label"][:, 0]]
    np.testing.assert_array_equal(np.float32([each["scores"] for each in answers]),
                                  expected["scores"])
    (one,) = lines(run(served, "infer", "--model", "cross_3", "--text", texts[0], "--text-pair",
                       pair, "--json"))
    assert one["outputs"]["label"] == [answers[0]["name"]]
    table = run(served, "classify", "--model", "cross_3", *texts)
    assert table.splitlines()[0].split() == ["LABEL", "SCORE", "TEXT"]


def test_classify_shows_probabilities_unless_an_activation_is_given(served):
    (raw,) = lines(run(served, "classify", "--model", "cross_3", "--json", "--activation", "none",
                       TEXTS[0]))
    (answer,) = lines(run(served, "classify", "--model", "cross_3", "--json", TEXTS[0]))
    expected = np.exp(raw["scores"]) / np.exp(raw["scores"]).sum()
    np.testing.assert_allclose(answer["scores"], expected, rtol=1e-5)
    assert answer["label"] == raw["label"]
    with Client(served.grpc) as client:
        (found,) = client.classify("cross_3", TEXTS[:1])
        (single,) = client.classify("cross_1", TEXTS[:1])
        (logits,) = client.classify("cross_1", TEXTS[:1], activation="none")
    np.testing.assert_allclose(found.scores, expected, rtol=1e-5)
    np.testing.assert_allclose(single.scores, 1 / (1 + np.exp(-np.array(logits.scores))), rtol=1e-5)


def test_tag_shows_the_entities_of_texts(served):
    text = "İstanbul'da ✨ fährt isn't"
    (answer,) = lines(run(served, "tag", "--model", "tokens", "--json", text))
    with Client(served.grpc) as client:
        (found,) = client.tag("tokens", [text])
        with pytest.raises(NotServed, match="no token classifier"):
            client.tag("cross_3", [text])
    with served.client() as client:
        labels = infer(client, text_inputs(text), model="tokens")["token_labels"][0]
    assert found and {each.type for each in found} <= {
        label.decode().removeprefix("B-").removeprefix("I-") for label in labels}
    raw = text.encode()
    for each, entity in zip(answer["entities"], found, strict=True):
        assert each["text"] == raw[each["begin"]:each["end"]].decode() == entity.text
        assert text[entity.begin:entity.end] == entity.text and each["type"] == entity.type
        assert each["score"] == pytest.approx(entity.score, rel=1e-6) and 0 < entity.score <= 1
    heading, *rows = run(served, "tag", "--model", "tokens", text).splitlines()
    assert heading.split() == ["TYPE", "SCORE", "BYTES", "ENTITY", "TEXT"]
    assert len(rows) == len(found)
    message = run(served, "tag", "--model", "cross_3", "a", status=1)
    assert "no token classifier with named labels" in message
