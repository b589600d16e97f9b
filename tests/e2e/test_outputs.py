"""Compares embeddings, scores, candidates, exclusions, vectors and windows with numpy."""

import json
import subprocess

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from conftest import SLUICE, Daemon
from infer import ids_inputs, infer, tensor
from tiny_model import POSITIONS, VOCAB, D, TinyModel
from tritonclient.utils import InferenceServerException
from waiting import PATIENCE_S

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
ROWS = [[3, 17, 5], [1], [30, 2, 2, 9, 0, 11, 12, 13, 14, 15, 16, 39]]


class Served:
    """A daemon with one model of each kind."""

    def __init__(self, folder):
        self.encoder = TinyModel(folder / "encoder", 1, head=False, causal=False)
        self.classifier = TinyModel(
            folder / "classifier", 2, head=False, causal=False,
            classifier={"labels": 3, "pooling": "cls", "pooler": "tanh"},
            embedding={"pooling": "cls", "normalize": True})
        self.recommender = TinyModel(
            folder / "recommender", 3, position_alignment="end", truncate="left"
        )
        self.language = TinyModel(folder / "language", 4)
        self.vectors = TinyModel(folder / "vectors", 5, input={"kind": "both"})
        kinds = ("encoder", "classifier", "recommender", "language", "vectors")
        self.models = [(kind, folder / kind) for kind in kinds]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    served = Served(tmp_path_factory.mktemp("models"))
    with Daemon(models=served.models) as served.daemon:
        yield served


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def refused(client, inputs, model, outputs=None, **parameters):
    with pytest.raises(InferenceServerException) as error:
        infer(client, inputs, outputs, model=model, **parameters)
    assert error.value.status() == "StatusCode.INVALID_ARGUMENT"
    return error.value.message()


def test_a_model_without_a_head_serves_embeddings(served):
    with served.daemon.client() as client:
        answer = infer(client, ids_inputs(ROWS), model="encoder")
        metadata = client.get_model_metadata("encoder")
        message = refused(client, ids_inputs(ROWS), "encoder", max_tokens=1)
        assert "no head" in message
        unknown = refused(client, ids_inputs(ROWS), "encoder", ["logits"])
        assert "token_embeddings, embedding" in unknown
    assert list(answer) == ["embedding"]
    assert [(o.name, list(o.shape)) for o in metadata.outputs] == [("embedding", [-1, D])]
    expected = np.stack([served.encoder.states(row).mean(0) for row in ROWS])
    np.testing.assert_allclose(answer["embedding"], expected, **CLOSE)


@pytest.mark.parametrize("name", ["encoder", "language"])
@pytest.mark.parametrize(
    "pooling, pool",
    [
        pytest.param("mean", lambda states: states.mean(0), id="mean"),
        pytest.param("cls", lambda states: states[0], id="cls"),
        pytest.param("last", lambda states: states[-1], id="last"),
    ],
)
def test_embeddings_are_pooled_and_normalised_as_requested(served, name, pooling, pool):
    model = getattr(served, name)
    expected = np.stack([pool(model.states(row)) for row in ROWS])
    with served.daemon.client() as client:
        plain = infer(client, ids_inputs(ROWS), ["embedding"], model=name, pooling=pooling)
        np.testing.assert_allclose(plain["embedding"], expected, **CLOSE)
        unit = infer(
            client, ids_inputs(ROWS), ["embedding"], model=name, pooling=pooling, normalize=True
        )
        np.testing.assert_allclose(
            unit["embedding"],
            expected / np.linalg.norm(expected, axis=1, keepdims=True),
            **CLOSE
        )


@pytest.mark.parametrize(
    "model, outputs, items",
    [
        pytest.param("encoder", ["embedding"], False, id="encoder"),
        pytest.param("classifier", ["scores", "embedding"], False, id="classifier"),
        pytest.param(
            "recommender", ["candidate_scores", "embedding", "logits"], True, id="recommender"
        ),
    ],
)
def test_rows_have_the_same_bits_in_a_batch(served, model, outputs, items):
    candidates = np.array([[1, 2, 3]] * len(ROWS), np.int32)
    with served.daemon.client() as client:

        def ask(rows):
            extra = [tensor("candidate_ids", candidates[: len(rows)], "INT32")] if items else []
            return infer(client, ids_inputs(rows) + extra, outputs, model=model, max_tokens=0)

        together = ask(ROWS)
        for i, row in enumerate(ROWS):
            alone = ask([row])
            for name in outputs:
                assert together[name][i].tobytes() == alone[name][0].tobytes(), (model, name, i)


