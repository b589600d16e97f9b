"""Compares rerankers that are language models with CrossEncoder of sentence-transformers."""

import contextlib
import json
import math
import shutil
import subprocess

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from conftest import SLUICE, Daemon
from gateway import Gateway
from infer import infer, tensor, text_inputs
from reranker_models import (
    EXPECTED,
    INSTRUCTED,
    PUBLISHED,
    RERANKERS,
    SIGMOID,
    frame_of,
    lay,
    make_frame,
)
from sentence_models import SENTENCES
from sluice_client import Client, InvalidArgument
from tritonclient.utils import InferenceServerException

MODELS = sorted(EXPECTED["scores"])
DOCUMENTS = EXPECTED["documents"]
QUERIES = list(zip(EXPECTED["queries"], EXPECTED["instructions"]))
PLAIN, GIVEN = 1, 5  # queries without and with an instruction


@contextlib.contextmanager
def serving(folder, *options):
    """Serves a folder as `model` and returns a client of it."""
    with Daemon(*options, models=[("model", folder)]) as daemon, daemon.client() as client:
        yield client


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rerankers")
    return {name: lay(folder / name, name) for name in MODELS}


@pytest.fixture(scope="module")
def daemon(folders):
    with Daemon(models=[*folders.items(), ("cross", SENTENCES / "cross_1")]) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def served(daemon):
    with grpcclient.InferenceServerClient(daemon.grpc) as client:
        yield client


@pytest.fixture(scope="module")
def gateway(daemon):
    with Gateway(daemon.grpc) as started:
        yield started


def pairs(query, documents):
    column = np.array([[text.encode()] for text in documents], np.object_)
    return [*text_inputs(query), tensor("text_pair_input", column, "BYTES")]


def given(model, instruction):
    return {"instruction": instruction} if instruction and model in INSTRUCTED else {}


def published(model, query):
    """Returns CrossEncoder's scores of a query, with its default activation."""
    scores = np.array(EXPECTED["scores"][model][query])
    return 1 / (1 + np.exp(-scores)) if SIGMOID[model] else scores


