"""Compares outputs for retrieval with the formulas of FlagEmbedding, PyLate, ColBERT and
sentence-transformers, in float64: vectors of tokens, sparse weights, MaxSim and spans."""

import asyncio
import json
import subprocess

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from conftest import ROOT, SLUICE, Daemon
from gateway import Gateway
from infer import ids_inputs, infer, tensor, text_inputs
from sluice_client import AsyncClient, Client
from tritonclient.utils import InferenceServerException

GOLDENS = ROOT / "tests" / "goldens" / "retrieval"
EXPECTED = json.loads((GOLDENS / "expected.json").read_text())
COLBERTS = ["pylate", "attending", "windowed", "colbert"]
TASKS = ["query", "document"]
VECTORS = ["vectors", "vector_count"]
SPARSE = ["sparse_ids", "sparse_weights"]


@pytest.fixture(scope="module")
def daemon():
    with Daemon(models=[(name, GOLDENS / name) for name in (*COLBERTS, "m3")]) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def served(daemon):
    with grpcclient.InferenceServerClient(daemon.grpc) as client:
        yield client


@pytest.fixture(scope="module")
def routed():
    with Daemon(models=[("router", GOLDENS / "router")]) as daemon:
        yield daemon


def pairs(queries, documents):
    return [tensor(name, np.array([[text.encode()] for text in texts], np.object_), "BYTES")
            for name, texts in (("text_input", queries), ("text_pair_input", documents))]


def steps_of(daemon):
    return daemon.metric("sluice_engine_steps_total")


def vectors_of(answer):
    """Returns the vectors of each row, without padding, which must be zero."""
    rows = []
    for values, (count,) in zip(answer["vectors"], answer["vector_count"]):
        assert not values[count:].any()
        rows.append(values[:count])
    return rows


def terms_of(answer, row):
    ids, weights = answer["sparse_ids"][row], answer["sparse_weights"][row]
    assert (np.diff(weights[ids >= 0]) <= 0).all(), "heaviest first"
    return {str(i): w for i, w in zip(ids.tolist(), weights.tolist()) if i >= 0}


def same_terms(found, expected):
    """Compares weights; a logit near 0 may round to a weight of 0."""
    ids = sorted({*found, *expected})
    np.testing.assert_allclose([found.get(i, 0) for i in ids], [expected.get(i, 0) for i in ids],
                               rtol=0, atol=1e-5)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("model", COLBERTS)
def test_vectors_equal_the_library_in_any_batch(served, model, task):
    rows = EXPECTED[model][task]
    texts = [row["text"] for row in rows]
    together = vectors_of(infer(served, text_inputs(*texts), None, model, task=task))
    for row, text, vectors in zip(rows, texts, together):
        np.testing.assert_allclose(vectors, row["vectors"], rtol=0, atol=1e-6)
        alone, = vectors_of(infer(served, text_inputs(text), None, model, task=task))
        np.testing.assert_array_equal(alone, vectors)


def test_dense_sparse_and_vectors_come_from_one_pass(served):
    rows = EXPECTED["m3"]["rows"]
    outputs = ["embedding", *SPARSE, *VECTORS]
    together = infer(served, text_inputs(*(row["text"] for row in rows)), outputs, "m3")
    assert {*together} == {*outputs}
    for i, (row, vectors) in enumerate(zip(rows, vectors_of(together))):
        np.testing.assert_allclose(together["embedding"][i], row["dense"], rtol=0, atol=1e-6)
        np.testing.assert_allclose(vectors, row["vectors"], rtol=0, atol=1e-6)
        same_terms(terms_of(together, i), row["sparse"])
        alone = infer(served, text_inputs(row["text"]), outputs, "m3")
        np.testing.assert_array_equal(alone["embedding"][0], together["embedding"][i])
        np.testing.assert_array_equal(vectors_of(alone)[0], vectors)
        assert terms_of(alone, 0) == terms_of(together, i)
    counts = (together["sparse_ids"] >= 0).sum(axis=1)
    most = int(counts.argmax())
    assert counts[most] > 1
    few = infer(served, text_inputs(rows[most]["text"]), SPARSE, "m3", max_active_dims=1)
    assert few["sparse_ids"][0].tolist() == together["sparse_ids"][most, :1].tolist()
    assert {*infer(served, text_inputs("a"), None, "m3")} == {"embedding"}


