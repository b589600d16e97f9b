"""Tests that the gateway's paths of other servers answer with the bits of gRPC."""

import asyncio
import json
import math
import shutil

import numpy as np
import pytest
from conftest import ROOT, Daemon
from gateway import Gateway
from sentence_models import SENTENCES, lay
from sluice_client import Client
from sluice_client.gateway.hostile import Refused
from sluice_client.gateway.openai import encoded, integers
from sluice_client.gateway.call import HttpCall
from sluice_client.gateway.models import Models
from sluice_client.results import ModelInfo, TensorInfo
from sluice_client.tensors import Tensor
from tiny_model import TOKENIZERS, TinyModel

TEXTS = ["a b c", "no more", "d"]
QUERY = "a b"


def multi_label(folder):
    """Writes a classifier whose labels are independent."""
    shutil.copytree(SENTENCES / "cross_3", folder)
    config = json.loads((folder / "config.json").read_text())
    config["problem_type"] = "multi_label_classification"
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    models = [(name, lay(folder / name, name)) for name in ("cls", "dense")]
    models += [(name, SENTENCES / name) for name in ("cross_1", "cross_3")]
    models.append(("multi_label", multi_label(folder / "multi_label")))
    models.append(("demo", ROOT / "models" / "demo"))
    with Daemon(models=models) as daemon:
        yield daemon.grpc


@pytest.fixture(scope="module")
def gateway(served):
    with Gateway(served, "--default-model", "cls") as started:
        yield started


@pytest.fixture(scope="module")
def client(served):
    with Client(served) as made:
        yield made


def ask(gateway, path, body):
    reply = gateway.post(path, body)
    assert reply.status == 200, reply.body
    return reply.json


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


def test_tei_embeds(gateway, client):
    expected = client.embed("cls", TEXTS, normalize=True).tolist()
    for path in ("/embed", "/"):
        assert ask(gateway, path, {"inputs": TEXTS}) == expected
    assert ask(gateway, "/embed", {"inputs": TEXTS[0]}) == expected[:1]
    raw = client.embed("cls", TEXTS, normalize=False).tolist()
    assert ask(gateway, "/embed", {"inputs": TEXTS, "normalize": False}) == raw
    named = client.embed("dense", TEXTS, prompt_name="query", dimensions=4, normalize=True)
    assert ask(gateway, "/embed", {"inputs": TEXTS, "model": "dense", "prompt_name": "query",
                                   "dimensions": 4}) == named.tolist()


def test_tei_cuts_texts_only_if_asked_and_reports_it(gateway, client):
    long = "a b c " * 200
    refused = gateway.post("/embed", {"inputs": long, "truncate": False})
    assert refused.status == 400 and refused.json["error_type"] == "validation"
    for side in ("Left", "Right"):
        expected = client.embed("cls", [long], truncate=side.lower(), normalize=True)
        reply = gateway.post("/embed", {"inputs": long, "truncate": True,
                                        "truncation_direction": side})
        assert reply.json == expected.tolist()
        assert int(reply.headers["x-truncated-tokens"]) == expected.truncated_tokens > 0
    # Without the field, the model's published setting decides.
    by_default = gateway.post("/embed", {"inputs": long})
    published = client.embed("cls", [long], normalize=True)
    assert by_default.json == published.tolist()
    assert int(by_default.headers["x-truncated-tokens"]) == published.truncated_tokens > 0
    assert "x-truncated-tokens" not in gateway.post("/embed", {"inputs": "a"}).headers


def test_tei_embeds_all_tokens(gateway, client):
    expected = client.embed_tokens("cls", TEXTS)
    answer = ask(gateway, "/embed_all", {"inputs": TEXTS})
    assert answer == [each.tolist() for each in expected]
    # The vector of the first token is the embedding of a model with cls pooling.
    assert [each[0] for each in answer] == client.embed("cls", TEXTS, normalize=False).tolist()
    assert len({len(each) for each in answer}) > 1


