"""Compares embeddings and scores of pairs with the results of sentence-transformers."""

import json
import shutil
import subprocess

import numpy as np
import pytest
import safetensors.numpy
import tritonclient.grpc as grpcclient
from conftest import SLUICE, Daemon
from infer import ids_inputs, infer, tensor, text_inputs
from sentence_models import EXPECTED, SENTENCES, lay, write_json
from sluice_client import Client
from tiny_model import write_safetensors
from tritonclient.utils import InferenceServerException

VARIANTS = sorted(EXPECTED["variants"])
CROSSES = sorted(EXPECTED["pairs"]["models"])
TEXTS = EXPECTED["texts"]
PAIRS = EXPECTED["pairs"]


def without_segments(folder):
    """Writes a cross-encoder that treats all tokens as tokens of the first segment."""
    shutil.copytree(SENTENCES / "cross_1", folder)
    weights = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(weights)
    name, = (name for name in tensors if name.endswith("token_type_embeddings.weight"))
    tensors[name][1] = tensors[name][0]
    safetensors.numpy.save_file(tensors, weights, metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentences")
    models = [(name, lay(folder / name, name)) for name in VARIANTS]
    others = [(name, SENTENCES / name) for name in (*CROSSES, "tokens")]
    others.append(("without_segments", without_segments(folder / "without_segments")))
    with Daemon(models=[*models, *others]) as daemon:
        yield daemon.grpc


@pytest.fixture(scope="module")
def served(address):
    with grpcclient.InferenceServerClient(address) as client:
        yield client


def embed(client, model, texts, **parameters):
    parameters = {name: value for name, value in parameters.items() if value is not None}
    return infer(client, text_inputs(*texts), model=model, **parameters)["embedding"]


def pairs(query, documents):
    column = np.array([[text.encode()] for text in documents], np.object_)
    return [*text_inputs(query), tensor("text_pair_input", column, "BYTES")]


def refused(client, inputs, model, outputs=None, **parameters):
    with pytest.raises(InferenceServerException) as error:
        infer(client, inputs, outputs, model=model, **parameters)
    assert error.value.status() == "StatusCode.INVALID_ARGUMENT"
    return error.value.message()


@pytest.mark.parametrize("variant", VARIANTS)
def test_embeddings_equal_sentence_transformers(served, variant):
    for answer in EXPECTED["variants"][variant]["answers"]:
        together = embed(served, variant, TEXTS, prompt_name=answer["prompt_name"])
        expected = np.array(answer["rows"])
        scale = np.maximum(np.abs(expected).max(axis=1, keepdims=True), 1)
        np.testing.assert_allclose(together / scale, expected / scale, rtol=0, atol=1e-6)
        alone = [embed(served, variant, [text], prompt_name=answer["prompt_name"])[0]
                 for text in TEXTS]
        np.testing.assert_array_equal(together, alone)


def test_empty_prompt_name_adds_no_prompt(served):
    bare = embed(served, "dense", TEXTS, prompt_name="")
    prompted = embed(served, "dense", TEXTS)
    np.testing.assert_array_equal(embed(served, "dense", TEXTS, prompt_name="document"), bare)
    assert np.abs(bare - prompted).max() > 0.01
    message = refused(served, text_inputs("a"), "dense", prompt_name="passage")
    assert 'the model has no prompt "passage"; it has document, query, short' in message


def test_dimensions_cut_and_normalise_again(served):
    whole = embed(served, "dense", TEXTS)
    cut = embed(served, "dense", TEXTS, dimensions=5)
    expected = whole[:, :5] / np.linalg.norm(whole[:, :5], axis=1, keepdims=True)
    np.testing.assert_allclose(cut, expected, rtol=1e-6, atol=1e-6)
    raw = embed(served, "max", TEXTS)
    np.testing.assert_array_equal(embed(served, "max", TEXTS, dimensions=5), raw[:, :5])
    assert "dimensions is 17; expected" in refused(served, text_inputs("a"), "dense",
                                                   dimensions=17)


def test_pooling_before_layers_cannot_be_changed(served):
    assert "the model's files fix the pooling" in refused(served, text_inputs("a"), "dense",
                                                          pooling="mean")
    np.testing.assert_array_equal(embed(served, "cls", TEXTS, pooling="max"),
                                  embed(served, "max", TEXTS))


@pytest.mark.parametrize("model", CROSSES)
def test_scores_of_pairs_and_their_order_equal_sentence_transformers(served, model):
    for query, expected in zip(PAIRS["queries"], np.array(PAIRS["models"][model])):
        expected = expected.reshape(len(PAIRS["documents"]), -1)
        together = infer(served, pairs(query, PAIRS["documents"]), model=model,
                         activation="none")["scores"]
        np.testing.assert_allclose(together, expected, rtol=0, atol=1e-5)
        ranking, wanted = (np.argsort(-of[:, 0], kind="stable") for of in (together, expected))
        np.testing.assert_array_equal(ranking, wanted)
        alone = [infer(served, pairs(query, [document]), ["scores"], model=model,
                       activation="none")["scores"][0] for document in PAIRS["documents"][:7]]
        np.testing.assert_array_equal(together[:7], alone)


def test_expected_answers_differ_for_other_pooling_or_missing_segments(served):
    expected = np.array(EXPECTED["variants"]["cls"]["answers"][0]["rows"])
    assert np.abs(embed(served, "cls", TEXTS, pooling="mean") - expected).max() > 0.01
    inputs = pairs(PAIRS["queries"][0], PAIRS["documents"])
    right, wrong = (
        infer(served, inputs, ["scores"], model=model, activation="none")["scores"][:, 0]
        for model in ("cross_1", "without_segments"))
    assert np.abs(right - wrong).max() > 0.01
    assert (np.argsort(-right) != np.argsort(-wrong)).any()


def test_scores_are_scaled_as_configured(served):
    inputs = pairs(PAIRS["queries"][0], PAIRS["documents"])
    raw = infer(served, inputs, model="cross_1", activation="none")["scores"]
    scaled = infer(served, inputs, model="cross_1")["scores"]
    np.testing.assert_allclose(scaled, 1 / (1 + np.exp(-raw)), rtol=1e-5)


def test_labels_have_names(served, address):
    answer = infer(served, pairs(PAIRS["queries"][1], PAIRS["documents"]), model="cross_3")
    names = ["contradiction", "entailment", "neutral"]
    assert [label.decode() for label in answer["label"][:, 0]] == [
        names[best] for best in answer["scores"].argmax(axis=1)]
    assert len({*answer["label"][:, 0]}) > 1
    with Client(address) as client:
        assert json.loads(client.metadata("cross_3").properties["labels"]) == names
    message = refused(served, text_inputs("a"), "cross_1", prompt_name="query")
    assert "the model has no prompt" in message


def test_metadata_matches_the_model_files(address):
    with Client(address) as client:
        metadata = client.metadata("dense")
    assert {i.name for i in metadata.inputs} >= {"text_input", "text_pair_input", "token_type_ids"}
    (embedding,) = metadata.outputs
    assert (embedding.name, [*embedding.shape]) == ("embedding", [-1, 16])
    assert json.loads(metadata.properties["prompts"]) == ["document", "query", "short"]
    assert metadata.properties["similarity"] == "dot"


def test_a_cross_encoder_ranks_documents_by_their_pairs(address):
    query, scores = PAIRS["queries"][2], np.array(PAIRS["models"]["cross_1"][2])
    with Client(address) as client:
        ranked = client.rerank("cross_1", query, PAIRS["documents"], top_n=9)
        with pytest.raises(TypeError, match="must be texts"):
            client.rerank("cross_1", [1], [[2]])
        pair = (query, PAIRS["documents"][0])
        (classified,) = client.classify("cross_3", [pair])
    assert [each.document for each in ranked] == list(np.argsort(-scores.ravel())[:9])
    assert classified.name in ("contradiction", "entailment", "neutral")
    assert classified.scores[classified.label] == max(classified.scores)


def test_rerank_uses_the_prompts_for_query_and_documents(served, address):
    query, documents = TEXTS[0], TEXTS[1:4]
    with Client(address) as client:
        ranked = client.rerank("dense", query, documents)
    first = embed(served, "dense", [query], prompt_name="query")
    others = embed(served, "dense", documents, prompt_name="document")
    cosines = (others @ first.T)[:, 0]
    assert [each.document for each in ranked] == list(np.argsort(-cosines))
    np.testing.assert_allclose([each.score for each in ranked], np.sort(cosines)[::-1], atol=1e-6)


def test_tokens_have_scores_labels_and_offsets(served):
    names = ["O", "B-PER", "I-PER", "B-LOC"]
    answer = infer(served, text_inputs(*TEXTS), model="tokens", truncate="right")
    assert {*answer} == {"token_count", "token_scores", "token_labels", "token_offsets"}
    for row, (text, expected) in enumerate(zip(TEXTS, EXPECTED["tokens"])):
        count = answer["token_count"][row, 0]
        assert count == len(expected)
        scores, offsets = answer["token_scores"][row], answer["token_offsets"][row]
        np.testing.assert_allclose(scores[:count], expected, rtol=0, atol=1e-5)
        assert not scores[count:].any() and (offsets[count:] == -1).all()
        assert [x.decode() for x in answer["token_labels"][row]] == [
            *(names[best] for best in scores[:count].argmax(1)), *[""] * (len(scores) - count)]
        assert (offsets[[0, count - 1]] == -1).all()  # [CLS] and [SEP]
        known = offsets[1:count - 1][offsets[1:count - 1, 0] >= 0]
        assert (known[:, 0] < known[:, 1]).all() and (known <= len(text.encode())).all()
        assert (np.diff(known[:, 0]) >= 0).all()
        alone = infer(served, text_inputs(text), model="tokens", truncate="right")
        np.testing.assert_array_equal(alone["token_scores"][0], scores[:count])
    message = refused(served, ids_inputs([[1, 2]]), "tokens", outputs=["token_offsets"])
    assert "needs text_input without text_pair_input" in message
    assert {*infer(served, ids_inputs([[1, 2]]), model="tokens")} == {*answer} - {"token_offsets"}


def test_a_long_text_is_read_in_windows(served):
    """The text is so long that two windows must overlap; neither can hold it."""
    room, words = 22, [word for text in TEXTS for word in text.split()]  # 24 but [CLS] and [SEP]
    for count in range(8, len(words)):
        text = " ".join(words[:count])
        long = infer(served, text_inputs(text), model="tokens", window_overlap=4)
        tokens = long["token_count"][0, 0] - 2
        if tokens > room + 5:
            break
    overlap = int(2 * room - tokens)
    assert 0 < overlap < room
    short, first, last = (
        infer(served, text_inputs(TEXTS[0] if part == "short" else text), model="tokens", **more)
        for part, more in (("short", {}), ("", {"truncate": "right"}), ("", {"truncate": "left"})))
    both = infer(served, text_inputs(TEXTS[0], text), model="tokens", window_overlap=overlap)
    assert both["token_count"].ravel().tolist() == [short["token_count"][0, 0], tokens + 2]
    for name in ("token_scores", "token_labels", "token_offsets"):
        np.testing.assert_array_equal(both[name][0, :short["token_count"][0, 0]], short[name][0])
        left, right = 1 + room - overlap // 2, 1 + overlap - overlap // 2
        np.testing.assert_array_equal(both[name][1, :left], first[name][0, :left])
        np.testing.assert_array_equal(both[name][1, left:], last[name][0, right:])


def test_the_scores_of_a_long_text_are_the_means_of_its_windows(served):
    text = " ".join(TEXTS[:3])
    answer = infer(served, text_inputs(text), model="cross_3", window_overlap=21)
    assert answer["scores"].shape == (1, 3) and answer["label"].shape == (1, 1)
    for mistake, parameters in (
            ("cannot be combined with truncate", {"window_overlap": 2, "truncate": "left"}),
            ("a window has 22 tokens of a text", {"window_overlap": 22}),
            ("only for the outputs of classifiers",
             {"window_overlap": 2, "outputs": ["token_embeddings"]})):
        outputs = parameters.pop("outputs", None)
        assert mistake in refused(served, text_inputs(text), "cross_3", outputs, **parameters)
    with pytest.raises(InferenceServerException, match="without text_pair_input"):
        infer(served, pairs("a", ["b"]), model="cross_3", window_overlap=2)


def test_multi_vector_model_returns_an_embedding_per_token(tmp_path):
    draw = np.random.default_rng(8)
    weight = draw.standard_normal((5, 24), np.float32)
    folder = lay(tmp_path / "vectors", "cls")
    path = "sentence_transformers.base.modules"
    write_json(folder / "modules.json", [
        {"idx": 0, "name": "0", "path": "", "type": f"{path}.transformer.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Dense", "type": f"{path}.dense.Dense"},
        {"idx": 2, "name": "2", "path": "2_Mask", "type":
         "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask"},
        {"idx": 3, "name": "3", "path": "3_Normalize", "type": f"{path}.normalize.Normalize"}])
    of_tokens = {f"module_{end}_name": "token_embeddings" for end in ("input", "output")}
    write_json(folder / "1_Dense" / "config.json", {
        "in_features": 24, "out_features": 5, "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity", **of_tokens})
    write_json(folder / "2_Mask" / "config.json",
               {"skiplist_words": [], "skiplist_tasks": ["document"], "keep_only_token_ids": None})
    write_json(folder / "3_Normalize" / "config.json", of_tokens)
    write_json(folder / "config_sentence_transformers.json", {"model_type": "MultiVectorEncoder"})
    write_safetensors(folder / "1_Dense" / "model.safetensors", {"linear.weight": weight})
    plain = lay(tmp_path / "plain", "cls")
    outputs = ["token_count", "token_embeddings"]
    with Daemon(models=[("vectors", folder), ("plain", plain)]) as daemon, \
            daemon.client() as client:
        default = infer(client, text_inputs(*TEXTS[:3]), model="vectors")
        answer = infer(client, text_inputs(*TEXTS[:3]), outputs, model="vectors")
        states = infer(client, text_inputs(*TEXTS[:3]), ["token_embeddings", "embedding"],
                       model="plain")
        alone = infer(client, text_inputs(TEXTS[1]), outputs, "vectors")["token_embeddings"][0]
    assert {*default} == {"vectors", "vector_count"}
    np.testing.assert_array_equal(default["vectors"], answer["token_embeddings"])
    np.testing.assert_array_equal(states["token_embeddings"][:, 0], states["embedding"])
    for row, count in enumerate(answer["token_count"].ravel()):
        expected = states["token_embeddings"][row, :count].astype(np.float64) @ weight.T
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(answer["token_embeddings"][row, :count], expected, atol=1e-6)
        assert not answer["token_embeddings"][row, count:].any()
    np.testing.assert_array_equal(alone, answer["token_embeddings"][1, :len(alone)])


def test_settings_of_a_folder_are_shown(address, tmp_path):
    """By `sluice models` for a served model, and by `sluice plan` for a folder."""
    lay(tmp_path / "dense", "dense")
    for command in (["models", "--server", address, "--model", "dense"],
                    ["plan", tmp_path / "dense"]):
        done = subprocess.run([SLUICE, *command], capture_output=True, text=True, check=True)
        shown = " ".join((done.stdout + done.stderr).split())
        for setting in ("direction both", "pooling mean, max", "normalize true", "truncate right",
                        "default_prompt query", "prompts document query short"):
            assert setting in shown
