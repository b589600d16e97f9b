"""Tests `sluice verify` on transformers checkpoints with outputs computed by PyTorch."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest
import safetensors.numpy

from conftest import ROOT, SLUICE
from sentence_models import write_json
from waiting import PATIENCE_S

GPT2 = ROOT / "tests" / "goldens" / "verify"


def verify(model, golden, *options):
    return subprocess.run(
        [SLUICE, "verify", model, "--golden", golden, *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


@pytest.fixture
def model(tmp_path):
    """A copy of the model that a test may change."""
    shutil.copytree(GPT2, tmp_path / "model")
    return tmp_path / "model"


def change(model, name, alter):
    path = model / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    alter(tensors[name])
    safetensors.numpy.save_file(tensors, path, metadata={"format": "pt"})


def test_outputs_equal_pytorch():
    result = verify(GPT2, GPT2 / "golden.npz")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "The same within 1e-05" in result.stdout
    names = ["state_0", "module:transformer.h.2.attn.c_attn", "state_3", "final", "logits"]
    for name in names:
        assert f" {name} " in result.stdout
    report = json.loads(verify(GPT2, GPT2 / "golden.npz", "--json").stdout)
    assert report["same"] and {*names} <= {each["output"] for each in report["outputs"]}
    assert max(each["largest_error"] for each in report["outputs"]) <= report["tolerance"]
    assert (
        verify(GPT2, GPT2 / "golden.npz", "--tolerance", "0").returncode == 1
    ), "PyTorch adds in a different order"


@pytest.mark.parametrize("tensor, place, first", [
    # The position changes in every sequence; rounding decides which sequence is reported.
    ("transformer.wpe.weight", (2, 5), r"embedding, state_0: sequence \d, position 2, feature 5"),
    ("transformer.h.1.attn.c_attn.bias", (40,), "layer 1, module:transformer.h.1.attn.c_attn:"),
    ("transformer.h.1.attn.c_proj.weight", (3, 3), "layer 1, module:transformer.h.1.ln_2:"),
    ("transformer.h.2.mlp.c_fc.bias", (7,), "layer 2, module:transformer.h.2.mlp.c_fc:"),
    ("transformer.h.2.mlp.c_proj.bias", (7,), "layer 2, state_3:"),
    ("transformer.ln_f.bias", (1,), "head, module:transformer.ln_f:"),
])
def test_one_changed_weight_is_located(model, tensor, place, first):
    def alter(values):
        values[place] += 0.5
    change(model, tensor, alter)
    result = verify(model, model / "golden.npz", "--tolerance", "1e-4")
    assert result.returncode == 1, result.stdout + result.stderr
    assert re.search(f"Differs first at {first}", result.stdout), result.stdout
    report = json.loads(
        verify(model, model / "golden.npz", "--tolerance", "1e-4", "--json").stdout)
    place = report["differs_first"]
    assert re.search(first.partition(": ")[0], f"{place['where']}, {place['output']}:"), report
    assert not report["same"] and place["largest_error"] > 1e-4


def test_golden_may_be_compressed_and_partial(model):
    with np.load(GPT2 / "golden.npz") as golden:
        some = {name: golden[name] for name in ("input_ids", "input_lengths", "logits")}
    np.savez_compressed(model / "some.npz", **some, **{"module:nothing": some["logits"]})
    result = verify(model, model / "some.npz")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 outputs." in result.stdout and "the first is module:nothing" in result.stdout


BERT = ROOT / "tests" / "goldens" / "bert_headless"
LABELS = 3


@pytest.fixture
def classifier(tmp_path):
    """The folder of a BertForSequenceClassification with random weights, and its golden.npz.

    The states were computed by transformers; the outputs of pooler and classifier are computed
    here."""
    folder = tmp_path / "classifier"
    shutil.copytree(BERT, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["BertForSequenceClassification"],
               "id2label": {str(label): str(label) for label in range(LABELS)}}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    draw = np.random.default_rng(4)
    tensors["classifier.weight"] = draw.standard_normal((LABELS, config["hidden_size"]), np.float32)
    tensors["classifier.bias"] = draw.standard_normal(LABELS, np.float32)
    safetensors.numpy.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    expected = safetensors.numpy.load_file(folder / "expected.safetensors")
    lengths, longest = expected["lengths"], expected["lengths"].max()
    ends = np.cumsum(lengths)
    ids = np.zeros((len(lengths), longest), np.int64)
    final = np.zeros((len(lengths), longest, config["hidden_size"]), np.float32)
    for row, (end, length) in enumerate(zip(ends, lengths)):
        ids[row, :length] = expected["input_ids"][end - length:end]
        final[row, :length] = expected["states"][end - length:end]
    linear = (
        lambda name, x: x @ tensors[f"{name}.weight"].T.astype(np.float64) + tensors[f"{name}.bias"]
    )
    pooler = linear("pooler.dense", final[:, 0].astype(np.float64))
    scores = linear("classifier", np.tanh(pooler))
    np.savez(
        folder / "golden.npz",
        input_ids=ids,
        input_lengths=lengths[:, None],
        final=final,
        scores=scores,
        **{"module:pooler.dense": pooler, "module:classifier": scores},
    )
    return folder


def test_the_scores_of_a_classifier_are_compared(classifier):
    result = verify(classifier, classifier / "golden.npz", "--tolerance", "1e-4")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "4 outputs." in result.stdout and "not checked" not in result.stdout
    for name in ("final", "module:pooler.dense", "module:classifier", "scores"):
        assert f" {name} " in result.stdout


@pytest.mark.parametrize("tensor, place, first", [
    ("pooler.dense.weight", (3, 5), "head, module:pooler.dense: sequence "),
    ("pooler.dense.bias", (2,), "head, module:pooler.dense: sequence "),
    ("classifier.weight", (1, 7), "head, module:classifier: sequence "),
    ("classifier.bias", (LABELS - 1,), "head, module:classifier: sequence "),
])
def test_a_changed_weight_of_a_classifier_is_found(classifier, tensor, place, first):
    def alter(values):
        values[place] += 0.5
    change(classifier, tensor, alter)
    result = verify(classifier, classifier / "golden.npz", "--tolerance", "1e-4")
    assert result.returncode == 1, result.stdout + result.stderr
    assert (
        f"Differs first at {first}" in result.stdout and "position" not in result.stdout
    ), result.stdout


def test_scores_suffice_to_verify_a_classifier(classifier):
    with np.load(classifier / "golden.npz") as golden:
        some = {name: golden[name] for name in ("input_ids", "input_lengths", "scores")}
    np.savez(classifier / "scores.npz", **some)
    result = verify(classifier, classifier / "scores.npz", "--tolerance", "1e-4")
    assert result.returncode == 0, result.stdout + result.stderr

    def overwrite(values):
        values[:] = np.random.default_rng(9).standard_normal(values.shape, np.float32)
    change(classifier, "classifier.weight", overwrite)
    result = verify(classifier, classifier / "scores.npz", "--tolerance", "1e-4")
    assert (
        result.returncode == 1 and "Differs first at head, scores: sequence " in result.stdout
    ), result.stdout


@pytest.mark.parametrize("pooling", ["cls", "mean", "last"])
def test_each_pooling_of_a_classifier_equals_numpy(classifier, pooling):
    config = json.loads((classifier / "config.json").read_text())
    config |= {"sluice": {"classifier": {"labels": LABELS, "pooling": pooling}}}
    (classifier / "config.json").write_text(json.dumps(config))
    tensors = safetensors.numpy.load_file(classifier / "model.safetensors")
    with np.load(classifier / "golden.npz") as golden:
        ids, lengths, final = (golden[name] for name in ("input_ids", "input_lengths", "final"))
    pools = {
        "cls": lambda states: states[0],
        "mean": lambda states: states.mean(0),
        "last": lambda states: states[-1],
    }
    pooled = np.array(
        [
            pools[pooling](states[:length].astype(np.float64))
            for states, (length,) in zip(final, lengths)
        ]
    )
    np.savez(classifier / "pooled.npz", input_ids=ids, input_lengths=lengths,
             scores=pooled @ tensors["classifier.weight"].T + tensors["classifier.bias"])
    result = verify(classifier, classifier / "pooled.npz", "--tolerance", "1e-4")
    assert result.returncode == 0, result.stdout + result.stderr


def verify_some(folder, without=(), **more):
    """Verifies with golden.npz without the arrays `without` and with the arrays `more`."""
    with np.load(folder / "golden.npz") as golden:
        some = {name: golden[name] for name in golden if name not in without}
    np.savez(folder / "some.npz", **(some | more))
    return verify(folder, folder / "some.npz", "--tolerance", "1e-4")


def passed(result):
    assert result.returncode in (0, 1), result.stdout + result.stderr
    assert ("The same within" in result.stdout) == (result.returncode == 0), result.stdout
    return result.returncode == 0


def test_golden_without_the_models_outputs_is_not_verified(classifier, model):
    result = verify_some(classifier, without=("scores", "module:classifier"))
    assert not passed(result)
    assert "Not verified: the model answers with scores, which" in result.stdout
    assert "Differs" not in result.stdout
    assert passed(verify_some(classifier, without=("scores",)))
    result = verify_some(model, without=("logits",))
    assert not passed(result) and "answers with logits, which" in result.stdout
    config = json.loads((classifier / "config.json").read_text())
    (classifier / "config.json").write_text(
        json.dumps(config | {"architectures": ["BertModel"]}))
    heads = ("scores", "module:classifier", "module:pooler.dense")
    assert passed(verify_some(classifier, without=heads)), "embeddings need only the last states"
    with np.load(classifier / "golden.npz") as golden:
        first = golden["final"] * 0
    result = verify_some(classifier, without=(*heads, "final"), state_0=first)
    assert not passed(result) and "answers with embedding, which" in result.stdout


def test_the_scores_of_tokens_are_compared(classifier):
    config = json.loads((classifier / "config.json").read_text())
    config["architectures"] = ["BertForTokenClassification"]
    (classifier / "config.json").write_text(json.dumps(config))
    tensors = safetensors.numpy.load_file(classifier / "model.safetensors")
    with np.load(classifier / "golden.npz") as golden:
        final = golden["final"].astype(np.float64)
    scores = final @ tensors["classifier.weight"].T + tensors["classifier.bias"]
    heads = ("scores", "module:classifier", "module:pooler.dense")
    result = verify_some(classifier, without=heads)
    assert not passed(result) and "answers with token_scores, which" in result.stdout
    assert passed(verify_some(classifier, without=heads, token_scores=scores))
    assert passed(verify_some(classifier, without=heads, **{"module:classifier": scores}))

    def overwrite(values):
        values[:] = np.random.default_rng(9).standard_normal(values.shape, np.float32)
    change(classifier, "classifier.weight", overwrite)
    result = verify_some(classifier, without=heads, token_scores=scores)
    assert not passed(result) and "Differs first at head, token_scores: seq" in result.stdout


def test_embeddings_of_a_directory_of_sentence_transformers_are_compared(classifier):
    config = json.loads((classifier / "config.json").read_text())
    config["architectures"] = ["BertModel"]
    (classifier / "config.json").write_text(json.dumps(config))
    width = config["hidden_size"]
    path = "sentence_transformers.models"
    write_json(classifier / "modules.json", [
        {"idx": 0, "name": "0", "path": "", "type": f"{path}.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{path}.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Dense", "type": f"{path}.Dense"},
        {"idx": 3, "name": "3", "path": "3_Normalize", "type": f"{path}.Normalize"}])
    write_json(classifier / "1_Pooling" / "config.json",
               {"word_embedding_dimension": width, "pooling_mode_max_tokens": True})
    write_json(classifier / "2_Dense" / "config.json",
               {"in_features": width, "out_features": 5, "bias": False,
                "activation_function": "torch.nn.modules.activation.Tanh"})
    dense = np.random.default_rng(6).standard_normal((5, width), np.float32)
    weights = classifier / "2_Dense" / "model.safetensors"
    safetensors.numpy.save_file({"linear.weight": dense}, weights, metadata={"format": "pt"})
    with np.load(classifier / "golden.npz") as golden:
        pooled = [states[:length].max(0) for states, (length,) in
                  zip(golden["final"], golden["input_lengths"])]
    embedding = np.tanh(np.array(pooled, np.float64) @ dense.T)
    embedding /= np.linalg.norm(embedding, axis=1, keepdims=True)
    heads = ("scores", "module:classifier", "module:pooler.dense")
    result = verify_some(classifier, without=heads)
    assert not passed(result) and "answers with embedding, which" in result.stdout
    assert passed(verify_some(classifier, without=heads, embedding=embedding))
    safetensors.numpy.save_file({"linear.weight": dense[::-1].copy()}, weights,
                                metadata={"format": "pt"})
    result = verify_some(classifier, without=heads, embedding=embedding)
    assert not passed(result) and "Differs first at head, embedding: seq" in result.stdout


def test_token_types_of_the_golden_are_used(classifier):
    """Swaps the two rows of the token type table, so that type 1 replaces type 0."""
    def exchange(values):
        values[:] = values[::-1].copy()
    change(classifier, "embeddings.token_type_embeddings.weight", exchange)
    with np.load(classifier / "golden.npz") as golden:
        ids = golden["input_ids"]
    assert not passed(verify_some(classifier))
    assert passed(verify_some(classifier, token_type_ids=np.ones_like(ids)))
    result = verify_some(classifier, token_type_ids=np.full_like(ids, 2))
    assert result.returncode == 2 and "token_type_ids[0, 0] is not in [0, 1]" in result.stderr


def test_scores_of_another_shape_are_refused(classifier):
    def refused(text, **arrays):
        np.savez(classifier / "bad.npz", input_ids=np.zeros((2, 3), np.int64), **arrays)
        result = verify(classifier, classifier / "bad.npz")
        assert result.returncode == 2 and text in result.stderr, result.stdout + result.stderr
    refused("scores has width 2; the model's is 3", scores=np.zeros((2, 2)))
    refused("scores is not of shape [2, width]", scores=np.zeros((2, 3, 3)))
    refused("scores is not of shape [2, width]", scores=np.zeros((1, 3)))
    refused(
        "module:pooler.dense has width 3; the model's is 16",
        **{"module:pooler.dense": np.zeros((2, 3))},
    )
    refused("final is not of shape [2, 3, width]", final=np.zeros((2, 16)))


def test_a_golden_that_cannot_be_compared_is_refused_with_the_reason(model):
    def refused(text, **arrays):
        np.savez(model / "bad.npz", **arrays)
        result = verify(model, model / "bad.npz")
        assert result.returncode == 2 and text in result.stderr, result.stdout + result.stderr
    ids = np.zeros((1, 3), np.int64)
    refused("input_ids [n, length] is missing", logits=np.zeros((1, 3, 97)))
    refused("has no output to compare with", input_ids=ids)
    refused(
        "input_ids[0, 1] is not in [0, 96]",
        input_ids=np.array([[0, 97, 0]]),
        logits=np.zeros((1, 3, 97)),
    )
    refused("logits has width 96; the model's is 97", input_ids=ids, logits=np.zeros((1, 3, 96)))
    refused("final is not of shape [1, 3, width]", input_ids=ids, final=np.zeros((1, 4, 16)))
    refused("has no output that the model computes", input_ids=ids, other=np.zeros((1, 3, 16)))
    refused(
        "logits.npy is not of float32", input_ids=ids, logits=np.zeros((1, 3, 97), np.complex64)
    )
    refused(
        "positions; the model has 24",
        input_ids=np.zeros((1, 25), np.int64),
        logits=np.zeros((1, 25, 97)),
    )
    (model / "cut.npz").write_bytes((GPT2 / "golden.npz").read_bytes()[:5000])
    assert "cut.npz: is not a .npz file" in verify(model, model / "cut.npz").stderr
    assert verify(model, model / "none.npz").returncode == 2
    assert (
        "--tolerance: expected a number"
        in verify(model, GPT2 / "golden.npz", "--tolerance", "x").stderr
    )


@pytest.mark.parametrize("options, bits, cosine", [
    (["int8"], 0.005, 0.999),
    (["int4"], 0.02, 0.99),
    (["int4", "--quantization-group", "32"], 0.02, 0.99),
])
def test_precision_is_compared_with_f32_on_texts(options, bits, cosine):
    text = ROOT / "models" / "demo" / "heldout.txt"
    result = subprocess.run(
        [SLUICE, "verify", ROOT / "models" / "demo", "--against", "f32", "--text", text,
         "--quantization", *options], capture_output=True, text=True, timeout=PATIENCE_S)
    assert result.returncode == 0, result.stdout + result.stderr
    change = re.search(r"bits per byte: .* \(([+-][\d.]+)\)", result.stdout)
    assert change and 0 != abs(float(change[1])) < bits, result.stdout
    assert float(re.search(r"mean cosine ([\d.]+)", result.stdout)[1]) > cosine


@pytest.mark.parametrize(
    "options, error",
    [
        (["--against", "f32"], "--text"),
        (["--against", "f16", "--text", "x"], "--against: expected f32"),
        ([], "--golden"),
        (["--golden", "x", "--quantization", "int8"], "--quantization"),
        (["--against", "f32", "--text", "x", "--quantization", "int3"], "--quantization"),
        (["--against", "f32", "--text", "x", "--quantization", "int4", "--quantization-group",
          "48"], "--quantization-group"),
        (["--against", "f32", "--text", "x", "--quantization", "int8", "--quantization-group",
          "32"], "--quantization-group"),
        (["--against", "f32", "--text", "x", "--quantize-head"], "--quantize-head"),
    ],
)
def test_incompatible_flags_are_refused(options, error):
    result = subprocess.run([SLUICE, "verify", GPT2, *options], capture_output=True, text=True,
                            timeout=PATIENCE_S)
    assert result.returncode == 2
    assert error in result.stderr