def check_ranking(model, query, documents, scores):
    expected = published(model, query)
    np.testing.assert_array_equal(documents, np.argsort(-expected, kind="stable"))
    np.testing.assert_allclose(scores, -np.sort(-expected), rtol=0, atol=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_scores_of_200_pairs_and_their_order_equal_cross_encoder(served, model):
    count, worst = 0, 0
    for (query, instruction), expected in zip(QUERIES, EXPECTED["scores"][model]):
        scores = infer(served, pairs(query, DOCUMENTS), model=model, activation="none",
                       **given(model, instruction))["scores"][:, 0]
        worst = max(worst, np.abs(scores - expected).max())
        np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(np.argsort(-scores), np.argsort(-np.array(expected)))
        count += len(scores)
    print(f"{model}: {count} pairs, the largest difference is {worst:.2g}")
    assert count == 200


@pytest.mark.parametrize("model", MODELS)
def test_a_pair_has_the_same_bits_alone_and_among_others(served, model):
    query, _ = QUERIES[PLAIN]
    together = infer(served, pairs(query, DOCUMENTS), model=model)["scores"]
    alone = [infer(served, pairs(query, [each]), model=model)["scores"][0] for each in DOCUMENTS]
    np.testing.assert_array_equal(together, alone)
    queries = np.array([[query.encode()]] * len(DOCUMENTS), np.object_)
    each = [tensor("text_input", queries, "BYTES"), pairs(query, DOCUMENTS)[1]]
    np.testing.assert_array_equal(infer(served, each, model=model)["scores"], together)


# The rows of a request begin with the same frame, instruction and query. The third model's frame
# begins with the query and is shorter than a page.
@pytest.mark.parametrize("model", INSTRUCTED)
def test_frame_and_query_are_computed_once_per_request(folders, model):
    documents = [each for each in DOCUMENTS if len(each) < 200]
    query, instruction = QUERIES[GIVEN]
    computed, scores = {}, {}
    for shares in ("true", "false"):
        with serving(folders[model], "--engine.kv.prefix-reuse=" + shares) as client:
            result = client.infer(
                "model", pairs(query, documents), parameters=given(model, instruction) or None,
                outputs=[grpcclient.InferRequestedOutput(name)
                         for name in ("scores", "token_ids", "token_count")])
            parameters = result.get_response().parameters
            total = parameters["prompt_tokens"].int64_param
            computed[shares] = total - parameters["cached_tokens"].int64_param
            scores[shares] = result.as_numpy("scores")
            counts = result.as_numpy("token_count")[:, 0]
            rows = [list(row[:n]) for row, n in zip(result.as_numpy("token_ids"), counts)]
    shared = next(i for i, column in enumerate(zip(*rows)) if len({*column}) > 1)
    shared = min(shared, min(counts) - 1)
    print(f"{model}: {len(documents)} documents, {total} tokens, {shared} shared; computed "
          f"{computed['true']} with the shared prefix, {computed['false']} without")
    assert computed["false"] == total == counts.sum()
    assert computed["true"] == total - shared * (len(documents) - 1) < 0.75 * total
    np.testing.assert_array_equal(scores["true"], scores["false"])


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("query", [PLAIN, GIVEN])
def test_the_python_client_ranks_as_published(daemon, model, query):
    text, instruction = QUERIES[query]
    with Client(daemon.grpc) as client:
        ranked = client.rerank(model, text, DOCUMENTS, **given(model, instruction))
    check_ranking(model, query, [each.document for each in ranked],
                  [each.score for each in ranked])


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("query", [PLAIN, GIVEN])
def test_the_gateway_ranks_as_published(gateway, model, query):
    text, instruction = QUERIES[query]
    body = {"model": model, "query": text, **given(model, instruction)}
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        reply = gateway.post(path, {**body, "documents": DOCUMENTS})
        assert reply.status == 200, reply.body
        results = reply.json["results"]
        check_ranking(model, query, [each["index"] for each in results],
                      [each["relevance_score"] for each in results])
    reply = gateway.post("/rerank", {**body, "texts": DOCUMENTS, "raw_scores": True})
    assert reply.status == 200, reply.body
    raw = np.array(EXPECTED["scores"][model][query])
    assert [each["index"] for each in reply.json] == list(np.argsort(-raw))
    np.testing.assert_allclose([each["score"] for each in reply.json], -np.sort(-raw), atol=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_the_command_ranks_as_published(daemon, model):
    documents = [each for each in DOCUMENTS if each and "\n" not in each]
    query, instruction = QUERIES[GIVEN]
    done = subprocess.run(
        [SLUICE, "--server", daemon.grpc, "rerank", "--model", model, "--json",
         *(f"--{key}={value}" for key, value in given(model, instruction).items()), query, "-"],
        input="\n".join(documents), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = published(model, GIVEN)[[DOCUMENTS.index(each) for each in documents]]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["document"] for each in answers] == list(np.argsort(-expected))
    np.testing.assert_allclose([each["score"] for each in answers], -np.sort(-expected), atol=1e-5)


def refused(client, inputs, model, **parameters):
    with pytest.raises(InferenceServerException) as error:
        infer(client, inputs, model=model, **parameters)
    assert error.value.status() == "StatusCode.INVALID_ARGUMENT"
    return error.value.message()


def test_an_instruction_needs_a_framed_pair(served, daemon):
    pair = pairs("a", ["b"])
    assert "has no pair_frame.json" in refused(served, pair, "cross", instruction="x")
    assert "has no frame_with_instruction" in refused(served, pair, "gemma", instruction="x")
    assert "needs text_input with text_pair_input" in refused(served, text_inputs("a"), "qwen3",
                                                              instruction="x")
    assert "has 16385 bytes; the limit is 16384" in refused(served, pair, "qwen3",
                                                            instruction="x" * 16385)
    plain = infer(served, pair, model="qwen3")["scores"]
    np.testing.assert_array_equal(infer(served, pair, model="qwen3", instruction="")["scores"],
                                  plain)
    with Client(daemon.grpc) as client, pytest.raises(InvalidArgument, match="pair_frame.json"):
        client.rerank("cross", "a", ["b"], instruction="x")


def test_a_long_pair_is_refused_unless_it_may_be_cut(served):
    long = DOCUMENTS[-1]
    message = refused(served, pairs("a", [long]), "qwen3", truncate="error")
    assert "text_pair_input [0] has more than 320 tokens; expected 1 to 320" in message
    left = infer(served, pairs("a", [long]), model="qwen3", truncate="left")["scores"]
    right = infer(served, pairs("a", [long]), model="qwen3", truncate="right")["scores"]
    assert left != right


def test_metadata_of_a_reranker(daemon):
    with Client(daemon.grpc) as client:
        info = client.metadata("qwen3")
    assert info.properties["task"] == "classify"
    assert {"text_input", "text_pair_input"} <= {each.name for each in info.inputs}
    assert [(each.name, [*each.shape]) for each in info.outputs] == [("scores", [-1, 1])]


def serve_and_score(folder, instruction):
    with serving(folder) as client:
        return infer(client, pairs(QUERIES[GIVEN][0], DOCUMENTS), model="model",
                     activation="none", instruction=instruction)["scores"][:, 0]


# A repository without the files of sentence-transformers is served with the text of its card.
@pytest.mark.parametrize("model", MODELS)
def test_a_published_text_has_the_scores_of_the_template(tmp_path, model):
    folder = tmp_path / model
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(RERANKERS / model / name, folder / name)
    assert make_frame(folder, "--published", PUBLISHED[model]).returncode == 0
    config = json.loads((RERANKERS / model / "1_LogitScore" / "config.json").read_text())
    frame = frame_of(folder)
    for key in ("true_token_id", "false_token_id"):
        assert frame.get(key) == config[key]
    short = [i for i, each in enumerate(DOCUMENTS) if len(each) < 200]
    with serving(folder) as client:
        query, instruction = QUERIES[GIVEN]
        scores = infer(client, pairs(query, [DOCUMENTS[i] for i in short]), model="model",
                       activation="none", **given(model, instruction))["scores"][:, 0]
    np.testing.assert_allclose(scores, np.array(EXPECTED["scores"][model][GIVEN])[short],
                               rtol=0, atol=1e-5)


def swap(folder, first, second):
    """Swaps two inputs of the frame with an instruction."""
    frame = frame_of(folder)
    for part in frame["frame_with_instruction"]:
        if part.get("input") in (first, second):
            part["input"] = second if part["input"] == first else first
    (folder / "pair_frame.json").write_text(json.dumps(frame))


def swap_tokens(folder):
    file = folder / "1_LogitScore" / "config.json"
    config = json.loads(file.read_text())
    config["true_token_id"], config["false_token_id"] = (
        config["false_token_id"], config["true_token_id"])
    file.write_text(json.dumps(config))


def drop_end(folder):
    frame = frame_of(folder)
    frame["frame_with_instruction"].pop()
    (folder / "pair_frame.json").write_text(json.dumps(frame))


def see_both_ways(folder):
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "is_causal": False}))


# The comparison with CrossEncoder finds each fault.
@pytest.mark.parametrize("fault", [
    lambda folder: swap(folder, "query", "document"),
    lambda folder: swap(folder, "query", "instruction"),
    swap_tokens, drop_end, see_both_ways,
], ids=["query and document", "query and instruction", "yes and no", "no end", "bidirectional"])
def test_a_planted_fault_changes_the_scores(tmp_path, folders, fault):
    folder = tmp_path / "model"
    shutil.copytree(folders["qwen3"], folder)
    fault(folder)
    scores = serve_and_score(folder, QUERIES[GIVEN][1])
    expected = np.array(EXPECTED["scores"]["qwen3"][GIVEN])
    assert np.abs(scores - expected).max() > 0.01
    assert (np.argsort(-scores) != np.argsort(-expected)).any()
    assert math.isfinite(scores.sum())