def test_tei_predicts_with_probabilities_or_raw_scores(gateway, client):
    pairs = [[QUERY, each] for each in TEXTS]
    raw = client.classify("cross_3", [tuple(each) for each in pairs], activation="none")
    labels = ["contradiction", "entailment", "neutral"]
    for raw_scores in (False, True):
        answers = ask(gateway, "/predict", {"model": "cross_3", "inputs": pairs,
                                            "raw_scores": raw_scores})
        for answer, each in zip(answers, raw):
            scores = np.array(each.scores)
            if not raw_scores:
                scores = np.exp(scores) / np.exp(scores).sum()
            order = np.argsort(-scores)
            assert [one["label"] for one in answer] == [labels[i] for i in order]
            np.testing.assert_allclose([one["score"] for one in answer], scores[order], rtol=1e-5)
    single = ask(gateway, "/predict", {"model": "cross_3", "inputs": pairs[0]})
    assert single == ask(gateway, "/predict", {"model": "cross_3", "inputs": pairs})[0]
    mixed = ask(gateway, "/predict", {"model": "cross_3", "inputs": [[QUERY], pairs[1]]})
    assert mixed[1] == ask(gateway, "/predict", {"model": "cross_3", "inputs": pairs[1]})
    assert mixed[0] == ask(gateway, "/predict", {"model": "cross_3", "inputs": QUERY})
    top = ask(gateway, "/", {"model": "cross_3", "inputs": QUERY, "parameters": {"top_k": 1}})
    assert top == mixed[0][:1]
    for activation in ("none", "softmax", "sigmoid"):
        scores = client.classify("cross_3", [QUERY], activation=activation)[0].scores
        asked = {"model": "cross_3", "inputs": QUERY,
                 "parameters": {"function_to_apply": activation}}
        assert sorted(scores, reverse=True) == [
            each["score"] for each in ask(gateway, "/predict", asked)], activation


def test_independent_labels_have_probabilities_by_sigmoid(gateway, client):
    raw = client.classify("multi_label", TEXTS, activation="none")
    assert client.metadata("multi_label").properties["problem_type"] == (
        "multi_label_classification")
    expected = [[sigmoid(score) for score in each.scores] for each in raw]
    tei = ask(gateway, "/predict", {"model": "multi_label", "inputs": [[each] for each in TEXTS]})
    for answer, scores in zip(tei, expected):
        np.testing.assert_allclose([each["score"] for each in answer],
                                   sorted(scores, reverse=True), rtol=1e-5)
    vllm = ask(gateway, "/classify", {"model": "multi_label", "input": TEXTS})["data"]
    np.testing.assert_allclose([each["probs"] for each in vllm], expected, rtol=1e-5)


@pytest.mark.parametrize("labels, activation", [(1, "sigmoid"), (3, "softmax")])
def test_daemon_that_states_no_activation_has_one_by_the_number_of_labels(labels, activation):
    class Older:
        async def metadata(self, name, **_):
            return ModelInfo(name, ["1"], "", [], [TensorInfo("scores", "FP32", (-1, labels))], {})

    models = Models(False).of(Older())
    assert asyncio.run(models.probabilities("m", {"metadata": ()})) == activation


def test_rerankers_of_all_apis_give_one_ranking(gateway, client):
    ranked = client.rerank("cross_1", QUERY, TEXTS, activation="none")
    tei = ask(gateway, "/rerank", {"model": "cross_1", "query": QUERY, "texts": TEXTS,
                                   "raw_scores": True, "return_text": True})
    assert tei == [{"index": i, "score": score, "text": TEXTS[i]} for i, score in ranked]
    scaled = ask(gateway, "/rerank", {"model": "cross_1", "query": QUERY, "texts": TEXTS})
    np.testing.assert_allclose([each["score"] for each in scaled],
                               [sigmoid(score) for _, score in ranked], rtol=1e-5)
    best = ask(gateway, "/rerank", {"model": "cross_1", "query": QUERY, "texts": TEXTS,
                                    "top_n": 2})
    assert best == scaled[:2]
    published = client.rerank("cross_1", QUERY, TEXTS, top_n=2)
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        answer = ask(gateway, path, {"model": "cross_1", "query": QUERY, "documents": TEXTS,
                                     "top_n": 2, "return_documents": True})
        assert answer["results"] == [
            {"index": i, "relevance_score": score, "document": {"text": TEXTS[i]}}
            for i, score in published]
        assert answer["id"] and answer["usage"]["total_tokens"] == published.prompt_tokens
    everything = ask(gateway, "/rerank", {"model": "cross_1", "query": QUERY, "documents": TEXTS,
                                          "top_n": 0})
    assert len(everything["results"]) == len(TEXTS)
    refused = gateway.post("/rerank", {"model": "cross_1", "query": QUERY, "texts": []})
    assert refused.status == 400 and refused.json["error"] == "texts is empty"


