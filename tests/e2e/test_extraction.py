"""Compares labelled parts of texts with the packages gliner and gliner2, on converted folders."""

import asyncio
import json
import random
import shutil
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy
import tritonclient.grpc as grpcclient
from conftest import ROOT, SLUICE, SLUICED, Daemon
from gateway import Gateway
from infer import ids_inputs, infer, tensor, text_inputs
from instruction_sets import needs
from sluice_client import AsyncClient, Client, NotServed
from tritonclient.utils import InferenceServerException

GOLDENS = ROOT / "tests" / "goldens" / "extraction"
ENTITIES = ROOT / "tests" / "goldens" / "entities"  # of gliner2
LABELLED = ROOT / "tests" / "goldens" / "bi_extraction"  # with an encoder of labels
FOLDERS = (GOLDENS, ENTITIES, LABELLED)
EXPECTED = {name: cases for folder in FOLDERS
            for name, cases in json.loads((folder / "expected.json").read_text()).items()}
OUTPUTS = ["extracted_spans", "extracted_labels", "extracted_scores", "extracted_count"]
DRAWN = 40  # texts of each model


def source_of(name):
    return next(folder / name for folder in FOLDERS if (folder / name).is_dir())


def convert(source, out):
    return subprocess.run([sys.executable, ROOT / "tools" / "convert", source, out],
                          capture_output=True, text=True)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = tmp_path_factory.mktemp("extraction")
    for name in EXPECTED:
        run = convert(source_of(name), made / name)
        assert run.returncode == 0, run.stdout + run.stderr
    return made


@pytest.fixture(scope="module")
def daemon(folders):
    with Daemon(models=[(name, folders / name) for name in EXPECTED]) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def served(daemon):
    with grpcclient.InferenceServerClient(daemon.grpc) as client:
        yield client


def rules_of(case):
    return {"labels": json.dumps(case["labels"]), "threshold": case["threshold"],
            "overlap": "nested" if case["nested"] else "flat", "multi_label": case["multi_label"]}


def parts_of(answer):
    """Returns [begin, end, label, score] of the parts of each row, and checks the padding."""
    rows = []
    for spans, labels, scores, (count,) in zip(*(answer[name] for name in OUTPUTS)):
        assert (spans[count:] == -1).all() and (labels[count:] == -1).all()
        assert not scores[count:].any()
        rows.append([[*map(int, place), int(label), float(score)] for place, label, score in
                     zip(spans[:count], labels[:count], scores[:count])])
    return rows


def same_parts(found, expected, text):
    assert [part[:3] for part in found] == [part[:3] for part in expected], repr(text)
    np.testing.assert_allclose([part[3] for part in found], [part[3] for part in expected],
                               rtol=0, atol=1e-5)


@pytest.mark.parametrize("model", EXPECTED)
def test_parts_and_scores_equal_the_package(request, served, model, first_seed):
    cases = EXPECTED[model]
    if not request.config.getoption("--every-text"):
        cases = random.Random(first_seed).sample(cases, DRAWN)
    for case in cases:
        found, = parts_of(infer(served, text_inputs(case["text"]), None, model, **rules_of(case)))
        same_parts(found, case["parts"], case["text"])


@pytest.mark.parametrize("model", EXPECTED)
def test_bits_are_equal_in_any_batch(served, model):
    texts = [case["text"] for case in EXPECTED[model][:20]] + [" ", "word " * 70]
    rules = {"labels": json.dumps(["person", "date of birth", "city"]), "threshold": 0.0,
             "overlap": "nested", "multi_label": True}
    together = parts_of(infer(served, text_inputs(*texts), OUTPUTS, model, **rules))
    assert together[-2] == [] and sum(map(len, together)) > 100
    for text, parts in zip(texts, together):
        alone, = parts_of(infer(served, text_inputs(text), OUTPUTS, model, **rules))
        assert alone == parts


@pytest.mark.parametrize("model", sorted(path.name for path in LABELLED.iterdir() if path.is_dir()))
def test_an_encoded_label_has_the_same_scores_next_to_any_others(served, model):
    labels = ["person", "date of birth", "Straße", "x", *(f"label {i}" for i in range(124))]
    rules = {"threshold": 0.0, "overlap": "nested", "multi_label": True}
    text = "The word"  # whose parts do not cross

    def scores(chosen):
        parts, = parts_of(infer(served, text_inputs(text), None, model, labels=json.dumps(chosen),
                                **rules))
        return {(begin, end, chosen[label]): score for begin, end, label, score in parts}

    alone = scores(["date of birth"])
    assert len(alone) == 3
    for chosen in (labels[3:0:-1], [*labels[2:], labels[1]], labels):
        found = scores(chosen)
        assert len(found) == 3 * len(chosen)
        assert {part: found[part] for part in alone} == alone