def test_a_classifier_returns_its_scores(served):
    expected = np.stack(
        [served.classifier.scores(served.classifier.states(row)[0]) for row in ROWS]
    )
    with served.daemon.client() as client:
        raw = infer(client, ids_inputs(ROWS), model="classifier")
        assert list(raw) == ["scores"]
        np.testing.assert_allclose(raw["scores"], expected, **CLOSE)
        unit = infer(client, ids_inputs(ROWS), ["embedding"], model="classifier")["embedding"]
        np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, rtol=1e-5)
        assert "none, softmax, sigmoid" in refused(
            client, ids_inputs(ROWS), "classifier", activation="relu"
        )


@pytest.mark.parametrize(
    "activation, apply",
    [
        pytest.param("softmax", softmax, id="softmax"),
        pytest.param("sigmoid", lambda x: 1 / (1 + np.exp(-x)), id="sigmoid"),
    ],
)
def test_scores_have_the_requested_activation(served, activation, apply):
    scores = np.stack([served.classifier.scores(served.classifier.states(row)[0]) for row in ROWS])
    with served.daemon.client() as client:
        answer = infer(
            client, ids_inputs(ROWS), ["scores"], model="classifier", activation=activation
        )
        np.testing.assert_allclose(answer["scores"], apply(scores), **CLOSE)


def test_candidates_are_scored_without_the_other_items(served):
    candidates = np.array([[0, 39, 7, 7], [1, 2, -1, 3], [5, 6, 7, 8]], np.int64)
    inputs = [*ids_inputs(ROWS), tensor("candidate_ids", candidates, "INT64")]
    logits = np.stack([served.recommender.logits(row) for row in ROWS])
    expected = np.where(
        candidates < 0, -np.inf, np.take_along_axis(logits, np.maximum(candidates, 0), 1)
    )
    with served.daemon.client() as client:
        answer = infer(client, inputs, ["candidate_scores"], model="recommender")
        np.testing.assert_allclose(answer["candidate_scores"], expected, **CLOSE)
        shares = infer(
            client,
            inputs,
            ["candidate_scores"],
            model="recommender",
            candidate_activation="log_softmax",
        )
        with np.errstate(divide="ignore"):
            np.testing.assert_allclose(
                shares["candidate_scores"], np.log(softmax(expected)), **CLOSE
            )
        assert "candidate_scores" in infer(client, inputs, model="recommender")


def test_excluded_items_are_neither_drawn_nor_reported(served):
    logits = np.stack([served.recommender.logits(row) for row in ROWS])
    excluded = np.argsort(-logits, axis=1)[:, :5].astype(np.int32)
    excluded[1, 3:] = -1
    kept = logits.copy()
    for row, items in enumerate(excluded):
        kept[row, items[items >= 0]] = -np.inf
    inputs = [*ids_inputs(ROWS), tensor("exclude_ids", excluded, "INT32")]
    order = np.argsort(-kept, axis=1)[:, :6]
    logprobs = kept - np.log(np.exp(kept).sum(1, keepdims=True))
    with served.daemon.client() as client:
        answer = infer(
            client,
            inputs,
            ["output_ids", "top_ids", "top_logprobs", "top_scores", "logits"],
            model="recommender",
            num_top_logprobs=6,
        )
        np.testing.assert_array_equal(answer["top_ids"][:, 0], order)
        np.testing.assert_array_equal(answer["output_ids"][:, 0], order[:, 0])
        np.testing.assert_allclose(
            answer["top_scores"][:, 0], np.take_along_axis(kept, order, 1), **CLOSE
        )
        np.testing.assert_allclose(
            answer["top_logprobs"][:, 0], np.take_along_axis(logprobs, order, 1), **CLOSE
        )
        np.testing.assert_allclose(answer["logits"], kept, **CLOSE)
        for seed in range(20):
            drawn = infer(client, inputs, model="recommender", temperature="3.0", seed=seed)[
                "output_ids"
            ]
            assert not (drawn == excluded).any()
        assert "num_top_logprobs" in refused(client, inputs, "recommender", num_top_logprobs=VOCAB)