def test_tei_ranks_by_cosine_with_an_embedding_model(gateway, client):
    ranked = client.rerank("dense", QUERY, TEXTS)
    answer = ask(gateway, "/rerank", {"model": "dense", "query": QUERY, "texts": TEXTS})
    assert answer == [{"index": i, "score": score} for i, score in ranked]
    cosines = ask(gateway, "/similarity", {"inputs": {"source_sentence": QUERY,
                                                      "sentences": TEXTS}})
    vectors = np.asarray(client.embed("cls", [QUERY, *TEXTS], normalize=True), np.float64)
    np.testing.assert_allclose(cosines, vectors[1:] @ vectors[0], atol=1e-6)
    by_root = ask(gateway, "/", {"inputs": {"source_sentence": QUERY, "sentences": TEXTS}})
    assert by_root == cosines


def test_tokens_are_those_that_the_model_reads(served, gateway, client):
    for model in ("cls", "demo"):
        rows = client.tokenize(model, TEXTS)
        ids = [[each.id for each in row] for row in rows]
        assert client.embed(model, ids).raw == client.embed(model, TEXTS, prompt_name="").raw
        for text, row in zip(TEXTS, rows):
            inside = [text[each.begin : each.end] for each in row if each.begin >= 0]
            assert inside and "".join(inside) == text.replace(" ", "" if model == "cls" else " ")
        tei = ask(gateway, "/tokenize", {"model": model, "inputs": TEXTS})
        assert [[each["id"] for each in row] for row in tei] == ids
        assert [[(each["start"], each["stop"]) for each in row] for row in tei] == [
            [(None, None) if each.begin < 0 else (each.begin, each.end) for each in row]
            for row in rows]
        vllm = ask(gateway, "/tokenize", {"model": model, "prompt": TEXTS[0]})
        assert vllm["tokens"] == ids[0] and vllm["count"] == len(ids[0])
        bare = ask(gateway, "/tokenize", {"model": model, "prompt": TEXTS[0],
                                          "add_special_tokens": False, "return_token_strs": True})
        special = [each.begin < 0 for each in rows[0]]
        assert any(special) and bare["count"] == special.count(False)
        assert bare["token_strs"] == [
            TEXTS[0][each.begin : each.end] for each in rows[0] if each.begin >= 0]
    assert ask(gateway, "/tokenize", {"model": "demo", "prompt": "a"})["max_model_len"] == 256
    cut = client.tokenize("demo", "a" * 300, truncate="right")
    assert len(cut[0]) == 256 and cut.truncated_tokens == 45


def test_tokens_without_places_are_not_special(tmp_path):
    """White space has no place in a text, and no token of a SentencePiece model has one."""
    models = []
    for name, file in (("llama2.json", "tokenizer.json"), ("bpe.model", "tokenizer.model")):
        folder = TinyModel(tmp_path / name, seed=1, vocab=1000, positions=64).directory
        shutil.copy(TOKENIZERS / name, folder / file)
        if file == "tokenizer.model":
            (folder / "tokenizer_config.json").write_text('{"add_bos_token": true}')
        models.append((file, folder))
    with Daemon(models=models) as served, Gateway(served) as gateway, \
            Client(served.grpc) as client:
        for model, _ in models:
            text = "a\n\nb\n"
            (row,) = client.tokenize(model, [text], add_special_tokens=False)
            bare = [each.id for each in row]
            asked = {"model": model, "prompt": text}
            without = ask(gateway, "/tokenize", {**asked, "add_special_tokens": False})
            assert without["tokens"] == bare
            assert ask(gateway, "/tokenize", asked)["tokens"] == [1, *bare]
            (tei,) = ask(gateway, "/tokenize", {"model": model, "inputs": text})
            assert [each["special"] for each in tei] == [True] + [False] * len(bare)
            assert any(each["start"] is None for each in tei[1:])