def test_labels_of_an_encoder_have_its_limits(served):
    infer(served, text_inputs("a"), None, "deberta_bert", labels="<<ENT>> is a text")
    for labels, problem in (("a " * 40, r"\[0\] has more than 38 tokens of the encoder of labels"),
                            (" ", "has 0 tokens"), ('["a", "a"]', "same as an earlier label")):
        with pytest.raises(InferenceServerException, match=problem):
            infer(served, text_inputs("a"), None, "deberta_bert", labels=labels)


def without_encoder(folder):
    shutil.rmtree(folder / "labels")


def with_another_width(folder):
    path = folder / "labels" / "modules.json"
    path.write_text(json.dumps(json.loads(path.read_text())[:2]))  # without the dense layer


def with_an_extraction(folder):
    path = folder / "labels" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"sluice": {"extraction": {"width": 16}}}))


@pytest.mark.parametrize("change, problem", [
    (without_encoder, "labels: "),
    (with_another_width, "an embedding has 20 values; expected 16"),
    (with_an_extraction, "extraction of its own"),
])
def test_a_wrong_encoder_of_labels_is_refused(folders, tmp_path, change, problem):
    broken = tmp_path / "broken"
    shutil.copytree(folders / "deberta_bert", broken)
    change(broken)
    daemon = subprocess.run([SLUICED, "--model", f"m={broken}", "--check"], capture_output=True,
                            text=True)
    assert daemon.returncode != 0 and problem in daemon.stderr, daemon.stderr


def rounded_to_bf16(source, out):
    """Copies a folder with its weights stored in bf16."""
    shutil.copytree(source, out)
    header, data = {}, []
    for name, values in safetensors.numpy.load_file(out / "model.safetensors").items():
        bits = values.astype(np.float32).view(np.uint32)
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        begin = sum(map(len, data))
        data.append(bits.astype(np.uint16).tobytes())
        header[name] = {"dtype": "BF16", "shape": values.shape,
                        "data_offsets": [begin, begin + len(data[-1])]}
    text = json.dumps(header).encode()
    (out / "model.safetensors").write_bytes(
        len(text).to_bytes(8, "little") + text + b"".join(data))


def all_scores(client, model):
    """Returns the score of each part and label of 20 texts."""
    scores = []
    for case in EXPECTED[model][:20]:
        rules = {"labels": json.dumps(case["labels"][:2]), "threshold": 0.0, "overlap": "nested",
                 "multi_label": True}
        parts, = parts_of(infer(client, text_inputs(case["text"]), None, model, **rules))
        scores.append({tuple(part[:3]): part[3] for part in parts})
    return scores


# The largest root mean square of the differences of scores from those in f32. The models are small
# and random, so an error is a larger part of a state than in a trained model.
PRECISIONS = {"int8": 0.03, "bf16": 0.02}


@pytest.mark.parametrize("precision", ["int8", pytest.param("bf16", marks=needs("AVX-512 BF16"))])
def test_scores_in_other_precisions_are_within_the_table(folders, served, tmp_path, precision):
    config = {"models": [{"name": name, "path": str(folders / name)} for name in EXPECTED]}
    for model in config["models"]:
        if precision == "int8":
            model["quantization"] = "int8"
        else:
            model["path"] = str(tmp_path / model["name"])
            rounded_to_bf16(folders / model["name"], tmp_path / model["name"])
    path = tmp_path / "sluice.yaml"
    path.write_text(json.dumps(config))
    profile = "f32" if precision == "int8" else "cpu-avx512-bf16"
    other = Daemon("--config", path, "--cpu.profile", profile, models=())
    errors = {}
    try:
        with grpcclient.InferenceServerClient(other.grpc) as client:
            for model in EXPECTED:
                found, exact = all_scores(client, model), all_scores(served, model)
                # A model may decide whether a text has parts at all.
                assert sum(bool(a) != bool(b) for a, b in zip(found, exact)) <= 2, model
                errors[model] = [a[part] - b[part] for a, b in zip(found, exact)
                                 for part in a.keys() & b.keys()]
                assert len(errors[model]) > 200
    finally:
        other.stop()
    errors = {model: float(np.sqrt(np.mean(np.square(each)))) for model, each in errors.items()}
    assert all(1e-6 < error <= PRECISIONS[precision] for error in errors.values()), errors
    print(precision, errors)


def test_places_count_characters_of_the_text(served):
    text = "  über Straße,\n日本語 ok "
    answer = infer(served, text_inputs(text), None, "modernbert", labels="city", threshold=0.0,
                   overlap="nested", multi_label=True)
    words = [(2, 6), (7, 13), (13, 14), (15, 18), (19, 21)]
    found = {(begin, end) for begin, end, _, _ in parts_of(answer)[0]}
    assert {*words} <= found
    assert found <= {(a, b) for a, _ in words for _, b in words}


