"""Compares sparse embeddings (SPLADE) of a masked language model with numpy in float64."""

import json
import random
import shutil
import subprocess

import numpy as np
import pytest
from conftest import SLUICE, Daemon
from gateway import Gateway
from infer import ids_inputs, infer, text_inputs
from sentence_models import write_json
from sluice_client import Client
from tiny_model import TinyModel
from tritonclient.utils import InferenceServerException

PREFIX = "sentence_transformers.sparse_encoder.modules."
OUTPUTS = ["sparse_ids", "sparse_weights"]
TEXTS = ["a gate", "who opened", "it", "the gate!"]


def weights_of(model, ids, times=1):
    """Returns the weights of a row: log(1 + relu(logits)), the maximum over positions."""
    weights = np.maximum(model.all_logits(ids), 0)
    for _ in range(times):
        weights = np.log1p(weights)
    return weights.max(0)


def as_dense(ids, weights, vocab):
    kept = ids >= 0
    assert not weights[~kept].any() and (np.diff(weights[kept]) <= 0).all(), "heaviest first"
    dense = np.zeros(vocab)
    dense[ids[kept]] = weights[kept]
    return dense


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    seed = random.randrange(2**32)
    print("seed", seed)
    return TinyModel(tmp_path_factory.mktemp("sparse") / "mlm", seed, causal=False, vocab=300,
                     positions=24, tokenizer="byte")


@pytest.fixture(scope="module")
def served(model):
    splade = model.directory.parent / "splade"
    shutil.copytree(model.directory, splade)
    write_json(splade / "modules.json", [
        {"idx": 0, "name": "0", "path": "", "type": PREFIX + "MLMTransformer"},
        {"idx": 1, "name": "1", "path": "1_SpladePooling", "type": PREFIX + "SpladePooling"}])
    write_json(splade / "1_SpladePooling" / "config.json",
               {"pooling_strategy": "max", "activation_function": "log1p_relu",
                "embedding_dimension": None})
    write_json(splade / "config_sentence_transformers.json",
               {"model_type": "SparseEncoder", "similarity_fn_name": "dot", "prompts": {}})
    with Daemon(models=[("mlm", model.directory), ("splade", splade)]) as daemon:
        yield daemon


def test_weights_equal_numpy_for_one_text_and_for_a_batch(model, served):
    rows = [[*text.encode()] for text in TEXTS]
    with served.client() as client:
        together = infer(client, ids_inputs(rows), OUTPUTS, "mlm")
        for row, ids in enumerate(rows):
            dense = as_dense(together["sparse_ids"][row], together["sparse_weights"][row], 300)
            np.testing.assert_allclose(dense, weights_of(model, ids), rtol=0, atol=1e-5)
            alone = infer(client, ids_inputs([ids]), OUTPUTS, "mlm")
            for name, values in alone.items():
                np.testing.assert_array_equal(values[0], together[name][row, :values.shape[1]])


def test_sparse_encoder_folder_returns_terms(model, served):
    with served.client() as client:
        answer = infer(client, text_inputs(*TEXTS), None, "splade")
        few = infer(client, text_inputs(*TEXTS), None, "splade", max_active_dims=3)
    assert {*answer} == {*few} == {*OUTPUTS}
    assert few["sparse_ids"].shape == (len(TEXTS), 3)
    for row, text in enumerate(TEXTS):
        dense = as_dense(answer["sparse_ids"][row], answer["sparse_weights"][row], 300)
        np.testing.assert_allclose(dense, weights_of(model, [*text.encode()], 2), atol=1e-5)
        np.testing.assert_array_equal(few["sparse_ids"][row], answer["sparse_ids"][row, :3])


def test_python_client_and_command_line_return_the_terms(served):
    with Client(served.grpc) as client:
        terms = client.embed_sparse("splade", TEXTS, max_active_dims=5)
    words = ("--model", "splade", "--sparse", "--max-active-dims", "5")
    run = [SLUICE, "--server", served.grpc, "embed", *words]
    lines = subprocess.run([*run, "--json", *TEXTS], capture_output=True, text=True, check=True)
    for text, row, line in zip(TEXTS, terms, map(json.loads, lines.stdout.splitlines())):
        assert line["text"] == text and line["sparse_ids"] == [*row]
        np.testing.assert_array_equal(np.float32(line["sparse_weights"]),
                                      np.float32([*row.values()]))
    table = subprocess.run([*run, *TEXTS], capture_output=True, text=True, check=True).stdout
    assert table.splitlines()[0].split() == ["TEXT", "TERMS", "HEAVIEST"]


@pytest.mark.parametrize("terms", [0, 1025])
def test_the_number_of_terms_is_bounded(served, terms):
    with served.client() as client:
        with pytest.raises(InferenceServerException, match=f"max_active_dims.*{terms}"):
            infer(client, text_inputs("a"), None, "splade", max_active_dims=terms)


def test_gateway_answers_in_the_form_of_tei(served):
    with Gateway(served.grpc) as gateway, Client(served.grpc) as client:
        for model in ("mlm", "splade"):
            rows = client.embed_sparse(model, TEXTS)
            answer = gateway.post("/embed_sparse", {"model": model, "inputs": TEXTS}).json
            assert answer == [[{"index": index, "value": value} for index, value in row.items()]
                              for row in rows]
            assert all(answer)