@pytest.mark.parametrize("special", [True, False])
def test_texts_without_tokens_of_their_own_have_those_of_the_template(gateway, client, special):
    texts = ["", " ", "a b"]
    around = client.tokenize("cls", "a b")[0]
    before, after = ([around[0]], [around[-1]]) if special else ([], [])
    expected = [[each.id for each in (*before, *own, *after)]
                for own in ([], [], around[1:-1])]
    asked = {"model": "cls", "add_special_tokens": special}
    tei = ask(gateway, "/tokenize", {**asked, "inputs": texts})
    assert [[each["id"] for each in row] for row in tei] == expected
    assert [[each["special"] for each in row] for row in tei] == [
        [True] * len(before) + [False] * own + [True] * len(after) for own in (0, 0, 2)]
    for text, ids in zip(texts, expected):
        assert ask(gateway, "/tokenize", {**asked, "prompt": text})["tokens"] == ids


def test_special_tokens_that_are_left_out_need_no_room(gateway):
    longest = {"model": "demo", "prompt": "a" * 256, "add_special_tokens": False}
    assert ask(gateway, "/tokenize", longest)["count"] == 256
    refused = gateway.post("/tokenize", {**longest, "add_special_tokens": True})
    assert refused.status == 400 and "257 tokens" in refused.json["message"], refused.body


def test_tokenizer_without_a_template_adds_no_tokens(tmp_path):
    folder = TinyModel(tmp_path / "model", seed=1, vocab=1000, positions=64).directory
    shutil.copy(TOKENIZERS / "gpt2.json", folder / "tokenizer.json")
    with Daemon(models=[("m", folder)]) as served, Gateway(served) as gateway:
        rows = {special: ask(gateway, "/tokenize", {
            "inputs": [" ", "a b"], "add_special_tokens": special}) for special in (True, False)}
        assert rows[True] == rows[False] and all(rows[True])
        assert not any(each["special"] for row in rows[True] for each in row)
        for special in (True, False):
            refused = gateway.post("/tokenize", {"inputs": ["a", ""],
                                                 "add_special_tokens": special})
            assert refused.status == 400 and "[1] has 0 tokens" in refused.json["message"]


def test_tei_describes_the_model(gateway):
    info = gateway.get("/info").json
    assert info["model_id"] == "cls" and "embedding" in info["model_type"]
    assert info["max_input_length"] > 0
    assert gateway.get("/health").status == 200


def test_model_must_be_named_if_several_are_served(served, demo):
    with Gateway(served) as several:
        refused = several.post("/embed", {"inputs": "a"})
        assert refused.status == 400
        assert "cls" in refused.json["error"] and "--default-model" in refused.json["error"]
    with Gateway(demo) as one:
        assert one.post("/embed", {"inputs": "a"}).status == 200


def test_vllm_scores_pairs(gateway, client):
    expected = client.score_pairs("cross_1", [QUERY], TEXTS)
    assert client.score_pairs("cross_1", QUERY, TEXTS) == expected
    for names in (("text_1", "text_2"), ("queries", "documents")):
        answer = ask(gateway, "/score", {"model": "cross_1", names[0]: QUERY, names[1]: TEXTS})
        assert [each["score"] for each in answer["data"]] == list(expected)
        assert answer["usage"]["prompt_tokens"] == expected.prompt_tokens
    for model in ("cross_1", "dense"):
        singly = [client.score_pairs(model, [text], [other])[0]
                  for text, other in zip(TEXTS, TEXTS[::-1])]
        answer = ask(gateway, "/v1/score", {"model": model, "text_1": TEXTS,
                                            "text_2": TEXTS[::-1]})
        assert [each["score"] for each in answer["data"]] == singly
    refused = gateway.post("/score", {"model": "cross_1", "text_1": TEXTS[:2], "text_2": TEXTS})
    assert refused.status == 400 and "text_1 has 2 texts" in refused.json["error"]["message"]


