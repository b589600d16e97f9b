"""Tests zero-shot classification by the clients, the gateway and the command line."""

import asyncio
import json
import subprocess

import numpy as np
import pytest
from conftest import SLUICE, Daemon
from gateway import Gateway
from sentence_models import GOLDENS, SENTENCES
from sluice_client import AsyncClient, Client, NotServed

CASES = json.loads((GOLDENS / "zero_shot.json").read_text())
TEXTS, LABELS = CASES[0]["texts"], CASES[0]["candidate_labels"]


@pytest.fixture(scope="module")
def served():
    with Daemon(models=[(name, SENTENCES / name) for name in ("cross_1", "cross_3")]) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def client(served):
    with Client(served.grpc) as made:
        yield made


@pytest.fixture(scope="module")
def gateway(served):
    with Gateway(served.grpc, "--default-model", "cross_3") as started:
        yield started


def settings_of(case):
    return {name: case[name] for name in ("hypothesis_template", "multi_label") if name in case}


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_answers_equal_the_pipeline_of_transformers(client, case):
    found = client.zero_shot("cross_3", case["texts"], case["candidate_labels"],
                             **settings_of(case))
    for each, expected in zip(found, case["answers"], strict=True):
        assert each.labels == expected["labels"]
        np.testing.assert_allclose(each.scores, expected["scores"], atol=1e-5)
    assert found.prompt_tokens > 0


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_every_client_gives_the_same_answers(served, client, gateway, case):
    expected = client.zero_shot("cross_3", case["texts"], case["candidate_labels"],
                                **settings_of(case))

    async def run():
        async with AsyncClient(served.grpc) as other:
            return await other.zero_shot("cross_3", case["texts"], case["candidate_labels"],
                                         **settings_of(case))

    assert asyncio.run(run()) == expected
    parameters = {"candidate_labels": case["candidate_labels"], **settings_of(case)}
    shown = [{"sequence": text, "labels": each.labels, "scores": each.scores}
             for text, each in zip(case["texts"], expected)]
    path = "/zero-shot-classification"
    reply = gateway.post(path, {"inputs": case["texts"], "parameters": parameters})
    assert reply.status == 200 and reply.json == shown
    reply = gateway.post(path, {"inputs": case["texts"][0], "parameters": parameters})
    assert reply.status == 200 and reply.json == shown[0]

    words = [f"--candidate-label={each}" for each in case["candidate_labels"]]
    if "hypothesis_template" in case:
        words += ["--hypothesis", case["hypothesis_template"]]
    words += ["--multi-label"] if case.get("multi_label") else []
    output = run_command(served, *words, "--json", *case["texts"])
    for line, each in zip(output.splitlines(), expected, strict=True):
        answer = json.loads(line)
        assert answer["labels"] == each.labels
        np.testing.assert_allclose(answer["scores"], each.scores, rtol=1e-12)
    rows = run_command(served, *words, case["texts"][0]).splitlines()
    assert rows[0].split() == ["LABEL", "SCORE", "TEXT"]
    assert [row[: row.index("0.")].strip() if "0." in row else row.split("1.0")[0].strip()
            for row in rows[1:]] == expected[0].labels


def run_command(served, *words, status=0):
    done = subprocess.run([SLUICE, "--server", served.grpc, "classify", "--model", "cross_3",
                           *words], capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def test_many_texts_and_labels_have_the_bits_of_each_text(client):
    """The rows exceed the limit of one request, and long texts have requests of their own."""
    texts = [f"{TEXTS[i % 4]} {i}" for i in range(400)]
    labels = [f"a {i}" for i in range(7)]
    together = client.zero_shot("cross_3", texts, labels, truncate="left")
    for i in (0, 1, 199, 399):
        (alone,) = client.zero_shot("cross_3", [texts[i]], labels, truncate="left")
        assert together[i] == alone
    long, many = ["a b " * 1500, "b", "c " * 3000], [f"a {i}" for i in range(200)]
    cut = client.zero_shot("cross_3", long, many, truncate="left")
    assert [each.labels for each in cut] == [
        client.zero_shot("cross_3", [text], many, truncate="left")[0].labels for text in long]
    assert cut.truncated_tokens > 0


def test_labels_and_hypotheses_that_cannot_be_used_are_refused(client, gateway):
    for labels, template, text in (
            ([], "{}", "candidate_labels"), (["a", "a"], "{}", "candidate_labels"),
            (["a", ""], "{}", "candidate_labels"), (["a"], "no place", "hypothesis_template"),
            (["a"], "{} and {}", "hypothesis_template")):
        with pytest.raises(ValueError, match=text):
            client.zero_shot("cross_3", TEXTS, labels, hypothesis_template=template)
        reply = gateway.post("/zero-shot-classification", {
            "inputs": "a", "parameters": {"candidate_labels": labels,
                                          "hypothesis_template": template}})
        assert reply.status == 400 and f"parameters.{text}" in reply.json["error"], reply.body
    with pytest.raises(TypeError, match="list of texts"):
        client.zero_shot("cross_3", TEXTS, "a, b")
    with pytest.raises(TypeError, match="not token ids"):
        client.zero_shot("cross_3", [[1, 2]], LABELS)
    with pytest.raises(NotServed, match='label whose name begins with "entail"'):
        client.zero_shot("cross_1", TEXTS, LABELS)
    for body, text in (({"inputs": "a"}, "parameters is missing"),
                       ({"inputs": [], "parameters": {"candidate_labels": ["a"]}}, "empty"),
                       ({"inputs": "a", "parameters": {"candidate_labels": "a"}}, "list"),
                       ({"inputs": "a", "parameters": {"candidate_labels": ["a"], "b": 1}}, "b")):
        reply = gateway.post("/zero-shot-classification", body)
        assert reply.status == 400 and text in reply.json["error"], reply.body
    reply = gateway.post("/zero-shot-classification", {
        "model": "cross_1", "inputs": "a", "parameters": {"candidate_labels": ["a"]}})
    assert reply.status >= 400 and "entail" in reply.json["error"], reply.body


def test_the_command_refuses_flags_that_exclude_each_other(served):
    for words, text in ((("--candidate-label", "a", "--pair", "b"), "--pair"),
                        (("--multi-label",), "--candidate-label"),
                        (("--hypothesis", "{}"), "--candidate-label"),
                        (("--candidate-label", "a", "--candidate-label", "a"), "different"),
                        (("--candidate-label", "a", "--hypothesis", "b"), "--hypothesis is"),
                        (("--candidate-label", "a", "--activation", "none"), "--activation")):
        assert text in run_command(served, *words, "text", status=2)