def test_token_ids_have_vectors_without_the_skipped_tokens(served):
    row = EXPECTED["pylate"]["document"][0]
    ids = infer(served, text_inputs(row["text"]), ["token_ids"], "pylate")["token_ids"]
    vectors, = vectors_of(infer(served, ids_inputs(ids.tolist()), None, "pylate"))
    np.testing.assert_allclose(vectors, row["vectors"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("model", COLBERTS)
def test_maxsim_equals_the_library_and_counts_special_tokens_as_it_does(served, model):
    queries, documents = ([row["text"] for row in EXPECTED[model][task]] for task in TASKS)
    for query, scores in zip(queries, EXPECTED[model]["scores"]):
        together = infer(served, pairs([query], documents), ["maxsim"], model)["maxsim"]
        np.testing.assert_allclose(together[:, 0], scores, rtol=0, atol=1e-5)
        alone = [infer(served, pairs([query], [text]), None, model)["maxsim"][0, 0]
                 for text in documents]
        np.testing.assert_array_equal(alone, together[:, 0])
    each = infer(served, pairs(queries, documents[:len(queries)]), ["maxsim"], model)["maxsim"]
    np.testing.assert_allclose(each[:, 0], np.diagonal(EXPECTED[model]["scores"]), atol=1e-5)


def test_maxsim_of_m3_is_the_mean_over_the_query(served):
    rows = EXPECTED["m3"]["rows"]
    query, documents = rows[0], rows[1:]
    found = infer(served, pairs([query["text"]], [row["text"] for row in documents]), ["maxsim"],
                  "m3")["maxsim"][:, 0]
    expected = [(np.array(query["vectors"]) @ np.array(row["vectors"]).T).max(1).mean()
                for row in documents]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def spans_of(answer):
    return [values[:count] for values, (count,) in
            zip(answer["span_embeddings"], answer["span_count"])]


def test_spans_are_means_of_the_states_of_their_tokens(served):
    texts = sorted((row["text"] for row in EXPECTED["m3"]["rows"]), key=len)[-3:]
    outputs = ["token_embeddings", "token_offsets", "token_count"]
    tokens = infer(served, text_inputs(*texts), outputs, "m3", normalize=False)
    cuts = [[0, len(text) // 3, len(text) // 2, len(text)] for text in texts]
    spans = [[[a, b] for a, b in zip(row, row[1:])] + [[0, row[-1]]] for row in cuts]
    answer = infer(served, text_inputs(*texts), ["span_embeddings", "span_count"], "m3",
                   spans=json.dumps(spans), normalize=False)
    for row, found in enumerate(spans_of(answer)):
        assert len(found) == len(spans[row])
        begins = tokens["token_offsets"][row, :tokens["token_count"][row, 0], 0]
        states = tokens["token_embeddings"][row].astype(np.float64)
        encoded = [len(texts[row][:at].encode()) for at in range(len(texts[row]) + 1)]
        positions = []
        for vector, (begin, end) in zip(found, spans[row]):
            inside = np.flatnonzero((begins >= encoded[begin]) & (begins < encoded[end]))
            positions.append([int(inside[0]), int(inside[-1]) + 1])
            # A token without a place belongs to the span around it.
            mean = states[slice(*positions[-1])].mean(0)
            np.testing.assert_allclose(vector, mean, rtol=0, atol=1e-6)
        by_tokens = infer(served, text_inputs(texts[row]), ["span_embeddings", "span_count"], "m3",
                          spans=json.dumps([positions]), span_unit="tokens", normalize=False)
        np.testing.assert_array_equal(spans_of(by_tokens)[0], found)
    unit, = spans_of(infer(served, text_inputs(texts[0]), ["span_embeddings", "span_count"], "m3",
                           spans=json.dumps(spans[:1])))
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-6)


def test_characters_beyond_ascii_count_once(served):
    text = "über Straße 日本 ok"
    whole = infer(served, text_inputs(text), ["span_embeddings", "span_count"], "m3",
                  spans=json.dumps([[[0, len(text)], [5, 11]]]))
    size = len(text.encode())
    begin, end = len(text[:5].encode()), len(text[:11].encode())
    by_bytes = infer(served, text_inputs(text), ["span_embeddings", "span_count"], "m3",
                     spans=json.dumps([[[0, size], [begin, end]]]), span_unit="bytes")
    np.testing.assert_array_equal(spans_of(whole)[0], spans_of(by_bytes)[0])


@pytest.mark.parametrize("spans, problem", [
    ("[[[0, 1]]", "expected a JSON array"),
    ("[[[0, 0]]]", r"spans: \[0\]\[0\] is \[0,0\]; expected \[begin, end\]"),
    ("[[[2, 1]]]", "expected"),
    ("[[[0, 999]]]", "row 0 has 3 characters"),
    ("[[], []]", "lists for 2 rows; the request has 1 row"),
    ("[[[0.5, 1]]]", "expected"),
    (json.dumps([[[0, 1]] * 1025]), "at most 1024"),
    ("[" * 30, "expected a JSON array"),
    ("[[[1, 2]]]", "no token of the row begins in it"),
])
def test_wrong_spans_are_refused_with_their_place(served, spans, problem):
    with pytest.raises(InferenceServerException, match=problem):
        infer(served, text_inputs("the"), ["span_embeddings"], "m3", spans=spans)


def test_outputs_without_their_inputs_are_refused(served):
    for outputs, inputs, parameters, problem in (
            (["maxsim"], text_inputs("a"), {}, "needs text_input for queries"),
            (["maxsim", "vectors"], pairs(["a"], ["b"]), {}, "cannot be combined with maxsim"),
            (["span_embeddings"], text_inputs("a"), {}, "needs the parameter spans"),
            (["embedding"], text_inputs("a"), {"spans": "[[[0, 1]]]"},
             "requires the output span_embeddings"),
            (["span_embeddings"], ids_inputs([[1, 2]]), {"spans": "[[[0, 1]]]"},
             "set span_unit to tokens"),
            (["vectors"], text_inputs("a"), {"task": "passage"}, "one of document, query")):
        with pytest.raises(InferenceServerException, match=problem):
            infer(served, inputs, outputs, "m3", **parameters)


def test_long_queries_and_documents_are_cut_at_the_length_of_their_task(served):
    text = "the server answers " * 30
    for task, most in (("query", 12), ("document", 20)):
        answer = infer(served, text_inputs(text), ["token_count"], "pylate", task=task)
        assert answer["token_count"][0, 0] == most
        limit = "length for the task|more than 20 tokens"
        with pytest.raises(InferenceServerException, match=limit):
            infer(served, text_inputs(text[:72]), ["token_count"], "pylate", task=task,
                  truncate="error")


def test_router_encodes_queries_without_inference(routed):
    with grpcclient.InferenceServerClient(routed.grpc) as client:
        for task in TASKS:
            # The daemon cuts all texts at the model's positions.
            rows = [row for row in EXPECTED["router"][task] if len(row["text"]) < 60]
            assert len(rows) > 2
            answer = infer(client, text_inputs(*(row["text"] for row in rows)), SPARSE, "router",
                           task=task)
            for i, row in enumerate(rows):
                same_terms(terms_of(answer, i), row["sparse"])
        default = infer(client, text_inputs(rows[0]["text"]), None, "router")
        same_terms(terms_of(default, 0), rows[0]["sparse"])
    before = steps_of(routed)
    with Client(routed.grpc) as client:
        query = EXPECTED["router"]["query"][0]
        terms, = client.embed_sparse("router", [query["text"]], task="query")
    same_terms({str(i): w for i, w in terms.items()}, query["sparse"])
    assert steps_of(routed) == before, "no step computed the query"


def test_python_client_encodes_and_reranks(daemon):
    rows = EXPECTED["m3"]["rows"]
    texts = [row["text"] for row in rows]
    with Client(daemon.grpc) as client:
        found = client.encode("m3", texts, ["dense", "sparse", "vectors", "spans"],
                              spans=[[[0, len(text)]] for text in texts])
        assert found.prompt_tokens > 0
        for each, row in zip(found, rows):
            np.testing.assert_allclose(each.dense, row["dense"], rtol=0, atol=1e-6)
            same_terms({str(i): w for i, w in each.sparse.items()}, row["sparse"])
            np.testing.assert_allclose(each.vectors, row["vectors"], rtol=0, atol=1e-6)
            assert each.spans.shape == (1, 24)
        query = client.encode("pylate", EXPECTED["pylate"]["query"][0]["text"], "vectors",
                              task="query")[0]
        assert query.vectors.shape == (12, 16) and query.dense is None
        with pytest.raises(ValueError, match="expected some of dense"):
            client.encode("m3", texts, ["dense", "colour"])
        with pytest.raises(ValueError, match="spans has lists for 1 inputs"):
            client.encode("m3", texts, "spans", spans=[[[0, 1]]])
        documents = [row["text"] for row in EXPECTED["pylate"]["document"]]
        scores = EXPECTED["pylate"]["scores"][1]
        ranked = client.rerank("pylate", EXPECTED["pylate"]["query"][1]["text"], documents)
    assert [each.document for each in ranked] == np.argsort(-np.array(scores)).tolist()
    np.testing.assert_allclose([each.score for each in ranked], sorted(scores)[::-1], atol=1e-5)


def test_async_client_has_the_same_method(daemon):
    async def run():
        async with AsyncClient(daemon.grpc) as client:
            return await client.encode("m3", "a text", ["dense", "spans"], spans=[[[0, 6]]])

    encoding, = asyncio.run(run())
    assert encoding.dense.shape == (24,) and encoding.spans.shape == (1, 24)


def test_gateway_encodes_and_reranks(daemon):
    rows = EXPECTED["m3"]["rows"][:2]
    texts = [row["text"] for row in rows]
    with Gateway(daemon.grpc) as gateway:
        answer = gateway.post("/v1/encode", {
            "model": "m3", "input": texts, "outputs": ["dense", "sparse", "vectors", "spans"],
            "spans": [[[0, 1], [0, len(text)]] for text in texts]}).json
        for i, (each, row) in enumerate(zip(answer["data"], rows)):
            assert each["index"] == i
            np.testing.assert_allclose(each["dense"], row["dense"], rtol=0, atol=1e-6)
            same_terms(dict(zip(map(str, each["sparse"]["indices"]), each["sparse"]["values"])),
                       row["sparse"])
            np.testing.assert_allclose(each["vectors"], row["vectors"], rtol=0, atol=1e-6)
            assert np.shape(each["spans"]) == (2, 24)
        assert answer["usage"]["prompt_tokens"] > 0
        query = gateway.post("/v1/encode", {"model": "pylate", "input": "a", "task": "query",
                                            "outputs": ["vectors"]}).json
        assert np.shape(query["data"][0]["vectors"]) == (12, 16)
        for body, problem in (({"outputs": ["color"]}, "is not a list of some of dense"),
                              ({"spans": [[0, 1]]}, "is not a list of [begin, end]"),
                              ({"spans": [[[0, 1]]] * 2}, "expected one for each of 1 inputs"),
                              ({"colour": 1}, "not a supported field")):
            refused = gateway.post("/v1/encode", {"model": "m3", "input": "a", **body})
            assert refused.status == 400 and problem in refused.json["error"]["message"]
        documents = [row["text"] for row in EXPECTED["colbert"]["document"]]
        ranked = gateway.post("/v1/rerank", {
            "model": "colbert", "query": EXPECTED["colbert"]["query"][0]["text"],
            "documents": documents}).json["results"]
    scores = EXPECTED["colbert"]["scores"][0]
    assert [each["index"] for each in ranked] == np.argsort(-np.array(scores)).tolist()


def test_command_line_returns_spans(daemon):
    run = [SLUICE, "--server", daemon.grpc, "infer", "--model", "m3", "--text", "the server",
           "--outputs", "span_embeddings", "--json", "--spans", "[[[0, 3], [4, 10]]]"]
    lines = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert "span_embeddings" in lines