def test_vllm_classifies(gateway, client):
    softmax = client.classify("cross_3", TEXTS, activation="softmax")
    raw = client.classify("cross_3", TEXTS, activation="none")
    for field, expected in (({}, softmax), ({"use_activation": False}, raw),
                            ({"softmax": False}, raw)):
        answer = ask(gateway, "/classify", {"model": "cross_3", "input": TEXTS, **field})
        assert [each["probs"] for each in answer["data"]] == [each.scores for each in expected]
    assert [each["label"] for each in answer["data"]] == [each.name for each in raw]
    assert {each["num_classes"] for each in answer["data"]} == {3}
    refused = gateway.post("/classify", {"model": "cls", "input": "a"})
    assert refused.status == 400 and "not a classifier" in refused.json["error"]["message"]


def test_vllm_pools(gateway, client):
    def data(**body):
        return [each["data"] for each in ask(gateway, "/pooling", {"input": TEXTS, **body})["data"]]

    assert data(model="cls") == client.embed("cls", TEXTS).tolist()
    assert data(model="cls", task="token_embed") == [
        each.tolist() for each in client.embed_tokens("cls", TEXTS)]
    assert data(model="cross_3") == [
        each.scores for each in client.classify("cross_3", TEXTS, activation="softmax")]


def test_input_type_selects_the_prompt_of_the_model(gateway, client):
    for kind, prompt in (("query", "query"), ("search_query", "query"), ("passage", "document"),
                         ("clustering", "")):
        answer = ask(gateway, "/v1/embeddings", {"model": "dense", "input": TEXTS,
                                                 "input_type": kind})
        expected = client.embed("dense", TEXTS, prompt_name=prompt, normalize=True).tolist()
        assert [each["embedding"] for each in answer["data"]] == expected
    plain = ask(gateway, "/v1/embeddings", {"model": "demo", "input": "a", "input_type": "query",
                                            "normalize": False})
    assert plain["data"][0]["embedding"] == client.embed("demo", "a").tolist()[0]


def test_cohere_embeds_in_several_types(gateway, client):
    answer = ask(gateway, "/v2/embed", {
        "model": "dense", "texts": TEXTS, "input_type": "search_document",
        "embedding_types": ["float", "int8", "uint8", "binary", "ubinary", "base64"]})
    vectors = client.embed("dense", TEXTS, prompt_name="document")
    made = answer["embeddings"]
    assert made["float"] == vectors.tolist() and answer["texts"] == TEXTS
    signs = np.packbits(np.asarray(vectors) > 0, axis=1)
    np.testing.assert_array_equal(made["ubinary"], signs)
    np.testing.assert_array_equal(made["binary"], signs.astype(int) - 128)
    for row, small, shifted in zip(np.asarray(vectors), made["int8"], made["uint8"]):
        assert max(map(abs, small)) == 127 and [each + 128 for each in small] == shifted
        cosine = row @ small / np.linalg.norm(row) / np.linalg.norm(small)
        assert cosine > 0.999
    assert answer["meta"]["tokens"]["input_tokens"] == vectors.prompt_tokens
    for dtype in ("int8", "ubinary"):
        reply = ask(gateway, "/v1/embeddings", {"model": "dense", "input": TEXTS,
                                                "input_type": "document", "output_dtype": dtype})
        assert [each["embedding"] for each in reply["data"]] == made[dtype]


def test_cohere_v1_embeds_as_a_list(gateway, client):
    asked = {"model": "dense", "texts": TEXTS, "input_type": "search_document"}
    answer = ask(gateway, "/v1/embed", asked)
    assert answer["response_type"] == "embeddings_floats"
    assert answer["embeddings"] == client.embed("dense", TEXTS, prompt_name="document").tolist()
    by_type = ask(gateway, "/v1/embed", {**asked, "embedding_types": ["float"]})
    assert by_type["embeddings"] == {"float": answer["embeddings"]}


@pytest.mark.parametrize("task, kind", [("retrieval.query", "query"),
                                        ("retrieval.passage", "document")])
def test_task_of_jina_selects_the_prompt_of_the_model(gateway, task, kind):
    asked = {"model": "dense", "input": TEXTS}
    expected = ask(gateway, "/v1/embeddings", {**asked, "input_type": kind})
    assert ask(gateway, "/v1/embeddings", {**asked, "task": task}) == expected