@pytest.mark.parametrize("parameters, inputs, outputs, problem", [
    ({}, text_inputs("a"), None, "labels is missing"),
    ({}, text_inputs("a"), ["extracted_spans"], "needs the parameter labels"),
    ({"labels": "city"}, text_inputs("a"), ["embedding"], "cannot be combined with the parameter"),
    ({"labels": "city"}, ids_inputs([[1]]), None, "needs text_input"),
    ({"labels": '["a", "a"]'}, text_inputs("a"), None, r"\[1\] is the same as an earlier label"),
    ({"labels": '[""]'}, text_inputs("a"), None, "expected 1 to 256"),
    ({"labels": " "}, text_inputs("a"), None, "has 0 tokens"),
    ({"labels": "a <<ENT>> b"}, text_inputs("a"), None, "marker or separator"),
    ({"labels": json.dumps([f"label {i}" for i in range(128)])}, text_inputs("a"), None,
     "Send fewer labels"),
    ({"labels": json.dumps(["a"] * 129)}, text_inputs("a"), None, "more than 128 entries"),
    ({"labels": "city", "threshold": 1.5}, text_inputs("a"), None, "threshold"),
    ({"labels": "city", "overlap": "any"}, text_inputs("a"), None, "one of flat, nested"),
    ({"labels": "city", "truncate": "left"}, text_inputs("a"), None, "would cut the labels"),
    ({"labels": "city", "truncate": "error"}, text_inputs("a " * 17), None, "more than 16 words"),
    ({"labels": "city", "window_overlap": 2}, text_inputs("a"), None, "window_overlap"),
])
def test_wrong_requests_are_refused_with_the_remedy(served, parameters, inputs, outputs, problem):
    with pytest.raises(InferenceServerException, match=problem):
        infer(served, inputs, outputs, "bert", **parameters)


def test_long_texts_are_cut_after_the_most_words(served):
    text = "word " * 20
    cut = infer(served, text_inputs(text), None, "bert", labels="city", threshold=0.0)
    ends = [end for _, end, _, _ in parts_of(cut)[0]]
    assert max(ends) <= 16 * 5


def test_another_model_refuses_labels(served, daemon):
    pairs = [tensor(name, np.array([[b"a"]], np.object_), "BYTES")
             for name in ("text_input", "text_pair_input")]
    with pytest.raises(InferenceServerException, match="text_pair_input"):
        infer(served, pairs, None, "bert", labels="city")
    other = Daemon()
    try:
        with grpcclient.InferenceServerClient(other.grpc) as client:
            with pytest.raises(InferenceServerException, match="does not extract"):
                infer(client, text_inputs("a"), None, labels="city")
        with Client(other.grpc) as client:
            with pytest.raises(NotServed, match="does not extract"):
                client.extract("demo", "a", ["city"])
    finally:
        other.stop()


def clear_case(model):
    """Returns a case with parts whose text has characters of several bytes."""
    return next(case for case in EXPECTED[model] if len(case["parts"]) > 2
                and len(case["text"].encode()) > len(case["text"]) + 2)


def entities_of(case):
    return [(case["labels"][label], begin, end, case["text"][begin:end])
            for begin, end, label, _ in case["parts"]]


def test_python_clients_return_entities(daemon):
    case = clear_case("deberta")
    options = {"threshold": case["threshold"], "multi_label": case["multi_label"],
               "overlap": "nested" if case["nested"] else "flat"}
    with Client(daemon.grpc) as client:
        found = client.extract("deberta", [case["text"], "", case["text"].encode()],
                               case["labels"], **options)
        with pytest.raises(ValueError, match="list of labels"):
            client.extract("deberta", "a", "city")
    assert found[1] == [] and found[0] == found[2] and found.prompt_tokens > 0
    assert [(each.type, each.begin, each.end, each.text) for each in found[0]] == entities_of(case)

    async def run():
        async with AsyncClient(daemon.grpc) as client:
            return await client.extract("deberta", case["text"], case["labels"], **options)

    assert asyncio.run(run())[0] == found[0]