def test_windows_end_at_the_last_position(served):
    with served.daemon.client() as client:
        answer = infer(client, ids_inputs(ROWS), ["logits"], model="recommender")
        expected = np.stack([served.recommender.logits(row) for row in ROWS])
        np.testing.assert_allclose(answer["logits"], expected, **CLOSE)
        assert "the maximum is 1" in refused(client, ids_inputs(ROWS), "recommender", max_tokens=2)


LONG = [int(i) for i in np.arange(POSITIONS + 5) % VOCAB]


@pytest.mark.parametrize(
    "model, parameters, kept",
    [
        pytest.param("recommender", {}, LONG[-POSITIONS:], id="as-the-model-says"),
        pytest.param("recommender", {"truncate": "right"}, LONG[:POSITIONS], id="right"),
        pytest.param("language", {"truncate": "left"}, LONG[-POSITIONS:], id="left"),
    ],
)
def test_long_prompts_are_truncated_if_model_or_request_allows_it(served, model, parameters, kept):
    with served.daemon.client() as client:
        result = client.infer(
            model,
            ids_inputs([LONG, [4]]),
            parameters=parameters,
            outputs=[grpcclient.InferRequestedOutput("logits")],
        )
    assert result.get_response().parameters["truncated_tokens"].int64_param == 5
    np.testing.assert_allclose(
        result.as_numpy("logits")[0], getattr(served, model).logits(kept), **CLOSE
    )


def test_long_prompts_are_refused_without_truncation(served):
    with served.daemon.client() as client:
        assert "truncate" in refused(client, ids_inputs([LONG]), "language")


def test_vectors_give_the_same_answers_as_token_ids(served):
    model = served.vectors
    rows = [row[:6] for row in ROWS]
    embedded = np.zeros((len(rows), 6, D), np.float32)
    for i, row in enumerate(rows):
        embedded[i, : len(row)] = model.embed(row)
        embedded[i, len(row) :] = np.nan
    lengths = tensor("input_lengths", np.array([[len(row)] for row in rows], np.int32), "INT32")
    with served.daemon.client() as client:
        by_ids = infer(
            client, ids_inputs(rows), ["logits", "output_ids"], model="vectors", max_tokens=4
        )
        inputs = [tensor("inputs_embeds", embedded, "FP32"), lengths]
        answer = infer(client, inputs, ["logits", "output_ids"], model="vectors", max_tokens=4)
        np.testing.assert_array_equal(answer["output_ids"], by_ids["output_ids"])
        np.testing.assert_allclose(answer["logits"], by_ids["logits"], **CLOSE)
        random = np.random.default_rng(7).standard_normal((1, 4, D)).astype(np.float32)
        states = infer(
            client,
            [tensor("inputs_embeds", random, "FP32")],
            ["embedding"],
            model="vectors",
            pooling="mean",
        )
        np.testing.assert_allclose(
            states["embedding"][0], model.states(vectors=random[0]).mean(0), **CLOSE
        )
        random[0, 2, 3] = np.inf
        message = refused(client, [tensor("inputs_embeds", random, "FP32")], "vectors")
        assert "[0, 2, 3] is not finite" in message


def test_the_client_sends_candidates_exclusions_and_vectors(served):
    def sluice(*arguments):
        done = subprocess.run(
            [SLUICE, "infer", "--server", served.daemon.grpc, *arguments],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    shown = sluice("--model", "encoder", "--ids", "3,17,5")
    assert shown.startswith("embedding FP32 [1, 16]")
    line = json.loads(
        sluice(
            "--model",
            "recommender",
            "--ids",
            "3,17,5",
            "--candidate-ids",
            "1,2",
            "--exclude-ids",
            "7",
            "--num-top",
            "2",
            "--outputs",
            "candidate_scores,top_ids",
            "--json",
        )
    )
    np.testing.assert_allclose(line["outputs"]["candidate_scores"],
                               served.recommender.logits([3, 17, 5])[[1, 2]], **CLOSE)
    assert 7 not in line["outputs"]["top_ids"][0]
    vectors = json.dumps(served.vectors.embed([3, 17]).tolist())
    shown = json.loads(
        sluice(
            "--model",
            "vectors",
            "--inputs-embeds",
            vectors,
            "--outputs",
            "embedding",
            "--pooling",
            "last",
            "--json",
        )
    )
    np.testing.assert_allclose(
        shown["outputs"]["embedding"], served.vectors.states([3, 17])[-1], **CLOSE
    )