@pytest.mark.parametrize("path, body", [
    ("/v1/embeddings", {"model": "dense", "input": ["a " * 999]}),
    ("/v1/rerank", {"model": "dense", "query": "a", "documents": ["a " * 999]}),
])
def test_truncation_of_voyage_and_jina_cuts_texts(gateway, path, body):
    assert gateway.post(path, {**body, "truncation": False}).status == 400
    assert ask(gateway, path, {**body, "truncation": True})["usage"]["truncated_tokens"] > 0
    both = gateway.post(path, {**body, "truncation": True, "truncate": "left"})
    assert both.status == 400 and b"only one" in both.body


def test_types_of_embeddings_at_their_limits():
    tensor = Tensor.of("x", "FP32", (2, 10), [0.0] * 10 + [-2.0, 1.0, 0.0] + [1.0] * 7)
    rows = tensor.tolist()
    assert [integers(row, "int8") for row in rows] == [[0] * 10, [-127, 64, 0] + [64] * 7]
    assert integers(rows[1], "uint8")[0] == 1
    assert [integers(row, "ubinary") for row in rows] == [[0, 0], [0b01011111, 0b11000000]]

    async def turn(size):
        pass

    call = HttpCall(None, {}, b"", {}, None, lambda size: None, turn, lambda request_id: None)
    assert asyncio.run(encoded(call, tensor, "binary", "base64"))[0] == "gIA="
    for value in (math.nan, math.inf):
        broken = Tensor.of("embedding", "FP32", (1, 2), [1.0, value])
        for dtype in ("float", "int8", "ubinary"):
            with pytest.raises(Refused, match="embedding has NaN or infinite"):
                asyncio.run(encoded(call, broken, dtype))
        assert len(asyncio.run(encoded(call, broken, "base64"))) == 1


@pytest.mark.parametrize(
    "path, body, text",
    [
        ("/embed", {"inputs": [1, 2]}, "--allow-token-ids"),
        ("/embed", {"inputs": "a", "model": "cross_1"}, "reranker"),
        ("/embed", {"inputs": "a", "truncate": "right"}, "truncate"),
        ("/embed", {"inputs": "a", "more": 1}, "not a supported field"),
        ("/embed", {"inputs": ["a"] * 2049}, "2048"),
        ("/predict", {"inputs": "a"}, "not a classifier"),
        ("/predict", {"inputs": ["a", "b", "c"], "model": "cross_3"}, "3 texts"),
        ("/predict", {"inputs": [["a"], "b"], "model": "cross_3"}, "mixes"),
        ("/predict", {"inputs": 5, "model": "cross_3"}, "inputs is not a text"),
        ("/predict", {"inputs": True, "model": "cross_3"}, "inputs is not a text"),
        ("/predict", {"inputs": "a", "parameters": {"function_to_apply": "tanh"}}, "softmax"),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": []}}, "empty"),
        ("/embed_sparse", {"inputs": "a"}, "sparse_ids"),
        ("/score", {"text_1": "a", "text_2": []}, "text_2 has 0 texts"),
        ("/pooling", {"input": "a", "task": "plugin"}, "task"),
        ("/pooling", {"input": "a", "truncate_prompt_tokens": 5}, "-1"),
        ("/pooling", {"input": "a", "task": "token_embed", "dimensions": 2}, "task embed"),
        ("/v1/embeddings", {"model": "cls", "input": [{"text": "a"}]}, "is not a text, a token id"),
        ("/v1/embeddings", {"model": "cls", "input": [None]}, "is not a text, a token id"),
        ("/v2/embed", {"model": "cls", "texts": ["a"], "embedding_types": ["int4"]}, "ubinary"),
        ("/v2/rerank", {"model": "cls", "query": "a", "documents": ["a"], "rank_fields": ["b"]},
         "rank_fields"),
        ("/v1/embeddings", {"model": "dense", "input": "a", "input_type": "query",
                            "prompt_name": "query"}, "only one"),
    ],
)
def test_requests_that_cannot_be_served_are_refused(gateway, path, body, text):
    refused = gateway.post(path, body)
    assert refused.status in (400, 501) and text in refused.body.decode(), refused.body