def test_gateway_returns_entities(daemon):
    case = clear_case("modernbert")
    body = {"model": "modernbert", "input": [case["text"], " "], "labels": case["labels"],
            "threshold": case["threshold"], "multi_label": case["multi_label"],
            "overlap": "nested" if case["nested"] else "flat"}
    with Gateway(daemon.grpc) as gateway:
        answer = gateway.post("/v1/extract", body).json
        first, second = answer["data"]
        assert [(each["label"], each["start"], each["end"], each["text"])
                for each in first["entities"]] == entities_of(case)
        np.testing.assert_allclose([each["score"] for each in first["entities"]],
                                   [part[3] for part in case["parts"]], rtol=0, atol=1e-5)
        assert second == {"object": "extraction", "index": 1, "entities": []}
        assert answer["usage"]["prompt_tokens"] > 0
        assert gateway.post("/v1/extract", {**body, "input": "a"}).status == 200
        for changed, problem in (({"labels": []}, "is empty"), ({"labels": "city"}, "labels"),
                                 ({"labels": ["a"] * 129}, "more than 128"),
                                 ({"overlap": "any"}, "overlap"), ({"input": []}, "is empty"),
                                 ({"colour": 1}, "not a supported field")):
            refused = gateway.post("/v1/extract", {**body, **changed})
            assert refused.status == 400 and problem in refused.json["error"]["message"]


def test_command_line_shows_entities(daemon):
    case = clear_case("bert")
    run = [SLUICE, "--server", daemon.grpc, "extract", "--model", "bert", "--json",
           "--threshold", str(case["threshold"]), "--overlap",
           "nested" if case["nested"] else "flat"]
    run += ["--multi-label"] * case["multi_label"]
    for label in case["labels"]:
        run += ["--labels", label]
    answer = json.loads(subprocess.run([*run, "--", case["text"]], capture_output=True, text=True,
                                       check=True).stdout)
    text = case["text"]
    assert [(each["type"], each["begin"], each["end"], each["text"])
            for each in answer["entities"]] == [
        (label, len(text[:begin].encode()), len(text[:end].encode()), part)
        for label, begin, end, part in entities_of(case)]


def test_an_added_full_stop_is_not_part_of_a_text(served):
    rules = {"labels": "city", "threshold": 0.0, "overlap": "nested", "multi_label": True}
    models = [name for name in EXPECTED if name.startswith("entities_")]
    added = 0
    for model in models:
        for text in [case["text"].rstrip(".!? ") for case in EXPECTED[model][:20]]:
            parts, = parts_of(infer(served, text_inputs(text), None, model, **rules))
            assert all(begin < end <= len(text) for begin, end, _, _ in parts)
            # The last word with the full stop, and without it.
            ends = [begin for begin, end, _, _ in parts if end == len(text)]
            added += len(ends) > len(set(ends))
    assert added > 20


def expect_not_converted(config, key, value, problem, tmp_path):
    """Sets a key of a copy of the folder of `config`, and expects that it is not converted."""
    source = tmp_path / "source"
    shutil.copytree(config.parent, source)
    path = source / config.name
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    run = convert(source, tmp_path / "out")
    assert run.returncode == 1 and problem in run.stdout
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("key, value, problem", [
    ("architecture", "boundary", 'architecture is "boundary"'),
    ("counting_layer", "count_lstm_moe", "counting_layer is"),
    ("token_pooling", "mean", "token_pooling is"),
    ("span_head", {"span_mode": "marker"}, "span_head.span_mode is"),
])
def test_other_folders_of_gliner2_are_not_converted(tmp_path, key, value, problem):
    expect_not_converted(ENTITIES / "entities_ettin" / "config.json", key, value, problem, tmp_path)


def test_other_tasks_of_gliner2_are_refused_by_name(served, tmp_path):
    run = convert(ENTITIES / "entities_ettin", tmp_path / "out")
    assert "its classification, structures and relations are not served" in run.stdout
    for outputs in (["scores"], ["embedding"]):
        with pytest.raises(InferenceServerException, match=outputs[0]):
            infer(served, text_inputs("a"), outputs, "entities_ettin", labels="city")


@pytest.mark.parametrize("key, value, problem", [
    ("span_mode", "token_level", "span_mode is"),
    ("labels_encoder", "bert", "has no labels_encoder_config"),
    ("encoder_config", None, "has no encoder_config"),
    ("encoder_config", {"model_type": "t5x"}, "does not support"),
])
def test_folders_of_other_kinds_are_not_converted(tmp_path, key, value, problem):
    expect_not_converted(GOLDENS / "bert" / "gliner_config.json", key, value, problem, tmp_path)


def test_a_folder_without_a_tensor_of_the_head_is_refused(folders, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(folders / "bert", broken)
    path = broken / "config.json"
    config = json.loads(path.read_text())
    config["sluice"]["extraction"]["width"] = 22
    path.write_text(json.dumps(config))
    daemon = subprocess.run([SLUICED, "--model", f"m={broken}", "--check"], capture_output=True,
                            text=True)
    assert daemon.returncode == 2
    assert "span_head.projection.weight has shape [20, 24], must be [22, 24]" in daemon.stderr
